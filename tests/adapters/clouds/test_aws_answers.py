"""What AWS's answers mean, and that no answer, however broken, is more than NaN or nothing."""

import json
import math
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hexcloud.adapters.clouds import aws_answers as answers
from hexcloud.adapters.clouds.aws_answers import ListPrice, SpotPrice

P5: dict[str, Any] = {
    "InstanceType": "p5.48xlarge",
    "GpuInfo": {"Gpus": [{"Name": "H100", "Count": 8, "MemoryInfo": {"SizeInMiB": 81920}}]},
    "VCpuInfo": {"DefaultVCpus": 192},
    "MemoryInfo": {"SizeInMiB": 2097152},
    "NetworkInfo": {"NetworkCards": [{"BaselineBandwidthInGbps": 100.0} for _ in range(32)]},
    "SupportedUsageClasses": ["on-demand", "spot"],
}
ZONES = {"us-east-1a": "use1-az4"}


def with_gpu(name: str, mib: int, **more: Any) -> dict[str, Any]:
    gpu = {"Name": name, "Count": 1, "MemoryInfo": {"SizeInMiB": mib}, **more}
    return {**P5, "GpuInfo": {"Gpus": [gpu]}}


def the_machine(answer: object) -> answers.Machine:
    (machine,) = answers.machines([answer]).values()
    return machine


def test_only_zones_of_the_plain_kind_are_sold_at_the_regions_price() -> None:
    kinds = {"use1-az4": "availability-zone", "use1-bos1-az1": "local-zone", "use1-wl1-bos-wlz1": "wavelength-zone"}
    said = [{"ZoneName": zone, "ZoneId": zone, "ZoneType": kind} for zone, kind in kinds.items()]
    assert answers.ordinary_zones([*said, {"ZoneId": "use1-az9"}, {"ZoneType": "availability-zone"}]) == {"use1-az4"}
    assert set(answers.zones(said)) == set(kinds)


def test_a_machine_has_its_gpus_memory_and_network_in_our_units() -> None:
    assert the_machine(P5) == answers.Machine("p5.48xlarge", "H100", 8, 192, 2048, 400, True)


@pytest.mark.parametrize(
    ("name", "mib", "ours"),
    [
        ("A100", 40960, "A100-40GB"),
        ("A100", 81920, "A100-80GB"),
        ("V100", 16384, "V100"),
        ("V100", 32768, "V100-32GB"),
        ("RTX PRO Server 6000", 98304, "RTX-PRO-6000"),
        ("L40S", 45776, "L40S"),
        ("Radeon Pro V520", 8192, "Radeon Pro V520"),
    ],
)
def test_gpus_of_one_name_and_two_sizes_are_told_apart(name: str, mib: int, ours: str) -> None:
    assert the_machine(with_gpu(name, mib)).gpu == ours


def test_a_part_of_a_gpu_counts_as_its_share() -> None:
    assert the_machine(with_gpu("L4", 2861, Count=0, GpuPartitionSize=0.125, LogicalGpuCount=1)).gpu_count == 0.125


def test_trainium_is_an_accelerator_under_its_own_name() -> None:
    neuron = {"NeuronDevices": [{"Name": "Trainium", "Count": 16, "MemoryInfo": {"SizeInMiB": 32768}}]}
    machine = the_machine({"InstanceType": "trn1.32xlarge", "NeuronInfo": neuron})
    assert (machine.gpu, machine.gpu_count) == ("Trainium", 16)


def test_a_machine_without_accelerators_is_left_out() -> None:
    assert answers.machines([{"InstanceType": "m7i.large", "VCpuInfo": {"DefaultVCpus": 2}}]) == {}


@pytest.mark.parametrize(
    ("words", "gb_per_s"), [("25 Gigabit", 3.125), ("4x 100 Gigabit", 50), ("Up to 10 Gigabit", 1.25), ("High", None)]
)
def test_without_a_baseline_the_network_is_read_from_the_words(words: str, gb_per_s: float | None) -> None:
    read = the_machine({**P5, "NetworkInfo": {"NetworkPerformance": words}}).network_gb_per_s
    assert math.isnan(read) if gb_per_s is None else read == gb_per_s


def spot(at: datetime, price: str, zone_name: str = "us-east-1a", product: str = "Linux/UNIX") -> dict[str, Any]:
    said = {"InstanceType": "p5.48xlarge", "AvailabilityZone": zone_name, "ProductDescription": product}
    return {**said, "Timestamp": at, "SpotPrice": price}


def test_of_several_spot_prices_the_newest_counts_in_whatever_order_they_come() -> None:
    old, new = datetime(2026, 1, 1, tzinfo=UTC), datetime(2026, 1, 2, tzinfo=UTC)
    said = [spot(new, "21.5"), spot(old, "30.0")]
    for order in (said, said[::-1]):
        (price,) = answers.newest(answers.spot_prices(order, ZONES))
        assert price == SpotPrice("p5.48xlarge", "use1-az4", "us-east-1a", new.timestamp(), 21.5)


def test_spot_prices_of_windows_are_left_out() -> None:
    assert answers.spot_prices([spot(datetime(2026, 1, 1, tzinfo=UTC), "9", product="Windows")], ZONES) == []


def test_a_zone_that_nobody_named_keeps_its_name() -> None:
    (price,) = answers.spot_prices([spot(datetime(2026, 1, 1, tzinfo=UTC), "9", "us-east-1-bos-1a")], ZONES)
    assert (price.zone, price.zone_name) == ("us-east-1-bos-1a", "us-east-1-bos-1a")


