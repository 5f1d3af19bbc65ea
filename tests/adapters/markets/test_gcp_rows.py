"""Machines and prices of Google Cloud, put together."""

import math
from datetime import UTC, datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hexcloud.adapters.clouds.gcp_answers import MachineType
from hexcloud.adapters.files import load_usual
from hexcloud.adapters.markets.gcp_facts import load_gcp_facts
from hexcloud.adapters.markets.gcp_rows import PriceTag, ZoneListing, content_of, rows_of
from hexcloud.adapters.markets.gcp_skus import Billed, Kind, Price, PriceList
from hexcloud.appraise.gate import gate, offers_of
from hexcloud.appraise.known import Known
from hexcloud.domain.market import Outcome
from hexcloud.domain.offer import Tenure
from hexcloud.domain.row import Row

FACTS = load_gcp_facts()
AT = datetime(2026, 7, 30, tzinfo=UTC)
H100 = Billed(Kind.GPU, "Nvidia H100 80GB GPU")
CORE, MEMORY, DISK = Billed(Kind.CORE, "A3"), Billed(Kind.MEMORY, "A3"), Billed(Kind.DISK)
A3 = MachineType("a3-highgpu-8g", 208, 1872 * 1024, (("nvidia-h100-80gb", 8),), 16)
EIGHT = {"nvidia-h100-80gb": 8}
LIST = {H100: 9.8, CORE: 0.029, MEMORY: 0.0025, DISK: 0.0001}


def tag(on_demand: dict[Billed, float], spot: dict[Billed, float] | None = None, why: str = "") -> PriceTag:
    priced = [(Tenure.ON_DEMAND, on_demand), (Tenure.SPOT, spot or {})]
    prices = {
        ("r", tenure, part): Price(price, f"{part.kind}") for tenure, each in priced for part, price in each.items()
    }
    refusals = {("r", Tenure.ON_DEMAND, H100): why} if why else {}
    return PriceTag("r", PriceList(prices, refusals), FACTS, "USD", AT)


def zone(*machines: MachineType, accelerators: dict[str, int] | None = None, is_up: bool = True) -> ZoneListing:
    return ZoneListing("r-a", is_up, machines, EIGHT if accelerators is None else accelerators)


def one(machine: MachineType, priced: PriceTag) -> Row:
    (row,) = rows_of([zone(machine)], priced)
    return row


def test_a_row_says_all_that_the_planner_needs() -> None:
    row = one(A3, tag(LIST))
    assert row == Row(
        cloud="gcp",
        region="r",
        zone="r-a",
        instance_type="a3-highgpu-8g",
        tenure="on_demand",
        gpu="H100",
        gpu_count=8,
        vcpus=208,
        memory_gib=1872,
        network_gb_per_s=125,
        price=row.price,
        listed=True,
        quota="gcp/r/NVIDIA_H100_GPUS",
        quota_units=8,
        quota_global="gcp/global/GPUS_ALL_REGIONS",
        as_of="2026-07-30T00:00:00+00:00",
        source="gcp",
        place="SKU gpu + core + memory + disk",
    )
    assert row.price == pytest.approx(8 * 9.8 + 208 * 0.029 + 1872 * 0.0025 + 6000 * 0.0001)


@pytest.mark.parametrize(
    ("part", "words"),
    [
        (H100, "8 x nvidia-h100-80gb"),
        (CORE, "208 vCPU of A3"),
        (MEMORY, "1872 GiB memory of A3"),
        (DISK, "6000 GiB local disk"),
    ],
)
def test_a_part_without_a_price_is_named_and_the_gate_lets_no_offer_arise(part: Billed, words: str) -> None:
    row = one(A3, tag({kept: price for kept, price in LIST.items() if kept != part}))
    assert row.missing == words and 0 < row.price < math.inf
    (belief,) = gate([row], Known(usual_usd_per_gpu_hour=load_usual()))
    assert (belief.outcome, belief.rule) == (Outcome.QUARANTINE, "missing_part") and words in belief.reason
    assert offers_of([belief]) == ()


def test_a_machine_with_all_its_prices_becomes_an_offer() -> None:
    (offer,) = offers_of(gate([one(A3, tag(LIST))], Known(usual_usd_per_gpu_hour=load_usual())))
    assert offer.id == "gcp/r/r-a/a3-highgpu-8g/on_demand" and offer.proven


def test_a_part_whose_sku_is_not_understood_says_why() -> None:
    without = {CORE: 0.029, MEMORY: 0.0025, DISK: 0.0001}
    row = one(A3, tag(without, why="SKU X is priced per 'd', a unit we do not know"))
    assert row.missing == "8 x nvidia-h100-80gb (SKU X is priced per 'd', a unit we do not know)"


