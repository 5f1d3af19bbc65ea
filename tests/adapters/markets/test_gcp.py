"""Google Cloud's market, read over HTTP from a stand-in that runs as its own process."""

import json
import queue
import random
import re
import threading
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from hexcloud.adapters.clouds.gcp import Patience
from hexcloud.adapters.clouds.gcp_access import OVERRIDE, PROJECT, GcpAccess
from hexcloud.adapters.markets.gcp import GcpMarket
from hexcloud.appraise.gate import gate
from hexcloud.appraise.known import Known
from hexcloud.domain.row import Part, Row
from tests.clouds.gcp_cloud import GcpCloud, gcp_cloud
from tests.clouds.gcp_scenario import SKUS, sku, small_cloud

SOON = Patience(call_s=5.0, retry_s=0.2, first_wait_s=0.01)
AT = datetime(2026, 7, 30, 12, tzinfo=UTC)


def fetch(
    gcp: GcpCloud, patience: Patience = SOON, at: datetime = AT, regions: tuple[str, ...] = ()
) -> dict[str, Part]:
    market = GcpMarket(regions, lambda: at, gcp.access, patience)
    return {part.region: part for part in market.fetch()}


def row(part: Part, machine: str, tenure: str = "on_demand", zone: str = "a") -> Row:
    (found,) = (
        row
        for row in part.rows
        if (row.instance_type, row.tenure, row.zone) == (machine, tenure, f"{part.region}-{zone}")
    )
    return found


def test_each_region_is_a_part_with_its_rows_and_quotas(gcp: GcpCloud) -> None:
    parts = fetch(gcp)
    assert set(parts) == {"us-central1", "europe-west4"}
    assert all(
        part.problem == "" and part.as_of == AT and part.source == part.cloud == "gcp" for part in parts.values()
    )
    left = {quota.key: (quota.left, quota.limit) for quota in parts["us-central1"].quotas}
    assert left == {
        "gcp/global/GPUS_ALL_REGIONS": (12, 16),
        "gcp/us-central1/NVIDIA_L4_GPUS": (7, 8),
        "gcp/us-central1/PREEMPTIBLE_NVIDIA_L4_GPUS": (0, 4),
    }
    assert {row.zone for row in parts["us-central1"].rows} == {"us-central1-a", "us-central1-b"}


@pytest.mark.parametrize(
    ("machine", "tenure", "price"),
    [
        ("g2-standard-4", "on_demand", 0.706826),
        ("g2-standard-4", "spot", 4 * 0.01 + 16 * 0.001 + 0.224),
        ("a2-highgpu-8g", "on_demand", 29.38708),
        ("a2-ultragpu-1g", "on_demand", 5.068798),
        ("n1-standard-8+1xT4", "on_demand", 0.73),
        ("a4-highgpu-8g", "spot", 39.6336),
    ],
)
def test_a_machine_costs_the_sum_of_all_that_bills(gcp: GcpCloud, machine: str, tenure: str, price: float) -> None:
    """Google's own list prices; a2-ultragpu has a local disk, a4's GPU slices bill the whole machine."""
    found = row(fetch(gcp)["us-central1"], machine, tenure)
    assert found.price == pytest.approx(price, rel=1e-5)
    assert found.missing == "" and found.currency == "USD" and found.listed is True


def test_a_machine_whose_gpus_have_no_price_names_them(gcp: GcpCloud) -> None:
    found = row(fetch(gcp)["europe-west4"], "a3-highgpu-8g")
    assert found.missing == "8 x nvidia-h100-80gb"
    assert found.price == pytest.approx(208 * 0.029 + 1872 * 0.0025 + 6000 * 0.088 / 730)


def test_a_machine_is_not_listed_where_its_gpu_is_not(gcp: GcpCloud) -> None:
    parts = fetch(gcp)
    assert row(parts["us-central1"], "g2-standard-4", zone="b").listed is False
    assert row(parts["us-central1"], "g2-standard-4").quota == "gcp/us-central1/NVIDIA_L4_GPUS"


def test_a_tenure_without_prices_has_no_row(gcp: GcpCloud) -> None:
    rows = fetch(gcp)["us-central1"].rows
    assert {row.tenure for row in rows if row.instance_type == "a2-highgpu-8g"} == {"on_demand"}
    assert {row.tenure for row in rows if row.instance_type == "a4-highgpu-8g"} == {"spot"}


def test_only_asked_regions_are_read(gcp: GcpCloud) -> None:
    parts = fetch(gcp, regions=("europe-*", "mars-north1"))
    assert set(parts) == {"europe-west4", "mars-north1"}
    assert "'mars-north1' is not one of the project's" in parts["mars-north1"].problem
    assert gcp.asked("us-central1") == []


