"""`catalogs/gcp.yaml`: what Google's APIs do not say."""

import csv
import re

import pytest

from hexcloud.adapters.files import catalog_root, load_gpus
from hexcloud.adapters.markets.gcp_facts import LEAST_NETWORK_GB_PER_S, load_gcp_facts

FACTS = load_gcp_facts()


@pytest.mark.parametrize(
    ("machine", "words"),
    [
        ("a3-highgpu-8g", "A3"),
        ("a3-megagpu-8g", "A3Plus"),
        ("a3-ultragpu-8g", "A3Ultra"),
        ("a2-ultragpu-1g", "A2"),
        ("n1-standard-8", "N1 Predefined"),
        ("a9-newgpu-8g", "A9"),
        ("", ""),
    ],
)
def test_the_longest_prefix_names_the_series(machine: str, words: str) -> None:
    assert FACTS.series_of(machine) == words


def test_gpus_have_our_names_and_a_stranger_keeps_its_own() -> None:
    assert {accelerator.gpu for accelerator in FACTS.accelerators} <= set(load_gpus())
    stranger = FACTS.accelerator("nvidia-x1")
    assert (stranger.gpu, stranger.quota_key("us-east4", is_spot=True)) == ("nvidia-x1", None)


def test_spot_counts_against_a_quota_of_its_own() -> None:
    h100 = FACTS.accelerator("nvidia-h100-80gb")
    assert h100.quota_key("us-east4", is_spot=False) == "gcp/us-east4/NVIDIA_H100_GPUS"
    assert h100.quota_key("us-east4", is_spot=True) == "gcp/us-east4/PREEMPTIBLE_NVIDIA_H100_GPUS"


def test_no_two_facts_speak_of_the_same_thing() -> None:
    for names in (
        [accelerator.type for accelerator in FACTS.accelerators],
        [spelling for accelerator in FACTS.accelerators for spelling in accelerator.skus],
        [series.prefix for series in FACTS.series],
        [machine.type for machine in FACTS.machines],
        [(one.host, one.accelerator, one.count) for one in FACTS.attachments],
    ):
        assert len(names) == len(set(names))
    assert {one.accelerator for one in FACTS.attachments} <= {accelerator.type for accelerator in FACTS.accelerators}


def test_the_bundled_catalog_has_the_same_networks_quotas_and_names() -> None:
    with (catalog_root() / "offers" / "gcp.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    attached = {f"{one.host}+{one.count}x{FACTS.accelerator(one.accelerator).gpu}": one for one in FACTS.attachments}
    quotas = {(accelerator.gpu, accelerator.quota) for accelerator in FACTS.accelerators}
    assert len(rows) > 700
    for row in rows:
        machine = row["instance_type"]
        fact = attached.get(machine) or FACTS.machine(machine)
        assert fact.network_gb_per_s == float(row["network_gb_per_s"]), machine
        metric = row["quota"].rpartition("/")[2].removeprefix("PREEMPTIBLE_") or None
        assert (row["gpu"], metric) in quotas, machine


def test_a_machine_without_a_fact_gets_the_least_network() -> None:
    assert FACTS.machine("a9-newgpu-8g").network_gb_per_s == LEAST_NETWORK_GB_PER_S
    assert min(machine.network_gb_per_s for machine in FACTS.machines) == LEAST_NETWORK_GB_PER_S


def test_known_and_unknown_gpu_machines_are_asked_for_and_no_others() -> None:
    asked = re.compile(FACTS.asked_names)
    assert all(asked.fullmatch(machine.type) for machine in FACTS.machines)
    assert asked.fullmatch("a9-newgpu-8g") and asked.fullmatch("a4x-highgpu-4g") and asked.fullmatch("n1-standard-8")
    assert not any(map(asked.fullmatch, ("e2-small", "n2-standard-8", "c3-highcpu-8", "n1-highmem-8", "m1-megamem-96")))
