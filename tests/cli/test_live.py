from rich.console import Console

from hexcloud.adapters.store import SqliteStore
from hexcloud.cli.live import live_view
from hexcloud.cli.picture import take
from hexcloud.domain.fleet import RunId
from hexcloud.domain.run import RunRecord


def shown(store: SqliteStore, run_id: RunId) -> str:
    console = Console(width=160, record=True, file=open("/dev/null", "w"))  # noqa: SIM115
    with console.file:
        console.print(live_view(take(store, run_id)))
    return console.export_text()


def test_the_view_shows_plan_nodes_speed_staleness_money_and_events(store: SqliteStore, run: RunRecord) -> None:
    text = shown(store, run.id)
    for words in (
        "run main-1: running",
        "emulated speed: 1 wall second = 25 run seconds",
        "plan 15.00 USD/h, at the start 20% under only aws; spent 4.25 of 50.00 USD",
        "step 3 of 100, 20000 of 20000 tok/s, reward 0.400, accuracy before RL 0.31",
        "rollout-1",
        "7/8",
        "staleness, mean 0.67, at most 4 allowed",
        "replan",
    ):
        assert words in text


def test_the_view_of_a_run_that_only_began_says_so(store: SqliteStore, run: RunRecord) -> None:
    young = run.model_copy(update={"id": RunId("young")})
    store.save_run(young)
    assert "the coordinator has not answered yet" in shown(store, young.id)
