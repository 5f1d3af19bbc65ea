"""A plan's input puts a run's wishes, the catalog and the adapters together; nothing is rented by it."""

from pathlib import Path

import pytest

from hexcloud import wiring
from hexcloud.adapters.provisioners.naming import MAX_GANG
from hexcloud.domain.errors import ConfigError
from hexcloud.domain.fleet import FleetState
from hexcloud.domain.plan import Role
from hexcloud.domain.policy import Objective, ReplanSchedule
from hexcloud.domain.run import RunSpec
from hexcloud.domain.training import Precision, TrainingSpec
from hexcloud.planner.plan import make_plan
from hexcloud.planner.screen import screen
from hexcloud.wiring.provider import SKYPILOT


def test_a_run_without_target_or_cap_gets_the_default_target() -> None:
    given = wiring.snapshot_input(RunSpec())
    assert given.policy.objective is Objective.MIN_COST
    assert given.policy.target_samples_per_s == pytest.approx(20_000 / given.workload.tokens_per_sample)


@pytest.mark.parametrize(("precision", "size"), [(None, 2), (Precision.BF16, 2), (Precision.FP32, 4)])
def test_a_plan_counts_the_bytes_that_are_published(precision: Precision | None, size: int) -> None:
    workload = wiring.workload_of(RunSpec(training=TrainingSpec(precision=precision)))
    assert workload.version_bytes == size * workload.model.params


def test_a_cap_alone_asks_for_the_most_throughput() -> None:
    given = wiring.snapshot_input(RunSpec(max_usd_per_hour=25))
    assert given.policy.objective is Objective.MAX_THROUGHPUT
    assert given.policy.target_samples_per_s is None


def test_a_policys_own_target_counts_before_the_default_and_after_the_runs(tmp_path: Path) -> None:
    policy = tmp_path / "mine.yaml"
    policy.write_text("target_samples_per_s: 7\n")
    assert wiring.snapshot_input(RunSpec(policy=str(policy))).policy.target_samples_per_s == 7
    own = RunSpec(policy=str(policy), target="3 samples/s")
    assert wiring.snapshot_input(own).policy.target_samples_per_s == 3


def test_the_runs_own_fields_win_over_the_policys() -> None:
    spec = RunSpec(policy="budget_cap", budget=50, cloud=("aws",), replan=ReplanSchedule(every="5m"))
    policy = wiring.snapshot_input(spec).policy
    assert (policy.budget_usd, policy.clouds, policy.replan.every) == (50, ("aws",), "5m")


def test_clouds_that_are_left_out_are_refused_by_name_and_not_hidden() -> None:
    given = wiring.snapshot_input(RunSpec(cloud=("verda", "nebius")))
    screened = screen(given.market, given.workload, given.policy, FleetState())
    assert {offer.cloud for offer in screened.offers} <= {"verda", "nebius"}
    assert {rejection.offer_id.split("/")[0] for rejection in screened.rejections if rejection.rule == "cloud"} >= {
        "aws"
    }


