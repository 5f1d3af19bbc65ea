"""What SkyPilot's price lists leave out: the network of a machine, and the account quota that it draws on."""

from pathlib import Path
from typing import NamedTuple

from hexcloud.adapters.files import catalog_root
from hexcloud.adapters.markets.skypilot_lines import Faults, lines
from hexcloud.adapters.markets.snapshot import read_rows
from hexcloud.domain.row import Row

USUAL_NETWORK_GB_PER_S = 1.25
"""One way, for a machine that the bundled catalog does not know: 10 Gbit/s, what clouds give a single machine at least
where they state anything (general knowledge; the same figure as in `catalogs/offers`)."""
_AWS_MAPS = ("aws/instance_quota_mapping.csv", "aws-instance-quota-mapping.csv", "instance_quota_mapping.csv")
_GCP_MAPS = ("gcp/accelerator_quota_mapping.csv", "gcp-accelerator-quota-mapping.csv", "accelerator_quota_mapping.csv")
_CODES = {"on_demand": "OnDemandInstanceCode", "spot": "SpotInstanceCode"}


class Draw(NamedTuple):
    """What one machine takes from an account."""

    quota: str | None = None
    units: float = 0.0
    over_all: str | None = None
    """Key of the quota over all regions."""


class Sizes(NamedTuple):
    """Of one machine, as listed."""

    instance_type: str
    accelerator: str
    """By SkyPilot's name."""
    gpu_count: float
    vcpus: float


class Account:
    """Quota maps beside the price lists, and the bundled catalog for what those do not say."""

    def __init__(self, folder: Path, root: Path | None = None) -> None:
        """Read both. A quota map that is missing or broken is none. Raises MarketError for a broken bundle."""
        self._aws = _codes(folder, _AWS_MAPS, "InstanceType")
        self._gcp = _codes(folder, _GCP_MAPS, "Accelerator")
        self._networks: dict[tuple[str, str], float] = {}
        self._over_all: dict[str, str] = {}
        for path in sorted(((root or catalog_root()) / "offers").glob("*.csv")):
            for row in read_rows(path):
                self._networks[row.cloud, row.instance_type] = row.network_gb_per_s
                self._learn_code(row)
                if row.quota_global is not None:
                    self._over_all[row.cloud] = row.quota_global

    def network_gb_per_s(self, cloud: str, instance_type: str) -> float:
        """Return the network of a whole machine, one way, 1e9 bytes/s."""
        return self._networks.get((cloud, instance_type), USUAL_NETWORK_GB_PER_S)

    def draw(self, cloud: str, region: str, tenure: str, sizes: Sizes) -> Draw:
        """Return the quota a machine draws on: vCPUs on AWS, GPUs on Google Cloud, none known elsewhere."""
        if cloud == "aws":
            return self._draw(cloud, region, self._aws.get((sizes.instance_type, tenure)), sizes.vcpus)
        if cloud == "gcp":
            code = self._gcp.get((sizes.instance_type, tenure)) or self._gcp.get((sizes.accelerator, tenure))
            return self._draw(cloud, region, code, sizes.gpu_count)
        return Draw(over_all=self._over_all.get(cloud))

    def _draw(self, cloud: str, region: str, code: str | None, units: float) -> Draw:
        over_all = self._over_all.get(cloud)
        return Draw(f"{cloud}/{region}/{code}", units, over_all) if code else Draw(over_all=over_all)

    def _learn_code(self, row: Row) -> None:
        """Take the bundle's quota where the map beside the prices has none; on Google Cloud for the GPU as well."""
        codes = {"aws": self._aws, "gcp": self._gcp}.get(row.cloud)
        if codes is None or row.quota is None:
            return
        code = row.quota.rsplit("/", 1)[-1]
        codes.setdefault((row.instance_type, row.tenure), code)
        if row.cloud == "gcp":
            codes.setdefault((row.gpu, row.tenure), code)


def _codes(folder: Path, names: tuple[str, ...], key: str) -> dict[tuple[str, str], str]:
    """Read a quota map: (instance type or accelerator, tenure) -> code."""
    path = next((folder / name for name in names if (folder / name).is_file()), None)
    if path is None:
        return {}
    found: dict[tuple[str, str], str] = {}
    for line in lines(path, Faults(), needed=(key, *_CODES.values())):
        for tenure, column in _CODES.items():
            if line.cell(column):
                found[line.cell(key), tenure] = line.cell(column)
    return found
