from collections.abc import Callable
from pathlib import Path

import pytest

from hexcloud.adapters.fleet_file import load_fleet, unpriced
from hexcloud.domain.errors import ConfigError

Write = Callable[[str], Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Return a writer of fleet files."""

    def file(text: str) -> Path:
        path = tmp_path / "fleet.yaml"
        path.write_text(text)
        return path

    return file


FLEET = "- {name: node-a, gpu: H100, gpu_count: 8, network_gb_per_s: 50}\n"


def test_own_machines_are_a_market_with_just_them_in_stock(write: Write) -> None:
    more = "- {name: desk, gpu: RTX4090, gpu_count: 3, network_gb_per_s: 1.25, count: 2, zone: lab, usd_per_hour: 0.4}"
    market = load_fleet(write(FLEET + more)).market
    assert [(offer.instance_type, offer.stock, offer.zone) for offer in market.offers] == [
        ("node-a", 1, "home"),
        ("desk", 2, "lab"),
    ]
    assert market.offers[1].usd_per_hour == 0.4
    assert market.offers[0].usd_per_hour > 0
    assert all(offer.gpu in market.gpus for offer in market.offers)
    assert {price.scope for price in market.network.egress if price.cloud == "own"} == {
        "zone",
        "region",
        "continent",
        "world",
    }


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("- {name: a, gpu: H10, gpu_count: 8, network_gb_per_s: 50}\n", r"\[0\]\.gpu 'H10' is unknown; did you mean"),
        (FLEET + FLEET, r"\[1\]\.name 'node-a' is given twice"),
        ("- {name: a, gpus: H100, gpu_count: 8, network_gb_per_s: 5}\n", r"\[0\]\.gpus is unknown; did you mean gpu\?"),
        ("[]\n", "lists no machine"),
        ("- {name: a/b, gpu: H100, gpu_count: 8, network_gb_per_s: 50}\n", r"\[0\]\.name is 'a/b'"),
        ("- {name: a, gpu: H100, network_gb_per_s: 50}\n", r"\[0\]\.gpu_count is missing"),
    ],
)
def test_a_wrong_fleet_file_names_the_machine_and_the_field(write: Write, text: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        load_fleet(write(text))


LINKED = """
machines:
  - {name: big, gpu: H100, gpu_count: 8, network_gb_per_s: 50, count: 3, usd_per_hour: 9.0}
  - {name: desk, gpu: L40S, gpu_count: 4, network_gb_per_s: 3}
links:
"""


def test_measured_links_are_between_single_machines_and_a_name_means_all_of_it(write: Write) -> None:
    one = "  - {source: 'big#1', target: 'big#3', gb_per_s: 40, latency_ms: 0.1}\n"
    links = load_fleet(write(f"{LINKED}{one}  - {{source: big, target: desk, gb_per_s: 2}}\n")).links
    assert [(link.source, link.target, link.gb_per_s) for link in links] == [
        ("big#1", "big#3", 40.0),
        *((f"big#{number}", "desk#1", 2.0) for number in (1, 2, 3)),
    ]
    assert links[0].latency_ms == 0.1


def test_all_links_inside_one_name_are_meant_but_none_to_itself(write: Write) -> None:
    links = load_fleet(write(LINKED + "  - {source: big, target: big, gb_per_s: 7}\n")).links
    assert len(links) == 6


@pytest.mark.parametrize(
    ("link", "said"),
    [
        (
            "{source: bigg, target: desk, gb_per_s: 2}",
            r"\[0\]\.source 'bigg' is none of the machines; did you mean big",
        ),
        ("{source: big, target: 'big#4', gb_per_s: 2}", r"links\[0\]\.target 'big#4': there are only 3 of big"),
        ("{source: desk, target: 'desk#1', gb_per_s: 2}", "leads from desk to itself"),
        ("{source: big, target: desk, gb_per_s: 0}", r"links\[0\]\.gb_per_s is 0: must be greater than 0"),
        ("{source: big, target: desk}", r"links\[0\]\.gb_per_s is missing"),
        ("{source: big, target: desk, gbps: 1, gb_per_s: 1}", r"links\[0\]\.gbps is unknown"),
    ],
)
def test_a_wrong_link_names_its_place_and_field(write: Write, link: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        load_fleet(write(f"{LINKED}  - {link}\n"))


def test_a_machine_of_a_described_fleet_is_named_with_its_list(write: Write) -> None:
    with pytest.raises(ConfigError, match=r"machines\[0\]\.gpu 'H10' is unknown"):
        load_fleet(write(LINKED.replace("gpu: H100", "gpu: H10").replace("links:", "")))


def test_machines_without_a_price_are_known_by_name(write: Write) -> None:
    assert unpriced(load_fleet(write(LINKED.replace("links:", ""))).market) == ("desk",)
