import pytest
from hypothesis import given
from hypothesis import strategies as st

from hexcloud.controller.report import (
    Idle,
    RunFacts,
    achieved_tokens_per_s,
    baselines_event,
    build_report,
    kept_steps,
    read_baselines,
    read_first_price,
)
from hexcloud.domain.event import Event
from hexcloud.domain.fleet import Node, NodeId, NodeStatus, RunId
from hexcloud.domain.ledger import CostKind, LedgerEntry
from hexcloud.domain.messages import RunPhase, RunView
from hexcloud.domain.metrics import StepRow
from hexcloud.domain.model import ModelSpec
from hexcloud.domain.offer import OfferId
from hexcloud.domain.plan import Role, SlotName
from hexcloud.domain.policy import Policy
from hexcloud.domain.report import BaselineRow
from hexcloud.domain.run import RunRecord, RunSpec, RunState
from hexcloud.domain.workload import Workload

MODEL = ModelSpec(
    name="tiny", params=9, layers=1, hidden=8, heads=2, kv_heads=1, head_dim=4, intermediate=16, vocab=21, source="-"
)
RUN = RunRecord(
    id=RunId("main-1"),
    spec=RunSpec(),
    workload=Workload(model=MODEL, prompt_tokens=500, response_tokens=1500, samples_per_step=256),
    policy=Policy(target_samples_per_s=10.0),
    state=RunState.DONE,
    created_wall_s=1000.0,
    clock_origin_run_s=5000.0,
    clock_origin_wall_s=1000.0,
    clock_scale=20.0,
    run_dir="/run",
    output="/run/output",
)


def step(version: int, wall_s: float | None = None, epoch: int = 0, wait_s: float = 0.1, **more: object) -> StepRow:
    facts: dict[str, object] = {
        "epoch": epoch,
        "version": version,
        "wall_s": 1000.0 + version if wall_s is None else wall_s,
        "samples": 256,
        "dropped_samples": 0,
        "reward": version / 100,
        "loss": 0.0,
        "grad_norm": 1.0,
        "clip_fraction": 0.0,
        "prox_kl": 0.0,
        "busy_s": 0.9,
        "wait_s": wait_s,
        "staleness": {1: 256},
        "tokens": 1000,
    }
    return StepRow.model_validate(facts | more)


def event(kind: str, wall_s: float, node: str = "", **fields: str | float) -> Event:
    return Event(at_s=5000 + (wall_s - 1000) * 20, wall_s=wall_s, kind=kind, node=node, text=kind, fields={**fields})


def rollout_node(name: str, status: NodeStatus = NodeStatus.GONE) -> Node:
    return Node(
        id=NodeId(name),
        run_id=RUN.id,
        slot=SlotName(name),
        attempt=0,
        role=Role.ROLLOUT,
        offer_id=OfferId("o"),
        status=status,
        requested_at_s=5000.0,
    )


def test_a_run_that_never_trained_has_a_report() -> None:
    report = build_report(RunFacts(run=RUN))
    assert report.steps == report.max_staleness == report.moves == report.nodes_left == 0
    assert report.achieved_tokens_per_s == report.spent_usd == report.reward_last_fifth == 0.0
    assert report.target_tokens_per_s == 20_000


def test_rewards_are_of_the_first_and_the_last_fifth() -> None:
    report = build_report(RunFacts(run=RUN, steps=tuple(step(version) for version in range(1, 11))))
    assert report.reward_first_fifth == pytest.approx(0.015)
    assert report.reward_last_fifth == pytest.approx(0.095)


def test_achieved_is_samples_over_wall_time_times_the_scale() -> None:
    rows = tuple(step(version, wall_s=1000 + 2 * version) for version in range(1, 11))
    assert build_report(RunFacts(run=RUN, steps=rows)).achieved_tokens_per_s == pytest.approx(128 / 20 * 2000)


def test_the_time_before_a_resumption_is_not_counted_as_slow() -> None:
    resumed = RUN.model_copy(update={"clock_origin_wall_s": 9000.0})
    rows = (step(1), step(2), step(3, wall_s=9001.0), step(4, wall_s=9002.0), step(5, wall_s=9003.0))
    assert achieved_tokens_per_s(resumed, rows) == pytest.approx(256 / 20 * 2000)


def test_staleness_counts_every_trained_sample() -> None:
    rows = (step(1, staleness={0: 256}), step(2, staleness={0: 56, 1: 100, 3: 100}))
    report = build_report(RunFacts(run=RUN, steps=rows))
    assert report.staleness_histogram == {0: 312, 1: 100, 3: 100}
    assert report.max_staleness == 3
    assert report.mean_staleness == pytest.approx(400 / 512)


