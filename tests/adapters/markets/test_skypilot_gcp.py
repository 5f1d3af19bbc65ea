"""Google Cloud's machines are put together from host and accelerator lines."""

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hexcloud.adapters.markets.skypilot_gcp import BUILT_IN, MAX_TWINS, Machine, machines, whole
from hexcloud.adapters.markets.skypilot_lines import Faults, Line

DAY = datetime(2024, 5, 1, tzinfo=UTC)


def host(name: str, price: str = "1", zone: str = "us-a", day: datetime = DAY) -> Line:
    cells = {"InstanceType": name, "vCPUs": "12", "Region": "us", "AvailabilityZone": zone, "Price": price}
    return Line(cells, f"h:{name}", day)


def accelerator(name: str, count: str = "1.0", price: str = "2", zone: str = "us-a", day: datetime = DAY) -> Line:
    cells = {"AcceleratorName": name, "AcceleratorCount": count, "Region": "us", "AvailabilityZone": zone}
    return Line({**cells, "Price": price}, f"a:{name}", day)


def made(*found: Line) -> list[Machine]:
    return sorted(machines(found, Faults()), key=lambda machine: (machine.name, machine.missing))


def test_a_machine_is_its_host_and_its_accelerator() -> None:
    (machine,) = made(accelerator("A100"), host("a2-highgpu-1g"))
    assert (machine.name, machine.accelerator, machine.gpus, machine.missing) == ("a2-highgpu-1g", "A100", 1.0, "")
    assert [line.place for line in machine.lines] == ["h:a2-highgpu-1g", "a:A100"]


def test_a_sum_is_as_old_as_its_oldest_part() -> None:
    later = datetime(2026, 1, 1, tzinfo=UTC)
    (machine,) = made(accelerator("A100", day=later), host("a2-highgpu-1g"))
    assert machine.as_of == DAY


def test_one_accelerator_makes_a_machine_with_each_of_its_hosts() -> None:
    assert [machine.name for machine in made(accelerator("L4"), host("g2-standard-8"), host("g2-standard-4"))] == [
        "g2-standard-4",
        "g2-standard-8",
    ]


@pytest.mark.parametrize(
    ("name", "count", "expected"),
    [("T4", "1.0", "n1-standard-8"), ("V100", "8.0", "n1-standard-96"), ("K80", "8.0", "n1-standard-32")],
)
def test_an_attached_gpu_stands_on_a_sensible_host(name: str, count: str, expected: str) -> None:
    hosts = [host(kind) for kind in ("n1-standard-8", "n1-standard-16", "n1-standard-32", "n1-standard-96")]
    (machine,) = made(accelerator(name, count), *hosts)
    assert machine.name == f"{expected}+{count[0]}x{name}"
    assert machine.lines[0].cell("InstanceType") == expected


def test_what_is_missing_is_said() -> None:
    assert [(one.name, one.missing) for one in made(host("a3-highgpu-8g"))] == [("a3-highgpu-8g", "8 x H100")]
    assert [(one.name, one.missing) for one in made(accelerator("A100", "16.0"))] == [
        ("a2-megagpu-16g", "the host a2-megagpu-16g")
    ]
    assert [(one.name, one.missing) for one in made(accelerator("T4"))] == [
        ("n1-standard-8+1xT4", "the host n1-standard-8")
    ]
    assert [one.missing for one in made(accelerator("GB900"))] == ["the host"]
    elsewhere = made(accelerator("A100"), host("a2-highgpu-1g", zone="us-b"))
    assert {one.missing for one in elsewhere} == {"1 x A100", "the host a2-highgpu-1g"}


def test_a_host_that_carries_no_gpu_is_nobodys_business() -> None:
    assert made(host("n1-standard-8"), host("n2-standard-8")) == []


def test_a_tpu_stands_alone_under_its_own_name() -> None:
    (machine,) = made(accelerator("tpu-v4-8"))
    assert (machine.name, machine.gpus, machine.missing) == ("tpu-v4-8", 1.0, "")
    line = accelerator("tpu-v3-8")
    (with_vm,) = made(line._replace(cells={**line.cells, "InstanceType": "TPU-VM"}))
    assert with_vm.name == "tpu-v3-8"


def test_equal_twins_are_one_and_too_many_different_ones_are_a_fault() -> None:
    assert len(made(*[accelerator("tpu-v4-8")] * 3)) == 1
    faults = Faults()
    flood = [accelerator("A100", price=str(number)) for number in range(1000)]
    found = list(machines([*flood, host("a2-highgpu-1g")], faults))
    assert len(found) == MAX_TWINS and faults.count == 1000 - MAX_TWINS


def test_a_line_with_a_type_is_a_whole_machine() -> None:
    line = Line({"InstanceType": "x", "AcceleratorName": "T4", "AcceleratorCount": "many"}, "p", DAY)
    assert whole(line).name == "x" and whole(line).gpus != whole(line).gpus


@given(
    st.lists(
        st.builds(host, st.sampled_from([*BUILT_IN, "n1-standard-8", ""]), zone=st.sampled_from("ab"))
        | st.builds(
            accelerator,
            st.sampled_from(["A100", "L4", "T4", "tpu-v2-8", "GB900"]),
            st.sampled_from(["1.0", "8", "-1", "nan", "inf", "1e308", "x", ""]),
            zone=st.sampled_from("ab"),
        ),
        max_size=30,
    )
)
def test_any_lines_make_machines_of_one_zone_with_all_parts_or_a_word_on_what_is_missing(found: list[Line]) -> None:
    for machine in machines(found, Faults()):
        assert len({line.cell("AvailabilityZone") for line in machine.lines}) == 1
        needs_two = not machine.accelerator.startswith("tpu")
        assert bool(machine.missing) == (needs_two and len(machine.lines) == 1)
