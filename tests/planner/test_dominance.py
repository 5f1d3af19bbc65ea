from dataclasses import replace

import numpy as np
import pytest

from hexcloud.domain.market import Quota
from hexcloud.domain.offer import Offer, Tenure
from hexcloud.domain.policy import Policy
from hexcloud.domain.workload import Workload
from hexcloud.planner.dominance import Contest, undominated
from hexcloud.planner.problem import Problem
from hexcloud.planner.useful import Useful
from tests.planner.solving import MakeMarket, MakeOffer, problem_of

TWIN = {"id": "acme/us-one/a/lean8x/on_demand", "instance_type": "lean8x"}


def kept(problem: Problem, samples_per_s: float = 10.0, *, relaxed: bool = False) -> set[str]:
    useful = Useful(problem, samples_per_s, is_eased=True)
    contest = Contest(useful, np.arange(len(useful.table)), np.zeros(len(problem.offers)), relaxed=relaxed)
    return {useful.column(row).offer_id for row in undominated(contest)}


def test_a_dearer_twin_in_the_same_place_is_pointless(
    make_offer: MakeOffer, make_market: MakeMarket, workload: Workload, policy: Policy
) -> None:
    dear = make_offer("lean8", 9.0).model_copy(update=TWIN)
    market = make_market(make_offer("lean8", 5.0), dear)
    assert kept(problem_of(market, workload, policy)) == {"acme/us-one/a/lean8/on_demand"}


def test_where_the_winner_may_run_out_the_loser_stays(
    make_offer: MakeOffer, make_market: MakeMarket, workload: Workload, policy: Policy
) -> None:
    dear = make_offer("lean8", 9.0).model_copy(update=TWIN)
    market = make_market(make_offer("lean8", 5.0, stock=1), dear)
    assert len(kept(problem_of(market, workload, policy), 60.0)) == 2


def test_a_twin_that_draws_on_another_quota_may_be_the_only_one_left(
    make_offer: MakeOffer, make_market: MakeMarket, workload: Workload, policy: Policy
) -> None:
    dear = make_offer("lean8", 9.0).model_copy(update=TWIN)
    cheap = make_offer("lean8", 5.0, quota="here", quota_units=8, quota_global="all")
    for key, rivals in (("elsewhere", 1), ("here", 2), ("all", 2)):
        market = make_market(cheap, dear, quotas=(Quota(key=key, left=64),))
        assert len(kept(problem_of(market, workload, policy))) == rivals, key


def test_another_zone_counts_unless_egress_does_not(
    make_offer: MakeOffer, make_market: MakeMarket, workload: Workload, policy: Policy
) -> None:
    problem = problem_of(make_market(make_offer("lean8", 5.0), make_offer("lean8", 9.0, zone="b")), workload, policy)
    assert len(kept(problem)) == 2
    assert len(kept(problem, relaxed=True)) == 1


def test_a_small_batch_stays_where_slots_count_and_goes_where_they_do_not(
    make_offer: MakeOffer, make_market: MakeMarket, workload: Workload, policy: Policy
) -> None:
    problem = problem_of(make_market(make_offer("lean8", 5.0)), workload, policy)
    exact = Useful(problem, 60.0)
    eased = replace(exact, is_eased=True)
    sizes = [
        len(undominated(Contest(useful, np.arange(len(useful.table)), np.zeros(len(problem.offers)))))
        for useful in (exact, eased)
    ]
    assert sizes[0] > sizes[1] == 1


@pytest.mark.skipif("startup_s" not in Offer.model_fields, reason="offers do not know yet what their pools have taught")
@pytest.mark.parametrize("learned", [{"startup_s": 3000.0}, {"interruptions_per_hour": 2.0}])
def test_a_cheaper_twin_that_starts_slowly_or_is_lost_often_wins_nothing(
    make_offer: MakeOffer,
    make_market: MakeMarket,
    workload: Workload,
    policy: Policy,
    learned: dict[str, float],
) -> None:
    known, spot = make_offer("lean8", 8.99, tenure=Tenure.SPOT).model_copy(update=learned), {"tenure": Tenure.SPOT}
    twin = make_offer("lean8", 9.0, **spot).model_copy(
        update={"id": "acme/us-one/a/lean8x/spot", "instance_type": "lean8x"}
    )
    assert len(kept(problem_of(make_market(known, twin), workload, policy), 60.0)) == 2
