"""Of how many machines a run's replicas may be planned: as many as its engine and its provider can really run."""

from hexcloud.domain.run import RunSpec

SPANS = (2, 4, 8)


def spans_of(spec: RunSpec) -> tuple[int, ...]:
    """Return how many machines may run one replica where one does not hold the model; empty: a replica takes one.

    An emulated machine stands for any: the head serves at the rate of all, or SGLang runs over them on this computer.
    Rented machines get the disk of one that holds a small model, and the head's copies to the others were not measured
    over a real network: none are rented for such a replica until both are right (docs/adr/0014).
    """
    return () if spec.is_real else SPANS
