"""A plan's input puts a run's wishes, the catalog and the adapters together; nothing is rented by it."""

from pathlib import Path

import pytest

from hexcloud import wiring
from hexcloud.domain.errors import ConfigError
from hexcloud.domain.fleet import FleetState
from hexcloud.domain.policy import Objective, ReplanSchedule
from hexcloud.domain.run import RunSpec
from hexcloud.planner.screen import screen


def test_a_run_without_target_or_cap_gets_the_default_target() -> None:
    given = wiring.snapshot_input(RunSpec())
    assert given.policy.objective is Objective.MIN_COST
    assert given.policy.target_samples_per_s == pytest.approx(20_000 / given.workload.tokens_per_sample)


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


def test_a_thrifty_run_has_a_budget_and_its_samples_and_no_target() -> None:
    given = wiring.snapshot_input(RunSpec(policy="thrifty", budget=300, steps=100, batch=64))
    assert given.policy.objective is Objective.BUDGET_RUN
    assert (given.policy.budget_usd, given.policy.run_samples) == (300, 6400)
    assert given.policy.target_samples_per_s is None
    with pytest.raises(ConfigError, match="--budget USD"):
        wiring.snapshot_input(RunSpec(policy="thrifty"))


def test_plans_count_with_what_the_user_says_of_the_trainer() -> None:
    settings = {"activation_checkpointing": False, "micro_batch_tokens": 4096, "loss": "a3po"}
    job = wiring.workload_of(RunSpec.model_validate({"training": settings}))
    assert (job.activation_recompute, job.micro_batch_tokens, job.recompute_prox) == (False, 4096, False)
    job = wiring.workload_of(RunSpec())
    assert (job.activation_recompute, job.micro_batch_tokens, job.recompute_prox) == (True, None, True)