def test_long_lists_are_read_to_their_end(gcp: GcpCloud) -> None:
    """The stand-in gives three items a page."""
    assert len(fetch(gcp)["us-central1"].rows) > 3
    assert len(gcp.asked("/skus")) == -(-len(SKUS) // 3)


def test_content_changes_with_what_is_said_and_not_with_when(gcp: GcpCloud) -> None:
    first, again = fetch(gcp), fetch(gcp, at=AT.replace(hour=13))
    assert first["us-central1"].content == again["us-central1"].content != ""
    gcp.change(skus=[*SKUS, sku("L4-NEW", "Nvidia L4 GPU running in Iowa", 0.7, "GPU")])
    changed = fetch(gcp)
    assert changed["us-central1"].content != first["us-central1"].content
    assert changed["europe-west4"].content == first["europe-west4"].content


def test_what_we_run_confirms_no_price(gcp: GcpCloud) -> None:
    """A quota that one more machine of ours draws on is no second look at the price list."""
    first = fetch(gcp)["us-central1"]
    regions = small_cloud()["regions"]
    quotas = [{**quota, "usage": quota.get("usage", 0) + 1} for quota in regions["us-central1"]["quotas"]]
    gcp.change(regions=regions | {"us-central1": regions["us-central1"] | {"quotas": quotas}})
    again = fetch(gcp)["us-central1"]
    assert again.quotas != first.quotas and again.content == first.content


def test_a_whole_answer_is_complete_and_a_failed_one_is_not(gcp: GcpCloud) -> None:
    gcp.change(faults=[{"path": "europe-west4-a/machineTypes", "status": 503}])
    complete = {region: part.complete for region, part in fetch(gcp).items()}
    assert complete == {"us-central1": True, "europe-west4": False}


def test_a_fault_of_our_own_is_told_and_not_taken_for_a_cloud_that_is_late(monkeypatch: pytest.MonkeyPatch) -> None:
    told: queue.Queue[str] = queue.Queue()
    monkeypatch.setattr(threading, "excepthook", lambda thrown: told.put(repr(thrown.exc_value)))

    def broken() -> GcpAccess:
        raise KeyError("of our own")

    (part,) = GcpMarket((), lambda: AT, broken, SOON).fetch()
    assert "a fault of hexcloud" in part.problem and "in time" not in part.problem and part.region == "*"
    assert told.get(timeout=5) == "KeyError('of our own')"


def test_a_short_throttling_is_waited_out(gcp: GcpCloud) -> None:
    gcp.change(
        faults=[{"path": "/machineTypes", "status": 429, "times": 2}, {"path": "/skus", "status": 503, "times": 1}]
    )
    assert all(part.problem == "" and part.rows for part in fetch(gcp, Patience(5.0, 5.0, 0.01)).values())


REGION_FAULTS: dict[str, tuple[dict[str, Any], str]] = {
    "throttled": ({"status": 429}, "throttled by compute.googleapis.com"),
    "throttled as Compute Engine says it": ({"status": 403, "reason": "rateLimitExceeded"}, "throttled"),
    "down": ({"status": 503, "message": "backend error"}, "answered 503: "),
    "no answer": ({"delay_s": 1.5}, "no answer from compute.googleapis.com in time"),
    "forbidden": (
        {
            "status": 403,
            "reason": "forbidden",
            "message": "Required 'compute.machineTypes.list' permission for 'projects/demo'",
        },
        "lacks the permission compute.machineTypes.list",
    ),
    "expired": ({"status": 401, "reason": "authError"}, "gcloud auth application-default login"),
    "no JSON": ({"body": "<html>maintenance</html>"}, "an answer that cannot be read"),
    "half a list": ({"body": '{"items": [{"name": "g2-stan'}, "an answer that cannot be read"),
    "empty": ({"body": "{}"}, "machine types of europe-west4: the answer is empty"),
}


@pytest.mark.parametrize("case", REGION_FAULTS)
def test_one_failing_region_says_why_and_leaves_the_others_alone(gcp: GcpCloud, case: str) -> None:
    fault, words = REGION_FAULTS[case]
    gcp.change(faults=[{"path": "europe-west4-a/machineTypes", **fault}])
    patience = Patience(call_s=0.5, retry_s=0.1, first_wait_s=0.01)
    parts = fetch(gcp, patience)
    failed = parts["europe-west4"]
    assert words in failed.problem and "machine types of europe-west4" in failed.problem
    assert failed.rows == () and failed.quotas == () and failed.content == "" and "\n" not in failed.problem
    assert parts["us-central1"].problem == "" and parts["us-central1"].rows


def test_a_region_whose_limits_are_incomplete_keeps_its_last_good_ones(gcp: GcpCloud) -> None:
    warned = {"quotaStatusWarning": {"code": "MISSING_TYPE_DEPENDENCY", "message": "quota service\nis down"}}
    regions = small_cloud()["regions"]
    gcp.change(regions=regions | {"europe-west4": regions["europe-west4"] | warned})
    problem = fetch(gcp)["europe-west4"].problem
    assert problem == "quotas of europe-west4 are incomplete: quota service is down; refresh again later"


@pytest.mark.parametrize(("path", "late"), [("/skus", "*"), ("europe-west4-a/machineTypes", "europe-west4")])
def test_an_answer_that_only_trickles_in_is_not_waited_for(path: str, late: str, tmp_path: Path) -> None:
    patience = Patience(call_s=5.0, retry_s=0.1, first_wait_s=0.01, region_s=0.5, opening_s=1.0)
    with gcp_cloud(small_cloud() | {"faults": [{"path": path, "drip_s": 0.2}]}, tmp_path) as gcp:
        parts = fetch(gcp, patience)
    assert "was not read in time" in parts[late].problem and parts[late].rows == ()
    assert all(part.problem == "" for region, part in parts.items() if region != late)


def test_a_region_without_gpus_is_no_problem(gcp: GcpCloud) -> None:
    scenario = small_cloud()["regions"] | {"me-west1": {"zones": {"me-west1-a": {"status": "UP"}}}, "me-west2": {}}
    gcp.change(regions=scenario)
    parts = fetch(gcp)
    assert parts["me-west1"].rows == () and parts["me-west1"].problem == ""
    assert "zones of me-west2: the answer is empty" in parts["me-west2"].problem


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        (
            {"path": "/skus", "status": 403, "message": "Cloud Billing API has not been used in project 1 before"},
            "gcloud services enable cloudbilling",
        ),
        ({"path": "/skus", "body": '{"skus": []}'}, "price list: the answer has no price of a machine"),
        ({"path": "/regions", "body": "{}"}, "regions: the answer is empty"),
        ({"path": "/projects/demo$", "status": 403, "message": "no"}, "lacks the permission compute.projects.get"),
        ({"path": "/zones", "status": 404}, "check GOOGLE_CLOUD_PROJECT"),
        ({"path": "/skus", "body": '{"nextPageToken": "0"}'}, "price list: "),
    ],
)
def test_without_the_common_lists_one_part_says_why(gcp: GcpCloud, fault: dict[str, Any], words: str) -> None:
    gcp.change(faults=[fault])
    parts = fetch(gcp)
    assert list(parts) == ["*"]
    assert words in parts["*"].problem and parts["*"].rows == ()


