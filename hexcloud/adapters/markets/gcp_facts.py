"""GcpFacts: `catalogs/gcp.yaml`, what Google Cloud's APIs do not say about the machines they list."""

from datetime import date
from functools import cached_property
from pathlib import Path

from pydantic import Field

from hexcloud.adapters.files import catalog_root, load_yaml
from hexcloud.domain.frozen import Frozen

LEAST_NETWORK_GB_PER_S = 1.25
"""What the smallest of Google's GPU machines has (10 Gbit/s): the safe guess for a machine we have no fact about."""


class Series(Frozen):
    """Machines whose names start so, and the words of their core and memory SKUs, the usual spelling first."""

    prefix: str
    skus: tuple[str, ...] = Field(min_length=1)


class Accelerator(Frozen):
    """A GPU: our name of it, its quota and the words of its SKUs, the usual spelling first."""

    type: str
    gpu: str
    quota: str | None = None
    """Metric of on-demand GPUs per region."""
    skus: tuple[str, ...] = Field(min_length=1)
    covers_machine: bool = False
    """The SKU of one GPU also bills its share of the machine."""

    def quota_key(self, region: str, is_spot: bool) -> str | None:
        """Return the key of the quota it counts against."""
        if self.quota is None:
            return None
        return f"gcp/{region}/{'PREEMPTIBLE_' if is_spot else ''}{self.quota}"


class MachineFact(Frozen):
    """A machine type."""

    type: str
    network_gb_per_s: float = Field(gt=0)
    spot_only: bool = False


class Attachment(Frozen):
    """GPUs attached to a host that has none of its own."""

    host: str
    accelerator: str
    count: int = Field(gt=0)
    network_gb_per_s: float = Field(gt=0)


class GcpFacts(Frozen):
    """All of them."""

    as_of: date
    source: str
    series: tuple[Series, ...]
    accelerators: tuple[Accelerator, ...]
    machines: tuple[MachineFact, ...]
    attachments: tuple[Attachment, ...]

    @cached_property
    def gpu_skus(self) -> dict[str, str]:
        """Each spelling of a GPU's SKU -> the usual one."""
        return {spelling: accelerator.skus[0] for accelerator in self.accelerators for spelling in accelerator.skus}

    @cached_property
    def series_skus(self) -> dict[str, str]:
        """Each spelling of a series in a SKU -> the usual one."""
        return {spelling: series.skus[0] for series in self.series for spelling in series.skus}

    @cached_property
    def _by_type(self) -> dict[str, Accelerator]:
        return {accelerator.type: accelerator for accelerator in self.accelerators}

    @cached_property
    def _by_machine(self) -> dict[str, MachineFact]:
        return {machine.type: machine for machine in self.machines}

    def accelerator(self, kind: str) -> Accelerator:
        """Return an accelerator type; one we do not know keeps the source's name and has no price."""
        return self._by_type.get(kind) or Accelerator(type=kind, gpu=kind, skus=(kind,))

    def machine(self, name: str) -> MachineFact:
        """Return what is known of a machine type."""
        return self._by_machine.get(name) or MachineFact(type=name, network_gb_per_s=LEAST_NETWORK_GB_PER_S)

    def series_of(self, machine: str) -> str:
        """Return the words of a machine's core and memory SKUs."""
        fitting = [series for series in self.series if machine.startswith(series.prefix)]
        if not fitting:
            return machine.split("-", 1)[0].upper()
        return max(fitting, key=lambda series: len(series.prefix)).skus[0]

    @cached_property
    def asked_names(self) -> str:
        """A regular expression (RE2) for the machines worth asking for: accelerator series, known or not, and hosts."""
        hosts = sorted({attachment.host for attachment in self.attachments})
        return f"({'|'.join(['[ag][0-9]+[a-z]*-.*', *hosts])})"


def load_gcp_facts(root: Path | None = None) -> GcpFacts:
    """Read the facts. Raises ConfigError."""
    return load_yaml((root or catalog_root()) / "gcp.yaml", GcpFacts)
