"""What exists is the cloud's own word, whatever was forgotten here."""

from pathlib import Path
from typing import Any

import pytest

from hexcloud.adapters.provisioners.sky_calls import Progress
from hexcloud.domain.errors import NotYetError, RateLimitError
from hexcloud.domain.fleet import Node
from hexcloud.domain.offer import Offer
from tests.adapters.provisioners.renting import Rented, command


def test_before_they_are_told_apart_all_of_a_gang_are_listed(
    rented: Rented, here: Offer, gang: tuple[Node, ...]
) -> None:
    rented.sky.launch_polls = 1
    with pytest.raises(NotYetError):
        rented.now.launch(gang, here, tuple(command(node) for node in gang))
    assert rented.listed() == ()
    assert [rented.sky.progress(rented.sky.requests[0].id) for _ in range(2)][-1] is Progress.DONE
    assert set(rented.listed()) == {node.id for node in gang}


def test_a_machine_that_every_store_forgot_is_listed_and_ended(
    rented: Rented, here: Offer, gang: tuple[Node, ...], tmp_path: Path
) -> None:
    rented.launch(gang, here)
    rented.sky.clusters.clear()
    rented.folder = tmp_path / "a new computer"
    rented.restart()
    assert set(rented.listed()) == {node.id for node in gang}
    rented.end(gang[2].id)
    assert rented.listed() == ()


def test_a_region_of_ours_without_an_answer_gives_no_list(
    moto: Any, rented: Rented, here: Offer, nodes: tuple[Node, ...]
) -> None:
    rented.launch(nodes[:1], here)
    moto.tell(faults=[{"action": "DescribeInstances", "region": "us-east-1", "do": "throttle"}])
    with pytest.raises(RateLimitError):
        rented.listed()


def test_a_region_that_is_none_of_ours_may_be_silent(
    moto: Any, rented: Rented, here: Offer, nodes: tuple[Node, ...]
) -> None:
    rented.launch(nodes[:1], here)
    moto.tell(faults=[{"action": "DescribeInstances", "region": "eu-west-1", "do": "error"}])
    assert rented.listed() == (nodes[0].id,)


def test_the_bill_of_a_node_is_told_also_after_its_end(rented: Rented, here: Offer, gang: tuple[Node, ...]) -> None:
    rented.launch(gang, here)
    rented.listed()
    running = [bill for bill in rented.now.billed() if bill.to_s is None]
    assert sorted(bill.node_id for bill in running) == [node.id for node in gang]
    rented.end(gang[0].id)
    assert rented.listed() == ()
    bills = {(bill.node_id, bill.from_s): bill.to_s for bill in rented.now.billed()}
    for bill in running:
        to_s = bills[bill.node_id, bill.from_s]
        assert to_s is not None and 0.0 <= to_s - bill.from_s < 60.0
    assert None not in bills.values()


def test_no_list_tells_no_bills(moto: Any, rented: Rented, here: Offer, nodes: tuple[Node, ...]) -> None:
    rented.launch(nodes[:1], here)
    rented.listed()
    moto.tell(faults=[{"action": "DescribeInstances", "region": "us-east-1", "do": "throttle"}])
    with pytest.raises(RateLimitError):
        rented.listed()
    assert rented.now.billed() == ()
