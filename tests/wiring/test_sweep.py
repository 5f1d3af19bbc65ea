"""Which places are asked for machines of every run."""

from hexcloud import wiring
from hexcloud.domain.fleet import THIS_COMPUTER, RunId
from hexcloud.domain.run import RunSpec


def test_this_computer_and_every_account_with_a_library_is_asked() -> None:
    names = [roll.name for roll in wiring.rolls(wiring.open_store())]
    assert names[0] == THIS_COMPUTER
    assert set(names[1:]) == {roll.name for roll in wiring.account_rolls()} <= {"aws", "gcp"}


def test_a_run_is_known_by_the_name_that_its_machines_carry() -> None:
    store = wiring.open_store()
    run = wiring.new_run(RunSpec(), wiring.run_input(RunSpec()), samples_per_s=10.0)
    named = run.model_copy(update={"id": RunId("Main.1")})
    store.save_run(named)
    assert {tag: run.id for tag, run in wiring.runs_by_tag(store).items()} == {"_4dain_2e1": "Main.1"}


def test_the_clock_on_the_wall_tells_the_time() -> None:
    clock = wiring.wall_clock()
    assert clock.now_s() > 1.7e9
