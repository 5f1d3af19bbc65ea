from collections.abc import Callable
from pathlib import Path

import pytest

from hexcloud import wiring
from hexcloud.cli.own_fleet import idle_of, idle_view, require_prices, why_not_own, wires_fields, wires_view
from hexcloud.cli.planned import Planned, make
from hexcloud.cli.refusals import RefusedError
from hexcloud.domain.errors import ConfigError
from hexcloud.domain.run import RunSpec
from hexcloud.planner.allocate import MIP_GAP
from hexcloud.planner.explain import WhyNotKind

FLEET = """
machines:
  - {name: big, gpu: H100, gpu_count: 8, network_gb_per_s: 50, count: 3}
  - {name: lone, gpu: H100, gpu_count: 1, network_gb_per_s: 3, region: far}
links:
  - {source: "big#1", target: "big#3", gb_per_s: 45}
  - {source: "big#2", target: "big#1", gb_per_s: 4}
  - {source: "big#2", target: "big#3", gb_per_s: 5}
"""


@pytest.fixture(scope="module")
def split(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Planned]:
    def planned(text: str) -> Planned:
        path: Path = tmp_path_factory.mktemp("fleet") / "fleet.yaml"
        path.write_text(text)
        return make(wiring.fleet_input(RunSpec(), path), None, is_own_fleet=True)

    return planned


def test_the_gang_stands_where_the_measured_links_are_best(split: Callable[[str], Planned]) -> None:
    plan = split(FLEET).result.plan
    assert set(plan.ranks) == {"big#1", "big#3"}
    route = next(route for route in plan.routes if route.target == "big#2")
    assert route.gb_per_s == (4 if route.source == "big#1" else 5)


def test_other_measures_give_another_gang(split: Callable[[str], Planned]) -> None:
    swapped = FLEET.replace("gb_per_s: 45}", "gb_per_s: 3}").replace("gb_per_s: 5}", "gb_per_s: 44}")
    assert set(split(swapped).result.plan.ranks) == {"big#2", "big#3"}


def test_a_reader_sees_the_order_and_the_ways_and_a_machine_all_of_them(split: Callable[[str], Planned]) -> None:
    plan = split(FLEET).result.plan
    told, fields = wires_view(plan), wires_fields(plan)
    assert told.startswith(f"gang order  {plan.ranks[0]}, {plan.ranks[1]}")
    assert fields["ranks"] == list(plan.ranks)
    for route in plan.routes:
        assert f"{route.source} -> {route.target}  {route.gb_per_s:g} GB/s" in told


def test_very_many_ways_are_counted(split: Callable[[str], Planned]) -> None:
    plan = split(FLEET).result.plan
    many = plan.model_copy(update={"routes": plan.routes * 20})
    assert f"and {len(many.routes) - 12} more (--json lists all)" in wires_view(many)


def test_machines_are_told_by_what_they_do(split: Callable[[str], Planned]) -> None:
    planned = split(FLEET)
    answer = why_not_own("big", planned)
    assert (answer.kind, answer.matches) == (WhyNotKind.CHOSEN, 1)
    assert answer.reason == "big: 1 rollout, 2 trainer" or answer.reason == "big: 2 trainer, 1 rollout"


def test_machines_without_a_part_are_counted_also_those_of_a_name_that_has_one(split: Callable[[str], Planned]) -> None:
    many = "- {name: big, gpu: H100, gpu_count: 8, network_gb_per_s: 50, count: 40}\n"
    planned = split(many + "- {name: small, gpu: L4, gpu_count: 1, network_gb_per_s: 1, region: far}")
    used = len(planned.result.plan.placement.slots)
    assert idle_of(planned)["big"] == 40 - used > 0
    assert f"{40 - used} of big" in idle_view(planned)
    all_work = split("- {name: big, gpu: H100, gpu_count: 8, network_gb_per_s: 50, count: 2}")
    assert (idle_of(all_work), idle_view(all_work)) == ({}, "")


def test_more_machines_never_make_a_fleet_slower(split: Callable[[str], Planned]) -> None:
    """One large slow-linked machine must train, whichever side has more FLOPS."""
    slow = "- {name: h20, gpu: H20, gpu_count: 8, network_gb_per_s: 1}\n"
    quick = [f"- {{name: b{number}, gpu: B200, gpu_count: 2, network_gb_per_s: 50}}\n" for number in range(4)]
    few, many = (split(slow + "".join(quick[:count])).result.plan.allocation for count in (1, 4))
    assert many.samples_per_s >= few.samples_per_s * (1 - MIP_GAP)
    for allocation in (few, many):
        assert (allocation.proof.upper_bound_samples_per_s or 0.0) >= allocation.samples_per_s


def test_a_fleet_that_is_too_small_is_told_what_it_lacks(split: Callable[[str], Planned]) -> None:
    with pytest.raises(RefusedError, match=r"rollout is missing: training Qwen2.5-7B takes 1 machine of lone at least"):
        split("- {name: lone, gpu: H100, gpu_count: 8, network_gb_per_s: 50}")
    with pytest.raises(
        RefusedError, match=r"training is missing: no machine of it, nor all of one kind, has the memory"
    ):
        split("- {name: lone, gpu: H100, gpu_count: 1, network_gb_per_s: 50, count: 2}")


def test_dollars_want_prices() -> None:
    require_prices("--frontier", ())
    with pytest.raises(ConfigError, match=r"--frontier draws dollars: .*; without one: a, b, c, \.\.\.$"):
        require_prices("--frontier", ("a", "b", "c", "d"))