def test_each_tenure_stands_alone_and_one_without_any_price_has_no_row() -> None:
    rows = rows_of([zone(A3)], tag(LIST, {**LIST, H100: 3.0}))
    assert [row.tenure for row in rows] == ["on_demand", "spot"] and rows[1].price < rows[0].price
    assert rows[1].quota == "gcp/r/PREEMPTIBLE_NVIDIA_H100_GPUS"
    assert [row.tenure for row in rows_of([zone(A3)], tag({DISK: 1.0}, LIST))] == ["spot"]


def test_a_machine_without_any_price_still_says_what_is_missing() -> None:
    row = one(MachineType("a9-newgpu-8g", 8, 1024, (("nvidia-x1", 2),)), tag({}))
    assert (
        row.price == 0 and row.missing == "2 x nvidia-x1, 8 vCPU of A9, 1 GiB memory of A9" and row.gpu == "nvidia-x1"
    )


def test_small_a3_machines_are_sold_as_spot_only() -> None:
    small = MachineType("a3-highgpu-1g", 26, 234 * 1024, (("nvidia-h100-80gb", 1),))
    assert [row.tenure for row in rows_of([zone(small)], tag(LIST, LIST))] == ["spot"]


def test_a_share_of_a_gpu_is_not_counted_as_one() -> None:
    """The API lists g4-standard-6 with one GPU; only its description says that it is an eighth of one."""
    text = "Graphics Optimized: 1/8 NVIDIA RTX PRO 6000 GPU, 6 vCPUs, 22GB RAM"
    slice_of_one = MachineType("g4-standard-6", 6, 22528, (("nvidia-rtx-pro-6000", 1),), 0, text)
    row = one(slice_of_one, tag({Billed(Kind.GPU, "RTX 6000 96GB"): 1.1}))
    assert row.gpu_count == 0.125
    (belief,) = gate([row], Known())
    assert not belief.is_believed


def test_a_slice_price_bills_the_whole_machine() -> None:
    a4 = MachineType("a4-highgpu-8g", 224, 3968 * 1024, (("nvidia-b200", 8),), 32)
    row = one(a4, tag({Billed(Kind.GPU, "A4 Nvidia B200 (1 gpu slice)"): 16.11, DISK: 1.0}))
    assert row.price == pytest.approx(8 * 16.11) and row.missing == ""


def test_gpus_are_attached_where_the_zone_has_them_and_as_many_as_it_allows() -> None:
    hosts = [MachineType(f"n1-standard-{size}", size, size * 3840) for size in (8, 16, 32, 64)]
    prices = tag({Billed(Kind.GPU, "Nvidia Tesla T4 GPU"): 0.35})
    names = {row.instance_type for row in rows_of([zone(*hosts, accelerators={"nvidia-tesla-t4": 2})], prices)}
    assert names == {"n1-standard-8+1xT4", "n1-standard-16+2xT4"}
    assert rows_of([zone(*hosts)], prices) == ()


@pytest.mark.parametrize("listing", [zone(A3, accelerators={"nvidia-l4": 8}), zone(A3, is_up=False)])
def test_what_a_zone_cannot_give_is_not_listed(listing: ZoneListing) -> None:
    (row,) = rows_of([listing], tag(LIST))
    assert row.listed is False


def test_content_is_a_hash_of_what_was_said() -> None:
    row = one(A3, tag(LIST))
    later = row.model_copy(update={"as_of": "2027-01-01"})
    dearer = row.model_copy(update={"price": row.price + 0.01})
    assert content_of([row]) == content_of([later]) != content_of([dearer])


NAMES = st.sampled_from(["a3-highgpu-8g", "n1-standard-8", "g4-standard-6", "a9-x"]) | st.text(max_size=20)
TYPES = st.sampled_from(["nvidia-h100-80gb", "nvidia-b200", "nvidia-tesla-t4"]) | st.text(max_size=20)
SIZES = st.floats() | st.integers(-(2**31), 2**31 - 1)
GPUS = st.lists(st.tuples(TYPES, SIZES), max_size=3).map(tuple)
MACHINES = st.builds(MachineType, NAMES, SIZES, SIZES, GPUS, st.integers(-(2**31), 2**31 - 1), st.text())
ZONES = st.lists(
    st.builds(
        ZoneListing,
        st.text(max_size=10),
        st.booleans(),
        st.lists(MACHINES, max_size=4).map(tuple),
        st.dictionaries(TYPES, st.integers(-5, 20)),
    ),
    max_size=3,
)


@settings(deadline=None)
@given(ZONES, st.dictionaries(st.sampled_from(list(LIST)), st.floats(0.001, 1e6)))
def test_whatever_comes_there_are_rows_and_the_gate_gives_each_an_outcome(
    zones: list[ZoneListing], prices: dict[Billed, float]
) -> None:
    rows = rows_of(zones, tag(prices, prices))
    assert content_of(rows)
    for belief in gate(rows, Known(usual_usd_per_gpu_hour=load_usual())):
        assert belief.outcome in Outcome and (belief.is_believed or belief.reason)
        assert not (belief.is_believed and belief.row.missing)
