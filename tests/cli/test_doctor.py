"""`hexcloud catalog doctor` says what is not believed, by reason, and never fails for it."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hexcloud import appraise
from hexcloud.cli.examine import examine
from hexcloud.cli.rules import RULES
from hexcloud.domain.market import Outcome

HEADER = "InstanceType,AcceleratorName,AcceleratorCount,vCPUs,MemoryGiB,GpuInfo,Price,SpotPrice,Region,AvailabilityZone"


@pytest.fixture
def prices(tmp_path: Path) -> Path:
    """A good machine in two markets, one at 0 USD, one with 12 GPUs, one with a floor price, one without any price."""
    path = tmp_path / "aws.csv"
    path.write_text(
        f"{HEADER}\n"
        "p4d.24xlarge,A100,8,96,1152,,21.96,9.5,us-east-1,use1-az1\n"
        "p5.48xlarge,H100,8,192,2048,,0.0,,us-east-1,use1-az1\n"
        "p5.96xlarge,H100,12,192,2048,,98.3,,us-east-1,use1-az1\n"
        "g6.xlarge,L4,1,4,16,,0.8,0.08,us-east-1,use1-az1\n"
        "g6.2xlarge,L4,1,8,32,,,,us-east-1,use1-az1\n"
        "g6.2xlarge,L4\n"
    )
    return path


def test_findings_are_counted_by_reason_with_examples_and_are_no_failure(cli: Callable[..., Any], prices: Path) -> None:
    said = cli("catalog", "doctor", str(prices))
    assert said.code == 0
    assert said.out.startswith("7 rows: 3 accept, 1 flag, 1 quarantine, 2 reject\n")
    rules = re.findall(r"^(\w+ \w+): (\d+) \(aws \d+\)$", said.out, re.MULTILINE)
    assert rules == [
        ("reject no_price", "1"),
        ("reject price_not_positive", "1"),
        ("quarantine impossible_count", "1"),
        ("flag floor_price", "1"),
    ]
    assert "aws.csv:3: aws/us-east-1/use1-az1/p5.48xlarge/on_demand: price 0 is not a positive number" in said.out
    assert "Freed by: A launch there that succeeds" in said.out
    assert "not read: aws.csv:7: 2 cells, the header has 10" in said.out


def test_json_is_for_machines(cli: Callable[..., Any], prices: Path) -> None:
    said = cli("catalog", "doctor", str(prices), "--json", "--examples", "1")
    found = json.loads(said.out)
    assert said.code == 0 and said.err == ""
    assert found["rows"] == 7
    assert found["outcomes"] == {"accept": 3, "flag": 1, "quarantine": 1, "reject": 2}
    rules = {one["rule"]: one for one in found["rules"]}
    assert {rule: one["count"] for rule, one in rules.items()} == {
        "no_price": 1,
        "price_not_positive": 1,
        "impossible_count": 1,
        "floor_price": 1,
    }
    assert rules["no_price"]["examples"][0]["price"] is None
    assert rules["impossible_count"]["examples"] == [
        {
            "place": "aws.csv:4",
            "offer": "aws/us-east-1/use1-az1/p5.96xlarge/on_demand",
            "gpu": "H100",
            "gpu_count": 12.0,
            "price": 98.3,
            "currency": "USD",
            "reason": "12 GPUs; machines have 1, 2, 4, 8, 16",
        }
    ]
    assert found["unread"] == ["aws.csv:7: 2 cells, the header has 10"]


def test_no_examples_when_none_are_wanted(cli: Callable[..., Any], prices: Path) -> None:
    assert "  - " not in cli("catalog", "doctor", str(prices), "--examples", "0").out


def test_the_same_question_has_the_same_answer(cli: Callable[..., Any], prices: Path) -> None:
    assert cli("catalog", "doctor", str(prices)) == cli("catalog", "doctor", str(prices))


def test_a_place_with_nothing_to_judge_is_an_error(cli: Callable[..., Any], tmp_path: Path) -> None:
    (tmp_path / "notes.csv").write_text("a,b\n1,2\n")
    for where, word in (
        (str(tmp_path / "gone"), "no such file or folder"),
        ("bundel", "did you mean bundle?"),
        (str(tmp_path), "column InstanceType is missing"),
        (str(tmp_path / "notes.csv"), "column InstanceType is missing"),
    ):
        said = cli("catalog", "doctor", where)
        assert said.code == 2 and word in said.err and said.out == "", where


def cure(cli: Callable[..., Any], where: str, rule: str) -> str:
    rules = json.loads(cli("catalog", "doctor", where, "--json").out)["rules"]
    return next(str(one["freed_by"]) for one in rules if one["rule"] == rule)


def test_who_frees_a_row_of_the_bundle_is_a_refresh_because_trust_does_not_know_it(
    cli: Callable[..., Any], tmp_path: Path
) -> None:
    doubted = next(one for one in examine("bundle").beliefs if one.outcome is Outcome.QUARANTINE)
    offer = doubted.row
    assert cure(cli, "bundle", doubted.rule).startswith("A refresh that brings a price of it")
    assert cli("catalog", "trust", offer.id).code == 2
    assert cli("catalog", "show", offer.id).code == 2
    folder = tmp_path / "sky" / offer.cloud
    folder.mkdir(parents=True)
    facts = f"{offer.instance_type},{offer.gpu},{offer.gpu_count:.0f},{offer.vcpus:g},{offer.memory_gib:g}"
    (folder / "vms.csv").write_text(f"{HEADER}\n{facts},,{20 * offer.price},,{offer.region},\n")
    assert cli("catalog", "refresh", "--from", str(tmp_path / "sky")).code == 0
    assert cli("catalog", "show", offer.id).code == 0


def test_trust_is_named_as_a_cure_where_it_works(cli: Callable[..., Any], prices: Path, tmp_path: Path) -> None:
    odd = "aws/us-east-1/use1-az1/p5.96xlarge/on_demand"
    assert cure(cli, str(prices), "impossible_count").endswith("once `hexcloud catalog refresh` has read this list.")
    assert cli("catalog", "trust", odd).code == 2
    (tmp_path / "sky" / "aws").mkdir(parents=True)
    prices.rename(tmp_path / "sky" / "aws" / "vms.csv")
    cli("catalog", "refresh", "--from", str(tmp_path / "sky"))
    assert cure(cli, str(tmp_path / "sky"), "impossible_count").endswith("or `hexcloud catalog trust`.")
    assert cli("catalog", "trust", odd).code == 0


def test_every_rule_of_the_gate_is_explained() -> None:
    sources = [path.read_text() for path in Path(appraise.__path__[0]).glob("*.py")]
    rules = {rule for text in sources for rule in re.findall(r'(?:reject|quarantine|flag)\(\s*"(\w+)"', text)}
    assert len(rules) > 12 and rules <= set(RULES)
    assert all(means and freed_by for means, freed_by in RULES.values())
