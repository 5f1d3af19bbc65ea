from itertools import combinations

import networkx as nx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hexcloud.domain.plan import SlotName
from hexcloud.planner.cut import bisect, eq3_score, flops_window
from hexcloud.planner.links import Links


def complete(speeds: list[float], count: int) -> Links:
    links: Links = nx.complete_graph([SlotName(f"n{index:02}") for index in range(count)])
    for (one, other), speed in zip(links.edges, speeds, strict=False):
        links.edges[one, other]["gb_per_s"] = speed
    return links


def coloured(case: tuple[int, list[float], list[tuple[float, float]]]) -> Links:
    count, speeds, machines = case
    links = complete(speeds, count)
    for name, (flops, hbm) in zip(sorted(links), machines, strict=False):
        links.nodes[name].update(flops=flops, hbm_gb_per_s=hbm)
    return links


graphs = (
    st.integers(2, 9)
    .flatmap(
        lambda n: st.tuples(
            st.just(n),
            st.lists(st.floats(0.1, 100), min_size=n * (n - 1) // 2, max_size=n * (n - 1) // 2),
            st.lists(st.tuples(st.floats(100, 2000), st.floats(300, 8000)), min_size=n, max_size=n),
        )
    )
    .map(coloured)
)


@given(graphs, st.floats(0.1, 0.9))
@settings(max_examples=100, deadline=None)
def test_a_cut_scores_at_least_95_percent_of_the_best_of_all_cuts(links: Links, share: float) -> None:
    low, high = flops_window(links, share)
    flops = {name: float(machine["flops"]) for name, machine in links.nodes(data=True)}
    total = sum(flops.values())
    sides = (
        frozenset(side)
        for size in range(1, len(links) + 1)
        for side in combinations(sorted(links), size)
        if low <= sum(flops[name] for name in side) / total <= high
    )
    best = max((eq3_score(links, side) for side in sides), default=0.0)
    found = bisect(links, share)
    assert eq3_score(links, found) >= 0.95 * best
    assert low - 1e-9 <= sum(flops[name] for name in found) / total <= high + 1e-9


def test_all_flops_go_to_training_when_gamma_is_one() -> None:
    links = coloured((4, [1.0] * 6, [(1.0, 1.0)] * 4))
    assert bisect(links, 1.0) == frozenset(links)


def test_eq3_counts_links_kept_for_training_and_bandwidth_left_for_rollout() -> None:
    links = coloured((3, [8.0, 1.0, 1.0], [(10.0, 1.0), (10.0, 1.0), (1.0, 8.0)]))
    assert eq3_score(links, frozenset({SlotName("n00"), SlotName("n01")})) == pytest.approx(8 / 10 + 8 / 10)


def test_the_score_of_many_machines_is_the_sum_that_the_paper_writes() -> None:
    count = 30
    speeds = [float(1 + index % 7) for index in range(count * (count - 1) // 2)]
    links = coloured((count, speeds, [(1.0 + index % 3, 2.0 + index % 5) for index in range(count)]))
    side = frozenset(sorted(links)[:11])
    kept = sum(float(links.edges[pair]["gb_per_s"]) for pair in combinations(sorted(side), 2))
    hbm = {name: float(links.nodes[name]["hbm_gb_per_s"]) for name in links}
    rollout = sum(value for name, value in hbm.items() if name not in side) / sum(hbm.values())
    assert eq3_score(links, side) == pytest.approx(kept / sum(speeds) + rollout)


@given(st.permutations([f"m{index}" for index in range(8)]))
@settings(max_examples=20, deadline=None)
def test_names_do_not_decide_how_good_a_cut_is(names: list[str]) -> None:
    links = coloured((8, [float(7 * index % 11 + 1) for index in range(28)], [(1.0 + i, 9.0 - i) for i in range(8)]))
    renamed: Links = nx.relabel_nodes(
        links, {old: SlotName(new) for old, new in zip(sorted(links), names, strict=True)}
    )
    assert eq3_score(renamed, bisect(renamed, 0.5)) == pytest.approx(eq3_score(links, bisect(links, 0.5)))


def test_two_hundred_machines_of_two_kinds_are_cut_along_the_kinds() -> None:
    count = 200
    links = coloured((count, [1.0] * (count * (count - 1) // 2), []))
    for index, name in enumerate(sorted(links)):
        is_dense = index < count // 2
        links.nodes[name].update(flops=1000.0 if is_dense else 100.0, hbm_gb_per_s=1000.0 if is_dense else 4000.0)
    trainers = bisect(links, 1000 / 1100)
    assert trainers <= frozenset(sorted(links)[: count // 2])


@pytest.mark.parametrize("share", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("count", [1, 2, 3])
def test_somebody_trains_in_the_smallest_fleets_and_with_links_that_carry_nothing(count: int, share: float) -> None:
    links = coloured((count, [0.0] * 3, [(1.0, 1.0)] * count))
    side = bisect(links, share)
    assert side and (side == frozenset(links)) == (share == 1.0 or count == 1)
