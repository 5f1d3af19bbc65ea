import json
from collections.abc import Callable
from typing import Any

from rich.console import Console

from hexcloud.adapters.store import SqliteStore
from hexcloud.cli.report import report_view
from hexcloud.domain.report import BaselineRow, FleetChangeRow, LossRow, ReplanRow, Report


def test_a_report_is_json_for_machines(cli: Callable[..., Any], store: SqliteStore) -> None:
    answer = json.loads(cli("report", "main-1", "--json").out)
    assert set(answer) == set(Report.model_fields)
    assert (answer["spent_usd"], answer["nodes_left"], answer["moves"]) == (4.25, 1, 0)
    assert answer["baselines"] == [
        {"name": "only aws", "usd_per_hour": 20.0, "reason": ""},
        {"name": "only gcp", "usd_per_hour": None, "reason": ""},
    ]


def test_a_report_is_a_page_for_readers(cli: Callable[..., Any], store: SqliteStore) -> None:
    said = cli("report")
    assert said.code == 0
    for words in (
        "Report of run main-1 (running)",
        "accuracy before -> after RL",
        "0.310 -> ?",
        "Re-plans",
        "only aws",
    ):
        assert words in said.out
    assert "only gcp" not in said.out


def test_every_section_is_shown_when_there_is_something_to_show() -> None:
    report = Report(
        run="r",
        state="done",
        steps=480,
        eta=4,
        max_staleness=3,
        mean_staleness=1.5,
        staleness_histogram={1: 300, 2: 200, 3: 12},
        dropped_samples=8,
        accuracy_before=0.3,
        accuracy_after=0.8,
        reward_first_fifth=0.4,
        reward_last_fifth=0.7,
        target_tokens_per_s=20_000,
        achieved_tokens_per_s=19_500,
        clock_scale=26.2,
        overlap_share=0.93,
        spent_usd=41.5,
        spent_by_kind={"compute": 41.0, "disk": 0.5},
        nodes_left=0,
        replans=(
            ReplanRow(
                time_h=1.0,
                trigger="price",
                verdict="moved",
                reason="saves",
                usd_per_hour_before=14,
                usd_per_hour_after=12,
            ),
        ),
        moves=1,
        losses=(LossRow(node="rollout-1", time_h=2.2, cause="vanished", trainer_waited_s=1.5),),
        fleet_changes=(
            FleetChangeRow(kind="lost", node="rollout-1", time_h=2.2, idle_30s_after=1.5, median_idle_30s=1.2),
        ),
        baselines=(BaselineRow(name="only H100", usd_per_hour=19.0),),
        usd_per_hour=12.0,
        output="/out",
    )
    console = Console(width=140)
    with console.capture() as captured:
        console.print(report_view(report))
    text = captured.get()
    for words in (
        "19500 trained tok/s (98% of the target 20000)",
        "mean 1.50, max 3, allowed 4",
        "41.50 USD (compute 41.00, disk 0.50)",
        "1 in 1 re-plans",
        "Changes of the rollout fleet",
        "Losses",
        "14.00 -> 12.00",
        "only H100",
    ):
        assert words in text
