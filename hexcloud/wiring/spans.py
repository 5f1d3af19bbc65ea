"""Of how many machines a run's replicas may be planned: as many as its engine and its provider can really run."""

from hexcloud.domain.generation import EngineKind
from hexcloud.domain.run import RunSpec

SPANS = (2, 4, 8)


def spans_of(spec: RunSpec) -> tuple[int, ...]:
    """Return how many machines may run one replica where one does not hold the model; empty: a replica takes one.

    On rented machines it is SGLang that runs over several. An emulated machine stands for any: the head serves at the
    rate of all, or SGLang runs over them on this computer.
    """
    return () if spec.is_real and spec.engine is not EngineKind.SGLANG else SPANS