def product(price: dict[str, str], **attributes: str) -> str:
    plain = {"instanceType": "p5.48xlarge", "operatingSystem": "Linux", "tenancy": "Shared", "preInstalledSw": "NA"}
    said = {**plain, "capacitystatus": "Used", **attributes}
    dimension = {"unit": "Hrs", "pricePerUnit": price}
    terms = {"OnDemand": {"T": {"priceDimensions": {"D": dimension}}}}
    return json.dumps({"product": {"attributes": said}, "terms": terms})


def test_the_on_demand_price_keeps_its_currency() -> None:
    assert answers.on_demand_prices([product({"CNY": "172.87"})]) == {"p5.48xlarge": ListPrice(172.87, "CNY")}


@pytest.mark.parametrize(
    "other",
    [
        {"capacitystatus": "AllocatedCapacityReservation"},
        {"operatingSystem": "Windows"},
        {"tenancy": "Dedicated"},
        {"preInstalledSw": "SQL Std"},
        {"marketoption": "CapacityBlock"},
    ],
)
def test_prices_of_other_things_are_left_out(other: dict[str, str]) -> None:
    assert answers.on_demand_prices([product({"USD": "0.5"}, **other)]) == {}


def test_of_two_prices_for_one_machine_the_dearer_counts_and_no_number_never_wins() -> None:
    said = [product({"USD": "55.04"}), product({"USD": "0.0000000000"}), product({"USD": "n/a"})]
    for order in (said, said[::-1], [said[2], said[0], said[1]]):
        assert answers.on_demand_prices(order)["p5.48xlarge"].price == 55.04


def test_limits_of_families_without_accelerators_are_left_out() -> None:
    said = [{"QuotaCode": "L-417A185B", "Value": 384.0}, {"QuotaCode": "L-34B43A08", "Value": 1152.0}]
    assert answers.limits(said) == {"L-417A185B": 384.0}


def test_what_runs_draws_on_spot_and_on_demand_limits_by_the_type_s_vcpus() -> None:
    running = {"InstanceType": "p5.48xlarge", "CpuOptions": {"CoreCount": 1, "ThreadsPerCore": 1}}
    said = [{"Instances": [running, {**running, "InstanceLifecycle": "spot"}, {"InstanceType": "m7i.large"}]}]
    assert list(answers.used(said, answers.machines([P5]))) == [("L-417A185B", 192), ("L-C4BD4855", 192)]


def test_a_placement_score_is_between_one_and_ten() -> None:
    said = [{"AvailabilityZoneId": f"use1-az{score}", "Score": score} for score in (0, 1, 10, 11)]
    assert answers.placement_scores(said) == {"use1-az1": 1, "use1-az10": 10}


FIELDS = """
InstanceType GpuInfo Gpus NeuronInfo NeuronDevices Name Count GpuPartitionSize LogicalGpuCount MemoryInfo SizeInMiB
VCpuInfo DefaultVCpus NetworkInfo NetworkCards BaselineBandwidthInGbps NetworkPerformance SupportedUsageClasses
ZoneName ZoneId Location AvailabilityZone AvailabilityZoneId ProductDescription SpotPrice Timestamp
product attributes instanceType terms OnDemand priceDimensions unit pricePerUnit USD
QuotaCode Value Instances InstanceLifecycle Score
"""
KEYS = st.sampled_from(FIELDS.split())
LEAVES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(max_size=8),
    st.datetimes(),
    st.sampled_from(["p5.48xlarge", "Linux/UNIX", "Hrs", "L-417A185B", "1e999", "nan", "9" * 400, "4x 100 Gigabit"]),
    st.just(10**400),
)
JUNK = st.recursive(
    LEAVES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=5), max_leaves=25
)


@given(st.lists(JUNK, max_size=4))
def test_no_answer_breaks_a_reader(said: list[object]) -> None:
    machines = answers.machines(said)
    answers.zones(said)
    answers.ordinary_zones(said)
    answers.offerings(said)
    answers.newest(answers.spot_prices(said, ZONES))
    answers.on_demand_prices(said)
    answers.limits(said)
    list(answers.used(said, machines))
    answers.placement_scores(said)


@given(st.lists(st.text() | st.binary() | JUNK.map(lambda junk: json.dumps(junk, default=str)), max_size=4))
def test_no_text_in_a_price_list_breaks_the_reader(said: list[object]) -> None:
    answers.on_demand_prices(said)


def test_a_price_list_of_ten_thousand_brackets_is_nothing() -> None:
    assert answers.on_demand_prices(["[" * 10_000]) == {}


@given(st.data())
def test_a_sound_answer_with_one_broken_place_never_breaks_a_reader(data: st.DataObject) -> None:
    """Junk in the right place reaches further into a reader than junk alone."""
    broken = json.loads(json.dumps(P5))
    place: Any = broken
    path = data.draw(st.lists(st.integers(0, 5), min_size=1, max_size=5))
    for step in path[:-1]:
        keys = list(place) if isinstance(place, dict) else list(range(len(place))) if isinstance(place, list) else []
        if not keys or not isinstance(place[keys[step % len(keys)]], dict | list):
            break
        place = place[keys[step % len(keys)]]
    keys = list(place) if isinstance(place, dict) else list(range(len(place)))
    place[keys[path[-1] % len(keys)]] = data.draw(JUNK)
    for machine in answers.machines([broken]).values():
        assert machine.instance_type and machine.gpu