def test_without_a_project_one_part_says_what_to_set(gcp: GcpCloud, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in gcp.environ.items():
        monkeypatch.setenv(name, value)
    assert {part.region for part in GcpMarket((), lambda: AT, patience=SOON).fetch()} == {"us-central1", "europe-west4"}
    monkeypatch.delenv(PROJECT)
    (part,) = GcpMarket((), lambda: AT, patience=SOON).fetch()
    assert part.region == "*" and f"set {PROJECT}" in part.problem


def test_a_secret_in_an_endpoint_is_in_no_problem(gcp: GcpCloud, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(PROJECT, "demo")
    monkeypatch.setenv(f"{OVERRIDE}COMPUTE", "http://user:hunter2@127.0.0.1:9")
    (part,) = GcpMarket((), lambda: AT, patience=SOON).fetch()
    assert f"{OVERRIDE}COMPUTE" in part.problem and "hunter2" not in part.problem


def test_a_reader_who_stops_early_stops_the_asking(gcp: GcpCloud) -> None:
    with closing(GcpMarket((), lambda: AT, gcp.access, SOON).fetch()) as parts:  # type: ignore[type-var]
        assert next(parts).problem == ""


JUNK: tuple[Any, ...] = (None, True, -1, 1e308, "", "x", [], {}, [[]], {"a": {"b": []}}, "\ud800", 2**70)
LISTS = (r"/regions\b", r"/zones(\?|$)", "/demo$", "/skus", "-a/machineTypes", "-a/acceleratorTypes")


def spoilt(answer: Any, chance: random.Random) -> Any:
    """Put junk in one place somewhere below."""
    if isinstance(answer, dict) and answer and chance.random() < 0.85:
        key = chance.choice(list(answer))
        return answer | {key: spoilt(answer[key], chance)}
    if isinstance(answer, list) and answer and chance.random() < 0.85:
        at = chance.randrange(len(answer))
        return [*answer[:at], spoilt(answer[at], chance), *answer[at + 1 :]]
    return chance.choice(JUNK)


@pytest.mark.parametrize("path", LISTS)
def test_whatever_the_cloud_answers_there_are_rows_or_problems(gcp: GcpCloud, path: str) -> None:
    chance = random.Random(path)
    fetch(gcp)
    whole = gcp.read(next(asked for asked in gcp.asked() if re.search(path, asked)))
    for _ in range(12):
        text = json.dumps(spoilt(json.loads(whole), chance))
        body = text[: chance.randrange(len(text))] if chance.random() < 0.2 else text
        gcp.change(faults=[{"path": path, "body": body, "status": chance.choice([200, 200, 200, 400, 500])}])
        parts = fetch(gcp, Patience(5.0, 0.02, 0.01))
        assert parts
        for part in parts.values():
            assert bool(part.problem) != bool(part.rows or part.quotas), body
            gate(part.rows, Known())


def test_parts_survive_the_way_through_json(gcp: GcpCloud) -> None:
    for part in fetch(gcp).values():
        assert Part.model_validate(json.loads(part.model_dump_json())) == part