def test_versions_that_a_recovery_abandoned_are_not_steps() -> None:
    rows = (step(1), step(2), step(3), step(2, epoch=1), step(3, epoch=1), step(4, epoch=1))
    assert [(row.epoch, row.version) for row in kept_steps(rows)] == [(0, 1), (1, 2), (1, 3), (1, 4)]
    assert build_report(RunFacts(run=RUN, steps=rows)).steps == 4


def test_versions_abandoned_by_a_recovery_that_trained_nothing_are_not_steps() -> None:
    view = RunView(
        run_id=RUN.id,
        phase=RunPhase.TRAINING,
        epoch=1,
        version=60,
        steps=400,
        trained_samples=0,
        dropped_samples=0,
        first_step_at_s=None,
        last_step_at_s=None,
        staleness_histogram={},
        reward=0.0,
        samples_per_wall_s=0.0,
        overlap_share=0.0,
        trainer_wait_s=0.0,
        outstanding=0,
        checkpoint_version=60,
    )
    rows = tuple(step(version) for version in range(1, 63))
    assert build_report(RunFacts(run=RUN, steps=rows, view=view)).steps == 60
    assert len(kept_steps(rows, view.model_copy(update={"epoch": 0}))) == 62


@given(st.lists(st.integers(min_value=1, max_value=6), max_size=20))
def test_kept_versions_are_in_order_and_each_is_there_once(versions: list[int]) -> None:
    kept = [row.version for row in kept_steps(step(version) for version in versions)]
    assert kept == sorted(set(kept))
    assert kept[-1:] == versions[-1:]


def test_moves_are_for_money() -> None:
    def replan(trigger: str, verdict: str) -> Event:
        return event(
            "replan", 1100.0, trigger=trigger, verdict=verdict, usd_per_hour_before=9.0, usd_per_hour_after=7.0
        )

    facts = RunFacts(
        run=RUN,
        events=(
            replan("start", "moved"),
            replan("loss+capacity", "moved"),
            replan("schedule", "stayed"),
            replan("loss+price", "moved"),
        ),
    )
    report = build_report(facts)
    assert report.moves == 1
    assert [row.verdict for row in report.replans] == ["moved", "moved", "stayed", "moved"]
    assert report.replans[0].time_h == pytest.approx(2000 / 3600)
    assert report.usd_per_hour == 7.0


def test_a_loss_says_how_long_the_trainer_waited() -> None:
    rows = (
        *(step(v) for v in range(1, 100)),
        step(100, wait_s=3.5, wall_s=1106.5),
        *(step(v, 1006.5 + v) for v in range(101, 200)),
    )
    facts = RunFacts(
        run=RUN,
        steps=rows,
        nodes=(rollout_node("r0"),),
        events=(event("node_lost", 1100.0, "r0", cause="vanished"), event("node_lost", 1150.0, "r1", cause="silent")),
    )
    first, second = build_report(facts).losses
    assert (first.node, first.cause) == ("r0", "vanished")
    assert first.trainer_waited_s == pytest.approx(1105.6 - 1100.0 + 23 * 0.1, abs=0.11), "not only what a step waited"
    assert second.trainer_waited_s == pytest.approx(3.0, abs=0.11)


def test_losses_in_a_standstill_cost_until_the_run_is_stopped() -> None:
    losses = [event("node_lost", at_s, "r0") for at_s in (1010.0, 1041.0, 1130.0, 1150.0)]
    stop = event("run_stopping", 1140.0)
    facts = RunFacts(run=RUN, steps=tuple(step(v) for v in range(1, 11)), events=(*losses[:3], stop, losses[3]))
    assert [row.trainer_waited_s for row in build_report(facts).losses] == pytest.approx([30.0, 30.0, 10.0, 0.0])


def test_idle_time_of_steps_without_a_gap_is_their_wait() -> None:
    idle = Idle(tuple(step(v) for v in range(1, 100)))
    assert idle.median_s() == pytest.approx(30 * 0.1)
    assert idle.waited_s(1020.05) == pytest.approx(30 * 0.1)
    assert Idle(()).waited_s(1000.0) == Idle(()).median_s() == 0.0


