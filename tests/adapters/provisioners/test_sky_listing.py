"""What exists is the cloud's own word, whatever was forgotten here."""

from pathlib import Path
from typing import Any

import pytest

from hexcloud.adapters.provisioners.sky_calls import Progress
from hexcloud.adapters.provisioners.sky_listing import SWEEP_S, SkyListing
from hexcloud.adapters.provisioners.sky_records import SkyRecords
from hexcloud.domain.errors import NotYetError, PartListError, RateLimitError
from hexcloud.domain.fleet import Node
from hexcloud.domain.offer import Offer
from tests.adapters.provisioners.renting import RUN, Rented, command


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


def test_a_machine_that_the_cloud_took_is_not_listed_while_skypilot_clears_up_after_it(
    rented: Rented, here: Offer, nodes: tuple[Node, ...]
) -> None:
    rented.launch(nodes[:1], here)
    (machine,) = rented.machines.listed({}, (here.region,))
    rented.machines.end([machine])
    with pytest.raises(NotYetError):
        rented.now.terminate(nodes[0].id)
    assert rented.listed() == ()


def test_of_a_region_of_ours_without_an_answer_nothing_is_known_and_the_others_are_listed(
    moto: Any, rented: Rented, here: Offer, nodes: tuple[Node, ...]
) -> None:
    there = here.model_copy(update={"region": "us-west-2", "zone": "usw2-az1"})
    rented.launch(nodes[:1], here)
    rented.launch(nodes[1:2], there)
    moto.tell(faults=[{"action": "DescribeInstances", "region": "us-east-1", "do": "throttle"}])
    with pytest.raises(PartListError) as part:
        rented.listed()
    assert part.value.listed == (nodes[1].id,)
    assert isinstance(part.value.silent["aws/us-east-1"], RateLimitError) and len(part.value.silent) == 1


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
    with pytest.raises(PartListError):
        rented.listed()
    assert rented.now.billed() == ()


def test_where_all_has_ended_is_asked_for_a_while_yet_and_then_no_more(
    rented: Rented, here: Offer, nodes: tuple[Node, ...]
) -> None:
    records, at_s = SkyRecords(rented.folder / "sky"), [0.0]
    listing = SkyListing(records, {"aws": rented.machines}, lambda: at_s[0])
    rented.launch(nodes[:1], here)
    assert listing.nodes(RUN) == (nodes[0].id,)
    rented.end(nodes[0].id)
    assert listing.nodes(RUN) == ()
    (ended,) = records.all()
    records.change(ended.cluster, region="xx-nowhere-1")  # a region that gives no answer
    at_s[0] = SWEEP_S - 1.0
    with pytest.raises(PartListError):
        listing.nodes(RUN)
    at_s[0] = 2 * SWEEP_S
    assert listing.nodes(RUN) == ()
