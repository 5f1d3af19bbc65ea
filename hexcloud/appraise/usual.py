"""Usual: what one GPU costs on demand anywhere. By it a price is called far too cheap, or spot a floor price.

For the GPUs of the catalog's table (`catalogs/usual.yaml`) the table counts, and changes with the catalog only: what is
usual must not drift with what is listed. For GPUs that are newer than the table it is learned from believed prices.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from statistics import median

from hexcloud.domain.offer import Offer, Tenure

LEAST_CLOUDS = 3
"""Of fewer clouds the median is not sure to be of an honest one when one of them is wrong."""


def usual_prices(table: Mapping[str, float], believed: Iterable[Offer]) -> dict[str, float]:
    """Return USD per GPU-hour by GPU: the table's, and for other GPUs the median over clouds of each cloud's median.

    Only proven on-demand offers count, and only GPUs that at least LEAST_CLOUDS clouds list.
    """
    prices: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for offer in believed:
        if offer.tenure is Tenure.ON_DEMAND and offer.proven and offer.gpu not in table:
            prices[offer.gpu][offer.cloud].append(offer.usd_per_gpu_hour)
    learned = {
        gpu: median(median(of_cloud) for of_cloud in clouds.values())
        for gpu, clouds in prices.items()
        if len(clouds) >= LEAST_CLOUDS
    }
    return {**learned, **table}
