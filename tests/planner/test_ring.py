from collections.abc import Sequence
from itertools import combinations, permutations

import networkx as nx
from hypothesis import given, settings
from hypothesis import strategies as st

from hexcloud.domain.plan import SlotName
from hexcloud.planner.links import Links
from hexcloud.planner.ring import best_gang, choose_gang, rank_order


def complete(speeds: list[float], count: int) -> Links:
    links: Links = nx.complete_graph([SlotName(f"n{index:02}") for index in range(count)])
    for (one, other), speed in zip(links.edges, speeds, strict=False):
        links.edges[one, other]["gb_per_s"] = speed
    return links


def slowest_hop(links: Links, ring: tuple[SlotName, ...]) -> float:
    hops = zip(ring, (*ring[1:], ring[0]), strict=True)
    return min(float(links.edges[one, other]["gb_per_s"]) for one, other in hops)


@given(
    st.integers(2, 5).flatmap(lambda n: st.tuples(st.just(n), st.lists(st.floats(0.1, 100), min_size=10, max_size=10)))
)
def test_the_ring_of_a_small_gang_is_the_best_of_all(case: tuple[int, list[float]]) -> None:
    count, speeds = case
    links = complete(speeds, count)
    best = max(slowest_hop(links, ring) for ring in permutations(sorted(links)))
    assert slowest_hop(links, rank_order(links, tuple(sorted(links)))) == best


@given(st.lists(st.floats(0.1, 100), min_size=66, max_size=66))
@settings(max_examples=20)
def test_the_ring_of_a_large_gang_is_no_worse_than_the_order_it_had(speeds: list[float]) -> None:
    links = complete(speeds, 12)
    ring = rank_order(links, tuple(sorted(links)))
    assert sorted(ring) == sorted(links)
    assert slowest_hop(links, ring) >= slowest_hop(links, tuple(sorted(links)))


def named(*numbers: int) -> tuple[SlotName, ...]:
    return tuple(SlotName(f"n{number:02}") for number in numbers)


@given(st.permutations(range(1, 12)))
@settings(max_examples=30, deadline=None)
def test_a_ring_of_fast_links_among_slow_ones_is_found_in_a_large_gang(order: list[int]) -> None:
    links = complete([1.0] * 66, 12)
    ring = named(0, *order)
    for one, other in zip(ring, (*ring[1:], ring[0]), strict=True):
        links.edges[one, other]["gb_per_s"] = 50.0
    assert slowest_hop(links, rank_order(links, named(*range(12)))) == 50.0


def test_a_gang_that_shrinks_leaves_out_the_machine_behind_a_slow_link() -> None:
    links = complete([50.0] * 6, 4)
    for other in (0, 2, 3):
        links.edges[named(1)[0], named(other)[0]]["gb_per_s"] = 2.0
    assert choose_gang(links, named(0, 1, 2), named(3)) == named(0, 2, 3)


def test_the_head_stays_however_slow_its_links_are() -> None:
    links = complete([50.0] * 6, 4)
    for other in (1, 2, 3):
        links.edges[named(0)[0], named(other)[0]]["gb_per_s"] = 2.0
    assert choose_gang(links, named(0, 1, 2), named(3)) == named(0, 1, 2)


def by_definition(links: Links, names: tuple[SlotName, ...], count: int, fixed: int) -> tuple[SlotName, ...]:
    kept = list(names)
    while len(kept) > count:
        kept.remove(max(reversed(kept[fixed:]), key=lambda name: inner(links, [one for one in kept if one != name])))
    return tuple(kept)


def inner(links: Links, names: Sequence[SlotName]) -> tuple[float, float]:
    speeds = [float(links.edges[pair]["gb_per_s"]) for pair in combinations(names, 2)]
    return min(speeds, default=0.0), sum(speeds)


@given(st.integers(2, 9), st.integers(1, 8), st.lists(st.integers(1, 4), min_size=36, max_size=36), st.booleans())
@settings(max_examples=300)
def test_machines_are_left_out_one_by_one_as_the_rule_says(
    count: int, kept: int, speeds: list[int], has_head: bool
) -> None:
    links = complete([float(speed) for speed in speeds], count)
    names = tuple(sorted(links))
    kept = min(kept, count)
    if has_head:
        found = choose_gang(links, names[:kept], names[kept:])
        assert found == by_definition(links, names, kept, 1)
    else:
        assert set(best_gang(links, names, kept)) == set(by_definition(links, names, kept, 0))


def test_a_gang_is_found_among_the_last_machines_and_led_by_the_one_with_the_best_links() -> None:
    links = complete([1.0] * 66, 12)
    for pair in combinations(named(7, 8, 9, 10, 11), 2):
        links.edges[pair]["gb_per_s"] = 45.0
    for other in (7, 8, 10, 11):
        links.edges[named(9)[0], named(other)[0]]["gb_per_s"] = 50.0
    assert best_gang(links, named(*range(12)), 5) == named(9, 7, 8, 10, 11)


def test_of_equal_machines_the_gang_keeps_its_own() -> None:
    assert choose_gang(complete([50.0] * 10, 5), named(2, 3, 4), named(0, 1)) == named(2, 3, 4)
