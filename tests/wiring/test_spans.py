import pytest

from hexcloud import wiring
from hexcloud.domain.generation import EngineKind
from hexcloud.domain.run import RunSpec
from hexcloud.planner.spans import WIDEST
from hexcloud.wiring.spans import SPANS, spans_of


@pytest.mark.parametrize(
    ("provider", "engine", "spans"),
    [
        ("local", EngineKind.EMBEDDED, SPANS),
        ("local", EngineKind.SGLANG, SPANS),
        ("skypilot", EngineKind.SGLANG, SPANS),
        ("skypilot", EngineKind.EMBEDDED, ()),
    ],
)
def test_a_replica_is_planned_over_machines_only_where_it_can_be_run(
    provider: str, engine: EngineKind, spans: tuple[int, ...]
) -> None:
    spec = RunSpec(provider=provider, engine=engine)
    assert spans_of(spec) == spans == wiring.workload_of(spec).spans


def test_no_replica_is_wider_than_the_planner_says() -> None:
    assert max(SPANS) == WIDEST
