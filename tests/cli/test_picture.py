import pytest

from hexcloud.adapters.store import SqliteStore
from hexcloud.cli.picture import emulation_note, progress_line, take
from hexcloud.domain.errors import ConfigError
from hexcloud.domain.fleet import Node, NodeStatus, RunId
from hexcloud.domain.run import RunRecord


def test_figures_are_in_the_users_units(store: SqliteStore, run: RunRecord) -> None:
    picture = take(store, run.id)
    assert picture.target_tokens_per_s == 20_000
    assert picture.tokens_per_s == pytest.approx(250 / 25 * 2000)
    assert picture.usd_per_hour == 15.0
    assert picture.spent_usd == 4.25
    mean, oldest = picture.staleness
    assert (mean, oldest) == pytest.approx((2 / 3, 1))
    assert [row.name for row in picture.baselines] == ["only aws", "only gcp"]


def test_nodes_that_are_gone_are_not_in_the_picture(store: SqliteStore, run: RunRecord) -> None:
    node: Node = take(store, run.id).nodes[0]
    store.save_node(node.model_copy(update={"status": NodeStatus.GONE}))
    assert take(store, run.id).nodes == ()


def test_progress_is_one_line(store: SqliteStore, run: RunRecord) -> None:
    assert progress_line(take(store, run.id)) == (
        "running | step 3/100 | 20000 of 20000 tok/s | reward 0.400 | staleness 0.7 mean, 1 max of 4 | "
        "1 nodes, 15.00 USD/h | spent 4.25 of 50.00 USD"
    )


def test_a_run_that_has_only_begun_has_a_line_too(store: SqliteStore, run: RunRecord) -> None:
    young = run.model_copy(update={"id": RunId("young")})
    store.save_run(young)
    assert progress_line(take(store, young.id)).startswith("running | step 0/100 | 0 of 20000 tok/s")


def test_the_emulated_speed_is_said_for_local_machines_only(run: RunRecord) -> None:
    assert "1 wall second = 25 run seconds" in emulation_note(run)
    real = run.model_copy(update={"spec": run.spec.model_copy(update={"provider": "skypilot"})})
    assert "your accounts are billed" in emulation_note(real)


def test_an_unknown_run_is_an_error(store: SqliteStore) -> None:
    with pytest.raises(ConfigError, match="unknown"):
        take(store, RunId("nobody"))
