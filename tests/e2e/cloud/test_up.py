"""`hexcloud up --provider skypilot` over two regions: losses, refusals and a price shift, and nothing left behind."""

import sys
import time
from collections import defaultdict
from collections.abc import Mapping
from typing import Any

import pytest

from hexcloud.adapters.provisioners.naming import node_ids
from hexcloud.domain.command import CHECKPOINT_EVERY
from hexcloud.domain.fleet import LIVE, Node, RunId
from tests.e2e.cloud.bed import Bed, Billed
from tests.e2e.cloud.renter import Renter
from tests.e2e.cloud.scenario import CHEAP, DEAR, EAST, EAST_LAST, EAST_TOO, USUAL, WEST, WEST_TOO, spot_prices

pytestmark = [pytest.mark.cloud, pytest.mark.timeout(3000)]
"""The tests of this file are stations of one run, in their order; each leaves it at work, the last one ends it.

Twice its controller is killed, as tests/e2e/test_killed_controller.py does at every point without SkyPilot.
"""

CHECKPOINT_LAG_S = 15.0
"""Until a checkpoint is whole in the store; here a step takes a tenth of a second, so some are trained meanwhile."""
ON_ITS_WAY_S = 5.0
"""That a checkpoint takes into the store of a machine that does nothing else, the mirror's next look included."""
SHIFTED = {**CHEAP, EAST_TOO: 0.49, EAST_LAST: 0.32}
"""Each by less than the 30 % over which a price must be seen twice to be believed."""
POLL_S = 20.0
"""Between two looks of the controller at the cloud, with the time that such a look takes on two busy cores."""
UP_S, NOTICED_S = 900.0, 300.0
"""Far more than an idle machine takes (a node works some 3 minutes after the asking): a busy one is no failure."""
SECOND_S = 1.5
"""EC2 tells launch and end in whole seconds."""


def where(instance: Mapping[str, Any]) -> tuple[str, str]:
    return instance["InstanceType"], instance["Placement"]["AvailabilityZone"]


def test_a_trainer_and_two_nodes_come_up_over_two_regions_and_train(renter: Renter) -> None:
    renter.starts()
    renter.waits("three machines", lambda: len(renter.bed.running()) == 3, UP_S)
    assert sorted(where(one) for one in renter.bed.running()) == sorted([EAST, EAST, WEST])
    assert all(one["InstanceLifecycle"] == "spot" for one in renter.bed.running())
    renter.waits_for_step(20)
    # The last of the three may join when twenty quick steps are over.
    renter.waits("all at work", lambda: len(renter.events("node_ready")) == 3, UP_S)


def test_a_lost_node_is_replaced_elsewhere_though_the_controller_dies_after_the_clouds_yes(renter: Renter) -> None:
    bed, ready = renter.bed, len(renter.events("node_ready"))
    (lost,) = [one for one in renter.nodes("rollout") if where(one) == WEST]
    step, rented = renter.step(), len(bed.scenario.calls(launch="ok"))
    bed.scenario.update(no_capacity=[{"zone": WEST[1]}, {"zone": WEST_TOO[1]}])
    bed.terminate(lost["InstanceId"])
    renter.waits("the loss is noticed", lambda: renter.events("node_lost") != [], NOTICED_S)
    renter.waits("a replacement", lambda: len(bed.scenario.calls(launch="ok")) > rented, UP_S)
    renter.is_killed()
    renter.starts()
    renter.waits_for_step(step + 20)
    renter.waits("it works", lambda: len(renter.events("node_ready")) == ready + 1, UP_S)
    assert len(bed.scenario.calls(launch="ok")) == rented + 1, "it was not rented twice"
    assert len(bed.running()) == 3 and len({slot(one) for one in bed.running()}) == 3
    assert all(where(one)[1] not in (WEST[1], WEST_TOO[1]) for one in bed.running())
    assert WEST[1] in {call["zone"] for call in bed.scenario.calls(launch="refused")}, "its own zone was asked first"
    assert any("InsufficientInstanceCapacity" in event.text for event in renter.events("pool_blocked"))


def test_a_price_shift_moves_a_node_and_the_old_one_works_until_the_new_one_does(renter: Renter) -> None:
    bed = renter.bed
    (dear,) = [one for one in renter.nodes("rollout") if where(one) == EAST_TOO]
    bed.scenario.update(spot_prices=spot_prices(SHIFTED))
    renter.waits("a successor", lambda: EAST_LAST in [where(one) for one in renter.nodes("rollout")], UP_S)
    assert dear["InstanceId"] in ids(bed), "it works until its successor does"
    renter.waits("the old one is gone", lambda: dear["InstanceId"] not in ids(bed), UP_S)
    old, new = (
        node_of(renter, dear),
        node_of(renter, *(one for one in renter.nodes("rollout") if where(one) == EAST_LAST)),
    )
    assert new.ready_at_s is not None and (old.gone_at_s is None or new.ready_at_s < old.gone_at_s)
    assert [row["verdict"] for row in moves(renter, "price")][-1:] == ["moved"]