def test_a_run_that_stood_still_was_slow() -> None:
    rows = tuple(step(version) for version in range(1, 9))
    stopped = RunFacts(run=RUN, steps=rows, events=(event("run_stopping", 1121.0),))
    expected = pytest.approx(7 * 256 / (120.0 * 20) * 2000)
    assert build_report(stopped).achieved_tokens_per_s == expected
    running = RUN.model_copy(update={"state": RunState.RUNNING})
    bill = LedgerEntry(
        node_id=NodeId("a"), kind=CostKind.COMPUTE, from_s=0.0, to_s=5000.0 + 121 * 20, usd_per_hour=1.0, usd=1.0
    )
    assert build_report(RunFacts(run=running, steps=rows, ledger=(bill,))).achieved_tokens_per_s == expected
    all_steps = RUN.model_copy(update={"spec": RunSpec(steps=8)})
    whole = build_report(RunFacts(run=all_steps, steps=rows, events=stopped.events))
    assert whole.achieved_tokens_per_s == pytest.approx(256 / 20 * 2000)


@pytest.mark.parametrize(("phase", "losses"), [(RunPhase.TRAINING, ["r0", "r1"]), (RunPhase.DONE, ["r0"])])
def test_nodes_that_leave_a_finished_run_are_not_lost(phase: RunPhase, losses: list[str]) -> None:
    view = RunView(
        run_id=RUN.id,
        phase=phase,
        epoch=0,
        version=100,
        steps=100,
        trained_samples=25_600,
        dropped_samples=0,
        first_step_at_s=1000.5,
        last_step_at_s=1100.0,
        staleness_histogram={1: 25_600},
        reward=0.9,
        samples_per_wall_s=256.0,
        overlap_share=0.9,
        trainer_wait_s=10.0,
        outstanding=0,
        checkpoint_version=100,
    )
    facts = RunFacts(
        run=RUN,
        steps=tuple(step(version) for version in range(1, 101)),
        events=(event("node_lost", 1050.0, "r0"), event("node_lost", 1100.5, "r1")),
        view=view,
    )
    assert [row.node for row in build_report(facts).losses] == losses


def test_fleet_changes_are_of_rollout_nodes_while_the_run_trains() -> None:
    facts = RunFacts(
        run=RUN,
        steps=tuple(step(version) for version in range(1, 101)),
        nodes=(rollout_node("r0"), rollout_node("r1", NodeStatus.READY)),
        events=(
            event("node_ready", 1000.5, "r0"),
            event("node_ready", 1030.0, "r1"),
            event("node_ready", 1031.0, "trainer"),
            event("node_draining", 1040.0, "r0"),
            event("node_stopping", 1041.0, "r0"),
            event("node_lost", 1050.0, "r1", cause="vanished"),
            event("node_draining", 1200.0, "r1"),
        ),
    )
    report = build_report(facts)
    assert [(row.kind, row.node) for row in report.fleet_changes] == [
        ("added", "r1"),
        ("removed", "r0"),
        ("lost", "r1"),
    ]
    assert all(row.idle_30s_after == pytest.approx(row.median_idle_30s, abs=0.11) for row in report.fleet_changes)
    assert report.nodes_left == 1


@given(
    st.lists(st.floats(min_value=0.0, max_value=50.0), min_size=1, max_size=30),
    st.floats(min_value=-100, max_value=2000),
)
def test_nobody_waits_longer_than_the_window(waits: list[float], from_s: float) -> None:
    rows, now = [], 0.0
    for version, wait_s in enumerate(waits):
        now += wait_s + 0.5
        rows.append(step(version, wall_s=now, wait_s=wait_s))
    idle = Idle(tuple(rows))
    assert 0.0 <= idle.waited_s(from_s) <= 30.0 + 1e-6
    assert 0.0 <= idle.median_s() <= 30.0 + 1e-6


def test_money_is_the_ledgers() -> None:
    entry = LedgerEntry(node_id=NodeId("a"), kind=CostKind.COMPUTE, from_s=0.0, to_s=3600.0, usd_per_hour=2.0, usd=2.0)
    disk = entry.model_copy(update={"kind": CostKind.DISK, "usd": 0.25})
    report = build_report(RunFacts(run=RUN, ledger=(entry, disk, entry)))
    assert report.spent_usd == 4.25
    assert report.spent_by_kind == {"compute": 4.0, "disk": 0.25}


def test_baselines_come_back_from_their_event() -> None:
    rows = (BaselineRow(name="only aws", usd_per_hour=12.5), BaselineRow(name="only gcp", usd_per_hour=None))
    kept = baselines_event(rows, 9.5, at_s=5000.0, wall_s=1000.0)
    assert (read_baselines(kept), read_first_price(kept)) == (rows, 9.5)
    report = build_report(RunFacts(run=RUN, events=(kept,)))
    assert (report.baselines, report.first_usd_per_hour) == (rows, 9.5)
