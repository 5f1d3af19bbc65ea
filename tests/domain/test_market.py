"""Looking an offer up."""

from hexcloud.domain.calibration import Calibration, Efficiency
from hexcloud.domain.market import Market, Network
from hexcloud.domain.offer import Offer


def test_offer_is_found_by_id_or_not_at_all(spot_offer: Offer) -> None:
    row = Efficiency(gpu="*", bandwidth=0.7, compute=0.5, mfu=0.35, source="made up")
    market = Market(
        as_of=spot_offer.as_of,
        offers=(spot_offer,),
        gpus={},
        network=Network(links=(), egress=()),
        calibration=Calibration(efficiencies=(row,), source="made up"),
    )
    assert market.offer(spot_offer.id) is spot_offer
    assert market.offer("gone") is None
