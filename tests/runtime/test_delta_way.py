from itertools import combinations

from hypothesis import given
from hypothesis import strategies as st

from hexcloud.domain.delta import WeightsDelta
from hexcloud.domain.messages import WeightsManifest
from hexcloud.runtime.delta_way import WayCosts, cheapest_way, is_full_due

COSTS = WayCosts(link_bytes_per_s=100.0, apply_bytes_per_s=10_000.0)


def version(number: int, digest: str = "") -> WeightsManifest:
    return WeightsManifest(epoch=0, version=number, sha256=digest or str(number), size=1000)


def delta(base: int, result: int, size: int = 50) -> WeightsDelta:
    return WeightsDelta(
        base=version(base), result=version(result), sha256="", size=size, chunk_bytes=1000, chunks=("",)
    )


def test_a_worker_one_behind_takes_the_delta() -> None:
    assert cheapest_way(version(3), version(4), [delta(3, 4)], COSTS) == (delta(3, 4),)


def test_a_worker_that_is_up_to_date_fetches_nothing() -> None:
    assert cheapest_way(version(4), version(4), [delta(3, 4)], COSTS) == ()


def test_a_newcomer_and_one_with_another_file_take_the_whole() -> None:
    assert cheapest_way(None, version(4), [delta(3, 4)], COSTS) is None
    assert cheapest_way(version(3, digest="other"), version(4), [delta(3, 4)], COSTS) is None


def test_a_long_way_back_is_cheaper_whole() -> None:
    chain = [delta(one, one + 1, size=300) for one in range(5)]
    assert cheapest_way(version(2), version(5), chain, COSTS) == tuple(chain[2:])
    assert cheapest_way(version(0), version(5), chain, COSTS) is None


def test_applying_counts_as_well() -> None:
    chain = [delta(one, one + 1, size=1) for one in range(5)]
    slow = WayCosts(link_bytes_per_s=100.0, apply_bytes_per_s=300.0)
    assert cheapest_way(version(0), version(5), chain, slow) is None
    assert cheapest_way(version(3), version(5), chain, slow) == tuple(chain[3:])


def test_a_delta_that_skips_versions_is_taken_where_it_is_cheaper() -> None:
    chain = [delta(0, 1), delta(1, 2), delta(0, 2, size=60)]
    assert cheapest_way(version(0), version(2), chain, COSTS) == (chain[2],)


def test_a_broken_chain_leads_nowhere() -> None:
    assert cheapest_way(version(0), version(3), [delta(0, 1), delta(2, 3)], COSTS) is None


@given(
    drawn=st.lists(st.tuples(st.integers(0, 5), st.integers(1, 3), st.integers(1, 900)), max_size=6),
    have=st.integers(0, 4),
)
def test_no_way_is_cheaper(drawn: list[tuple[int, int, int]], have: int) -> None:
    deltas = [delta(base, base + step, size) for base, step, size in drawn]
    found = cheapest_way(version(have), version(5), deltas, COSTS)
    ways = [
        chain
        for length in range(1, len(deltas) + 1)
        for chain in combinations(sorted(deltas, key=lambda one: one.base.version), length)
        if [one.base.version for one in chain] == [have, *(one.result.version for one in chain[:-1])]
        and chain[-1].result.version == 5
    ]
    cheapest = min((sum(map(COSTS.of, way)) for way in ways), default=float("inf"))
    whole = COSTS.of_whole(version(5))
    assert (found is None) == (cheapest >= whole)
    if found is not None:
        assert abs(sum(map(COSTS.of, found)) - cheapest) < 1e-9


def test_a_whole_version_is_due_after_many_deltas_or_heavy_ones() -> None:
    assert not is_full_due([], 1000, every=3)
    assert not is_full_due([delta(0, 1), delta(1, 2)], 1000, every=3)
    assert is_full_due([delta(0, 1), delta(1, 2), delta(2, 3)], 1000, every=3)
    assert is_full_due([delta(0, 1, size=600), delta(1, 2, size=400)], 1000, every=3)
