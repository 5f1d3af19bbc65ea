import json
from collections.abc import Callable
from typing import Any


def test_offers_are_listed_cheapest_gpu_first(cli: Callable[..., Any]) -> None:
    offers = json.loads(cli("catalog", "list", "--cloud", "aws", "--gpu", "h1*", "--spot", "--json").out)
    prices = [offer["usd_per_hour"] / offer["gpu_count"] for offer in offers]
    assert prices == sorted(prices)
    assert {(offer["cloud"], offer["tenure"]) for offer in offers} == {("aws", "spot")}


def test_a_reader_sees_a_table(cli: Callable[..., Any]) -> None:
    said = cli("catalog", "list", "--cloud", "lambda")
    assert said.code == 0
    assert "USD/GPU-h" in said.out
    assert "lambda/" in said.out


def test_rows_that_were_not_believed_are_listed_with_their_reason(cli: Callable[..., Any]) -> None:
    findings = json.loads(cli("catalog", "list", "--findings", "--json").out)
    assert all(finding["reason"] for finding in findings)
    assert len(cli("catalog", "list", "--findings").out.splitlines()) >= len(findings)


def test_gpus_models_and_offers_are_shown_by_name(cli: Callable[..., Any]) -> None:
    assert json.loads(cli("catalog", "show", "h100", "--json").out)["hbm_gib"] > 0
    assert json.loads(cli("catalog", "show", "Qwen2.5-7B", "--json").out)["layers"] == 28
    assert "bf16_tflops" in cli("catalog", "show", "H100").out
    offers = json.loads(cli("catalog", "show", "p5.48xlarge", "--json").out)
    assert {offer["instance_type"] for offer in offers} == {"p5.48xlarge"}
    assert "aws/" in cli("catalog", "show", "p5.48xlarge").out


def test_an_unknown_name_is_wrong_input(cli: Callable[..., Any]) -> None:
    said = cli("catalog", "show", "no-such-thing")
    assert said.code == 2
    assert "no-such-thing" in said.err


def test_a_gpu_that_nothing_has_is_said_and_not_shown_as_an_empty_table(cli: Callable[..., Any]) -> None:
    said = cli("catalog", "list", "--gpu", "H10")
    assert (said.code, said.out) == (0, "")
    assert "no offer matches; did you mean H100?" in said.err
    said = cli("catalog", "list", "--gpu", "nonsense", "--json")
    assert (said.code, said.out) == (0, "[]\n")
    assert "no offer matches" in said.err