def test_a_lost_trainer_goes_on_in_another_zone_from_the_store(renter: Renter) -> None:
    bed = renter.bed
    renter.waits_for_step(renter.step() + 2 * CHECKPOINT_EVERY)
    (trainer,) = renter.nodes("trainer")
    bed.scenario.update(no_capacity=[{"zone": zone} for zone in (where(trainer)[1], WEST[1], WEST_TOO[1])])
    killed_wall_s = time.time()
    bed.terminate(trainer["InstanceId"])
    renter.waits("the loss is noticed", lambda: node_of(renter, trainer).status not in LIVE, NOTICED_S)
    renter.waits("another trainer", lambda: renter.nodes("trainer") != [], UP_S)
    (successor,) = renter.nodes("trainer")
    assert where(successor)[1] != where(trainer)[1]
    renter.waits("training goes on", lambda: renter.events("trainer_recovered") != [], UP_S)
    (recovered,) = renter.events("trainer_recovered")
    took_s = recovered.fields["took_s"]
    sys.stdout.write(f"{renter.name}: {recovered.text}\n")
    assert isinstance(took_s, float) and 0.0 < took_s <= time.time() - killed_wall_s


def test_down_leaves_nothing_though_the_controller_dies_once_ends_have_begun(renter: Renter) -> None:
    """The book is EC2's, no sample was too stale, and a lost trainer cost few steps."""
    renter.waits_for_step(renter.step() + 20)
    ended = len(renter.bed.scenario.calls(action="TerminateInstances"))
    renter.begins_down()
    renter.waits("a first end", lambda: len(renter.bed.scenario.calls(action="TerminateInstances")) > ended, UP_S)
    renter.is_killed()
    renter.is_downed()
    report = renter.asks("report")
    assert report["max_staleness"] <= report["eta"] == renter.eta
    assert report["nodes_left"] == 0 and renter.bed.running() == []
    assert_the_book_is_ec2_s(renter, report["run"])
    assert_at_most_are_trained_again(CHECKPOINT_EVERY, renter)


def slot(instance: Mapping[str, Any]) -> str:
    return next(str(tag["Value"]) for tag in instance["Tags"] if tag["Key"] == "hexcloud-slot")


def ids(bed: Bed) -> set[str]:
    return {instance["InstanceId"] for instance in bed.running()}


def node_of(renter: Renter, instance: Mapping[str, Any]) -> Node:
    """Return what the run knows of a machine."""
    run = renter.run()
    assert run is not None
    (node,) = node_ids(run.id, {tag["Key"]: tag["Value"] for tag in instance["Tags"]})
    return renter.records()[node]


def assert_at_most_are_trained_again(steps: int, renter: Renter) -> None:
    """Of what was trained well before EC2 took the trainer, the next one had all but so many steps from the store."""
    trainers = [one for one in renter.bed.billed() if one.tags.get("hexcloud-slot", "").startswith("trainer")]
    taken_wall_s = min(one.launched_at_s + one.seconds for one in trainers)
    rows = renter.steps()
    first = rows[0].epoch
    resumed = min(row.version for row in rows if row.epoch > first) - 1
    in_time = [row for row in rows if row.epoch == first and row.wall_s < taken_wall_s - CHECKPOINT_LAG_S]
    twice = sum(row.version > resumed for row in rows if row.epoch == first)
    sys.stdout.write(f"{renter.name}: training went on after step {resumed}; {twice} steps were trained twice\n")
    assert resumed > 0, "it began anew"
    assert sum(row.version > resumed for row in in_time) <= steps
    # A machine that steps faster makes more steps in the seconds that a checkpoint is on its way.
    meanwhile = sum(row.epoch == first and row.wall_s >= taken_wall_s - ON_ITS_WAY_S for row in rows)
    assert twice <= steps + max(steps, meanwhile), "and no more while the next checkpoint was on its way to the store"


def moves(renter: Renter, trigger: str) -> list[Mapping[str, Any]]:
    return [row for row in renter.asks("report")["replans"] if row["trigger"] == trigger]


def assert_the_book_is_ec2_s(renter: Renter, run: str) -> None:
    """The ledger has the machines that EC2 billed, no others: their seconds, at most one poll more, at their price."""
    book, billed = renter.ledger(), defaultdict(list)
    for machine in renter.bed.billed():
        if machine.tags.get("hexcloud-run") == run:
            (node,) = node_ids(RunId(run), machine.tags)
            billed[node].append(machine)
    assert billed, "EC2 billed nothing"
    assert set(billed) <= set(book), "a machine was forgotten by the ledger"
    never_ran = {node: seconds for node, (seconds, _) in book.items() if node not in billed}
    assert all(seconds <= POLL_S for seconds in never_ran.values()), f"EC2 never ran these: {never_ran}"
    for node, machines in billed.items():
        seconds, usd = book[node]
        least_s = sum(machine.seconds for machine in machines)
        said = f"{node}: EC2 {least_s:.0f} s, ledger {seconds:.0f} s, {usd:.4f} USD"
        assert least_s - SECOND_S <= seconds <= least_s + POLL_S, said
        low, high = min(prices(machines[0])), max(prices(machines[0]))
        assert low * (least_s - SECOND_S) / 3600.0 <= usd <= high * (least_s + POLL_S) / 3600.0, said


def prices(machine: Billed) -> list[float]:
    """Return what its pool asked in the course of a test, USD/h."""
    pool = machine.instance_type, machine.zone
    if not machine.is_spot:
        return [USUAL["on_demand"]["*"][machine.instance_type]]
    return [each.get(pool, DEAR[machine.instance_type]) for each in (CHEAP, SHIFTED)]
