from collections.abc import Callable
from typing import Any

import pytest

from hexcloud.appraise.known import Known, Seen
from hexcloud.appraise.level import level_fault
from hexcloud.appraise.witness import Witnesses
from hexcloud.domain.market import Outcome
from hexcloud.domain.row import Row

MakeRow = Callable[..., Row]
Vouched = Callable[..., dict[str, Any]]
FAULTS = [("impossible_count", {"gpu_count": 12}), ("missing_part", {"missing": "8 x H100"}), ("far_too_cheap", {})]


def rule(row: Row, known: Known, usd: float = 40.0) -> str | None:
    doubt = level_fault(row, usd, known, Witnesses(known))
    assert doubt is None or doubt.outcome is Outcome.QUARANTINE
    return doubt.rule if doubt else None


def witness(**odd: object) -> Seen:
    said = {"cloud": "aws", "region": "us-east-1", "instance_type": "big", "tenure": "on_demand", "lineage": "other"}
    return Seen.model_validate({**said, "gpu_count": 8, "usd_per_hour": 40.0, **odd})


@pytest.mark.parametrize("count", [3, 6, 12, 17, 256])
def test_gpu_counts_that_no_machine_has_wait(row: MakeRow, known: Known, count: int) -> None:
    assert rule(row(gpu_count=count), known, usd=5.0 * count) == "impossible_count"


def test_a_published_odd_count_is_believed_of_that_machine_only(row: MakeRow, known: Known) -> None:
    assert rule(row(instance_type="trn-6", gpu_count=6), known) is None
    assert rule(row(instance_type="trn-6", gpu_count=12), known) == "impossible_count"
    assert rule(row(gpu_count=6), known) == "impossible_count"


def test_a_host_without_its_gpus_waits_and_says_what_is_missing(row: MakeRow, known: Known) -> None:
    doubt = level_fault(row(missing="8 x A100"), 40.0, known, Witnesses(known))
    assert doubt is not None and doubt.rule == "missing_part"
    assert doubt.reason == "the price leaves out 8 x A100, which is billed too"


def test_a_tenth_of_the_usual_price_waits_and_more_does_not(row: MakeRow, known: Known) -> None:
    assert rule(row(gpu_count=4), known, usd=1.99) == "far_too_cheap"
    assert rule(row(gpu_count=4), known, usd=2.01) is None


def test_eight_gpus_for_the_price_of_one_wait_and_a_bargain_does_not(row: MakeRow, known: Known) -> None:
    assert rule(row(), known, usd=5.0) == "far_too_cheap"
    assert rule(row(), known, usd=6.4) == "far_too_cheap", "thirty per cent over the usual price of one"
    assert rule(row(), known, usd=6.6) is None


@pytest.mark.parametrize("count", [4, 8])
def test_a_price_per_gpu_is_told_by_what_others_list_for_the_machine(row: MakeRow, known: Known, count: int) -> None:
    whole = witness(gpu_count=count, usd_per_hour=10.0 * count, region="eu-west-1")
    told = known.model_copy(update={"seen": (whole,)})
    assert rule(row(gpu_count=count), told, usd=10.0) == "per_gpu_price"
    assert rule(row(gpu_count=count), told, usd=10.0 * count) is None
    assert rule(row(gpu_count=count), told, usd=5.0 * count) is None, "half price is a cut that was really seen"
    assert rule(row(gpu_count=count, tenure="spot"), told, usd=10.0) is None, "spot may cost an eighth"


def test_spot_may_be_far_cheaper(row: MakeRow, known: Known) -> None:
    assert rule(row(tenure="spot"), known, usd=0.41) is None
    assert rule(row(tenure="spot"), known, usd=0.39) == "far_too_cheap"


def test_of_a_gpu_without_a_usual_price_nothing_is_too_cheap(row: MakeRow, known: Known) -> None:
    assert rule(row(gpu="Q9"), known, usd=0.001) is None


@pytest.mark.parametrize(("fault", "odd"), FAULTS)
def test_the_user_or_a_bill_frees_each_fault(
    row: MakeRow, known: Known, vouched: Vouched, fault: str, odd: dict[str, object]
) -> None:
    usd = 1.0 if fault == "far_too_cheap" else 60.0
    bad = row(**odd, price=usd)
    assert rule(bad, known, usd) == fault
    assert rule(bad, known.model_copy(update=vouched(bad, fault)), usd) is None
    assert rule(bad, known.model_copy(update=vouched(bad, "step")), usd) == fault


def test_a_word_for_a_price_frees_no_other_price_and_no_other_source(
    row: MakeRow, known: Known, vouched: Vouched
) -> None:
    trusted = known.model_copy(update=vouched(row(price=3.0), "far_too_cheap", by="bill", usd_per_hour=3.0))
    assert rule(row(price=3.0), trusted, usd=3.0) is None
    assert rule(row(price=2.2), trusted, usd=2.2) is None
    assert rule(row(price=0.01), trusted, usd=0.01) == "far_too_cheap"
    assert rule(row(price=0.02, source="copy"), trusted, usd=0.02) == "far_too_cheap"


@pytest.mark.parametrize(("fault", "odd"), FAULTS)
def test_an_independent_source_frees_each_fault(row: MakeRow, known: Known, fault: str, odd: dict[str, object]) -> None:
    bad = row(**odd)
    usd = 1.0 if fault == "far_too_cheap" else 60.0
    said = witness(gpu_count=bad.gpu_count, usd_per_hour=usd)
    assert rule(bad, known.model_copy(update={"seen": (said,)}), usd) is None
    own = said.model_copy(update={"lineage": "list"})
    assert rule(bad, known.model_copy(update={"seen": (own,)}), usd) == fault


@pytest.mark.parametrize(("fault", "odd"), FAULTS)
def test_two_that_wait_for_each_other_confirm_a_count_and_never_a_price(
    row: MakeRow, known: Known, fault: str, odd: dict[str, object]
) -> None:
    bad = row(**odd)
    usd = 1.0 if fault == "far_too_cheap" else 60.0
    said = witness(gpu_count=bad.gpu_count, usd_per_hour=usd, is_believed=False)
    still = None if fault == "impossible_count" else fault
    assert rule(bad, known.model_copy(update={"seen": (said,)}), usd) == still


def test_a_witness_of_the_whole_machine_does_not_free_a_host_without_its_gpus(row: MakeRow, known: Known) -> None:
    known = known.model_copy(update={"seen": (witness(usd_per_hour=40.0),)})
    assert rule(row(missing="8 x A100"), known, usd=6.0) == "missing_part"


def test_a_word_for_one_fault_leaves_the_other(row: MakeRow, known: Known, vouched: Vouched) -> None:
    bad = row(gpu_count=12, missing="12 x H100", price=60.0)
    known = known.model_copy(update=vouched(bad, "missing_part"))
    assert rule(bad, known, usd=60.0) == "impossible_count"


def test_a_machine_that_nobody_lists_is_held_against_the_clouds_other_machines_with_its_gpu(
    row: MakeRow, known: Known
) -> None:
    """Sold per GPU elsewhere on this cloud for 8 USD, eight cannot cost 8."""
    sister = witness(instance_type="sister", gpu="H100", gpu_count=8, usd_per_hour=64.0)
    lone = witness(instance_type="lone", gpu="H100", gpu_count=1, usd_per_hour=40.0)
    told = known.model_copy(update={"seen": (sister, lone), "usual_usd_per_gpu_hour": {"H100": 4.0}})
    assert rule(row(), told, usd=8.0) == "per_gpu_price"
    assert rule(row(), told, usd=64.0) is None
    assert rule(row(), told, usd=30.0) is None
