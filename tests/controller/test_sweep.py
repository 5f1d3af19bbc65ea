"""Machines found by their tags, on accounts that do what a test tells them."""

from collections.abc import Callable

import pytest

from hexcloud.controller.sweep import ASK_S, SILENT_S, end_all, late_bills, survey
from hexcloud.domain.errors import CredentialsError, ProvisionError, RateLimitError
from hexcloud.domain.fleet import Look, Node, NodeId, NodeStatus, Rented
from hexcloud.domain.ledger import CostKind, LedgerEntry
from hexcloud.domain.offer import OfferId
from hexcloud.domain.plan import Role, SlotName
from hexcloud.domain.policy import Policy
from hexcloud.domain.run import RunRecord, RunState
from hexcloud.simulator.clock import VirtualClock
from hexcloud.simulator.simulation import Simulation


def machine(run: str, number: int) -> Rented:
    return Rented(
        run=run, id=f"i-{number}", place="aws/us-east-1/a", instance_type="g5.xlarge", nodes=(f"rollout-{number}.1",)
    )


class Account:
    """A roll whose machines need some calls to end, and which may refuse to answer."""

    def __init__(self, *machines: Rented, calls: int = 1, error: ProvisionError | None = None) -> None:
        self.name = "aws"
        self.left = {one: calls for one in machines}
        self.error = error
        self.asked: list[tuple[Rented, ...]] = []

    def look(self) -> Look:
        if self.error:
            return Look(problems={self.name: str(self.error)})
        return Look(machines=tuple(one for one, calls in self.left.items() if calls > 0))

    def end(self, machines: tuple[Rented, ...]) -> None:
        self.asked.append(machines)
        for one in machines:
            self.left[one] -= 1


def any_machine(_: Rented) -> bool:
    return True


def run(state: RunState) -> RunRecord:
    return Simulation(Policy()).run.model_copy(update={"state": state})


@pytest.mark.parametrize(
    ("state", "is_controlled", "is_forgotten"),
    [
        (RunState.DONE, False, True),
        (RunState.FAILED, False, True),
        (RunState.RUNNING, True, False),
        (RunState.RUNNING, False, False),
    ],
)
def test_only_machines_of_runs_that_have_ended_are_forgotten(
    state: RunState, is_controlled: bool, is_forgotten: bool
) -> None:
    seen = survey([Account(machine("sim", 1))], {"sim": run(state)}, lambda _: is_controlled)
    assert [one.is_forgotten for one in seen.found] == [is_forgotten]


def test_a_run_that_nobody_here_knows_may_be_somebody_elses() -> None:
    seen = survey([Account(machine("other", 1))], {"sim": run(RunState.DONE)}, lambda _: False)
    assert [(one.tag, one.run, one.fate, one.is_forgotten) for one in seen.found] == [
        ("other", None, "unknown here", False)
    ]


def test_an_account_that_does_not_answer_hides_no_other() -> None:
    accounts = [Account(error=CredentialsError("the token has expired")), Account(machine("sim", 1))]
    accounts[0].name = "gcp"
    seen = survey(accounts, {}, lambda _: False)
    assert seen.problems == {"gcp": "the token has expired"}
    assert len(seen.found) == 1


def test_all_are_asked_to_end_at_once_and_waited_for() -> None:
    account, clock = Account(*(machine("sim", number) for number in range(5)), calls=3), VirtualClock()
    began_s = clock.wall_s()
    assert end_all([account], {"sim"}, any_machine, clock, 600.0) == ((), {})
    assert [len(asked) for asked in account.asked] == [5, 5, 5]
    assert clock.wall_s() - began_s == pytest.approx(4 * ASK_S), "and a second look finds none"


def test_machines_of_other_runs_are_left_alone() -> None:
    account = Account(machine("sim", 1), machine("other", 2))
    end_all([account], {"sim"}, any_machine, VirtualClock(), 600.0)
    assert account.look().machines == (machine("other", 2),)


def test_what_does_not_end_in_time_is_said_and_so_is_who_refused() -> None:
    stubborn, silent = Account(machine("sim", 1), calls=10**9), Account(error=RateLimitError("slow down"))
    silent.name = "gcp"
    left, problems = end_all([stubborn, silent], {"sim"}, any_machine, VirtualClock(), 60.0)
    assert left == (machine("sim", 1),)
    assert problems == {"gcp": "slow down"}


def test_a_run_that_goes_on_again_meanwhile_keeps_its_new_machines() -> None:
    clock = VirtualClock()
    account, resumes_s = Account(machine("sim", 1), calls=10), clock.wall_s() + 3 * ASK_S
    left, problems = end_all([account], {"sim"}, lambda _: clock.wall_s() < resumes_s, clock, 600.0)
    assert (left, problems) == ((machine("sim", 1),), {})
    assert len(account.asked) == 3


def test_a_machine_that_shows_at_the_second_look_only_ends_too() -> None:
    clock = VirtualClock()
    account = Account(machine("sim", 1))

    class Late(Account):
        def look(self) -> Look:
            if clock.wall_s() > began_s and machine("sim", 2) not in self.left:
                self.left[machine("sim", 2)] = 1
            return super().look()

    began_s, late = clock.wall_s(), Late(*account.left)
    assert end_all([late], {"sim"}, any_machine, clock, 600.0) == ((), {})
    assert late.asked == [(machine("sim", 1),), (machine("sim", 2),)]


def test_a_place_without_an_answer_is_not_waited_for_for_long_when_nothing_else_is_left() -> None:
    clock = VirtualClock()
    began_s = clock.wall_s()
    left, problems = end_all([Account(error=RateLimitError("slow down"))], {"sim"}, any_machine, clock, 600.0)
    assert (left, problems) == ((), {"aws": "slow down"})
    assert clock.wall_s() - began_s == pytest.approx(SILENT_S)


def test_a_machine_that_outlived_its_books_is_billed_until_now_and_no_other(
    make_node: Callable[[int], Node],
) -> None:
    found = survey([Account(machine("sim", 1))], {"sim": run(RunState.DONE)}, lambda _: False).found[0]
    nodes = (make_node(1), make_node(2))
    known = LedgerEntry(node_id=nodes[0].id, kind=CostKind.COMPUTE, from_s=0.0, to_s=1800.0, usd_per_hour=2.0, usd=1.0)
    (bill,) = late_bills(found, nodes, (known,), 7200.0)
    assert (bill.node_id, bill.from_s, bill.to_s) == (nodes[0].id, 1800.0, 7200.0)
    assert bill.usd == pytest.approx(3.0)
    assert late_bills(found, nodes, (known,), 1000.0) == ()


@pytest.fixture
def make_node() -> Callable[[int], Node]:
    def make(number: int) -> Node:
        return Node(
            id=NodeId(f"sim.rollout-{number}.1"),
            run_id=run(RunState.DONE).id,
            slot=SlotName(f"rollout-{number}"),
            attempt=1,
            role=Role.ROLLOUT,
            offer_id=OfferId("aws/us-east-1/a/g5.xlarge/spot"),
            status=NodeStatus.GONE,
            requested_at_s=0.0,
            usd_per_hour=2.0,
        )

    return make