def test_a_runs_market_has_only_the_clouds_asked_for() -> None:
    offers = wiring.run_input(RunSpec(cloud=("verda", "nebius"), trace=None)).market.offers
    assert {offer.cloud for offer in offers} == {"verda", "nebius"}


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        (RunSpec(model="Qwen2.5-7C"), "did you mean"),
        (RunSpec(batch=100, group=8), "multiple of group"),
        (RunSpec(task="sort_digit"), "task: 'sort_digit' is unknown; did you mean sort_digits"),
        (RunSpec(cloud=("asw",)), "did you mean"),
        (RunSpec(target="fast"), "not a throughput"),
        (RunSpec(policy="cheepest"), "did you mean"),
        (RunSpec(provider="moon"), "rents from: local"),
    ],
)
def test_what_cannot_be_wired_is_refused_in_words(spec: RunSpec, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        wiring.run_input(spec)


def test_the_users_own_machines_are_a_market_of_their_own(tmp_path: Path) -> None:
    fleet = tmp_path / "fleet.yaml"
    fleet.write_text(
        "- {name: big, gpu: H100, gpu_count: 8, network_gb_per_s: 50, zone: a}\n"
        "- {name: small, gpu: L40S, gpu_count: 4, network_gb_per_s: 10, zone: a}\n"
    )
    given = wiring.fleet_input(RunSpec(target="20k"), fleet)
    assert len(given.market.offers) == 2
    assert given.policy.target_samples_per_s is None, "a fleet does what it can"


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"trace": "nowhere.csv"}, "cannot be read"),
        ({"trace": "clam"}, "did you mean calm"),
        ({"replan": ReplanSchedule(every="5 parsecs")}, "5 parsecs"),
        ({"replan": ReplanSchedule(cron="* *")}, "five"),
        ({"output": "/proc/nowhere"}, "cannot be written"),
    ],
)
def test_what_a_run_needs_later_is_checked_before_it_is_stored(fields: dict[str, object], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        wiring.run_input(RunSpec.model_validate(fields))


def test_an_output_that_can_be_written_is_made_and_left_empty(tmp_path: Path) -> None:
    folder = tmp_path / "deep" / "model"
    wiring.run_input(RunSpec(output=str(folder)))
    assert list(folder.iterdir()) == []


def test_a_runs_first_plan_is_made_on_the_market_that_the_run_will_see(dear_aws: str) -> None:
    spec = RunSpec(cloud=("aws",), trace=dear_aws)
    given = wiring.run_input(spec)
    run = wiring.begun_now(wiring.new_run(spec, given, samples_per_s=10.0))
    met = wiring.market_source(run).market(wiring.clock(run).now_s())
    assert [(offer.id, offer.usd_per_hour) for offer in given.market.offers] == [
        (offer.id, offer.usd_per_hour) for offer in met.offers
    ]
    listed = {offer.id: offer.usd_per_hour for offer in wiring.snapshot_input(spec).market.offers}
    moved = [offer for offer in given.market.offers if offer.usd_per_hour != listed[offer.id]]
    assert len(moved) > 100, "and that is not the market as it is listed"
    assert all(offer.usd_per_hour == pytest.approx(1.2 * listed[offer.id], rel=1e-3) for offer in moved)


def test_a_run_that_wants_much_is_planned_with_a_gang_of_several_machines() -> None:
    given = wiring.run_input(RunSpec(target="80k", trace=None))
    plan = make_plan(given.market, given.workload, given.policy, FleetState()).plan
    assert len(plan.placement.role(Role.TRAINER)) > 1


def test_a_gang_is_planned_no_larger_than_who_rents_it_can(tmp_path: Path) -> None:
    policy = tmp_path / "large.yaml"
    policy.write_text("max_gang_nodes: 64\n")
    spec = RunSpec(policy=str(policy), trace=None)
    rented = spec.model_copy(update={"provider": SKYPILOT})
    assert wiring.snapshot_input(spec).policy.max_gang_nodes == 64
    assert wiring.snapshot_input(rented).policy.max_gang_nodes == MAX_GANG


def test_a_thrifty_run_has_a_budget_and_its_samples_and_no_target() -> None:
    given = wiring.snapshot_input(RunSpec(policy="thrifty", budget=300, steps=100, batch=64))
    assert given.policy.objective is Objective.BUDGET_RUN
    assert (given.policy.budget_usd, given.policy.run_samples) == (300, 6400)
    assert given.policy.target_samples_per_s is None
    with pytest.raises(ConfigError, match="--budget USD"):
        wiring.snapshot_input(RunSpec(policy="thrifty"))


def test_plans_count_what_the_trainer_does() -> None:
    """What the user leaves open is what a rented trainer is told."""
    job = wiring.workload_of(RunSpec())
    assert (job.minibatches, job.prox_share, job.keeps_reference) == (4, 0.75, False)
    assert (job.activation_recompute, job.micro_batch_tokens, job.trainer_ranks) == (True, None, None)
    settings = {"minibatches": 2, "activation_checkpointing": False, "micro_batch_tokens": 4096, "ranks": 4}
    job = wiring.workload_of(RunSpec.model_validate({"training": {**settings, "kl_weight": 0.1}}))
    assert (job.minibatches, job.prox_share, job.keeps_reference) == (2, 0.5, True)
    assert (job.activation_recompute, job.micro_batch_tokens, job.trainer_ranks) == (False, 4096, 4)
    assert wiring.workload_of(RunSpec.model_validate({"training": {"loss": "a3po"}})).extra_forwards == 0.0
