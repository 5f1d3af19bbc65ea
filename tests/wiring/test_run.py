"""A run's record and what stands around it; nothing is rented by making them."""

from pathlib import Path

import pytest

from hexcloud import wiring
from hexcloud.domain.errors import ConfigError
from hexcloud.domain.run import RunSpec, RunState


def test_the_clocks_scale_makes_one_step_a_wall_second() -> None:
    spec = RunSpec(target="10 samples/s")
    run = wiring.new_run(spec, wiring.run_input(spec), samples_per_s=10.0)
    assert run.clock_scale == pytest.approx(25.6)
    assert not Path(run.run_dir).exists(), "a record is no run yet"


def test_a_resumed_run_goes_on_where_its_clock_stood() -> None:
    spec = RunSpec()
    run = wiring.new_run(spec, wiring.run_input(spec), samples_per_s=10.0)
    again = wiring.resumed_run(run, steps=900)
    assert again.id == run.id
    assert again.spec.steps == 900
    assert again.clock_origin_run_s == run.clock_origin_run_s
    assert again.clock_origin_wall_s >= run.clock_origin_wall_s


def test_another_budget_is_the_runs_and_its_policys(tmp_path: Path) -> None:
    spec = RunSpec(budget=5)
    run = wiring.new_run(spec, wiring.run_input(spec), samples_per_s=10.0)
    richer = wiring.with_budget(run, 50)
    assert (richer.spec.budget, richer.policy.budget_usd) == (50, 50)
    assert wiring.with_budget(run, None) == run


def test_a_stored_run_reads_the_same_from_any_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "own.csv").write_text("at_h,event,offer,usd_per_hour,count\n")
    (tmp_path / "own.yaml").write_text("horizon_h: 3\n")
    monkeypatch.chdir(tmp_path)
    spec = RunSpec(trace="own.csv", policy="own.yaml", output="out")
    stored = wiring.new_run(spec, wiring.run_input(spec), samples_per_s=10.0).spec
    assert stored.trace == str(tmp_path / "own.csv")
    assert stored.policy == str(tmp_path / "own.yaml")
    assert stored.output == str(tmp_path / "out")
    bundled = RunSpec()
    assert wiring.new_run(bundled, wiring.run_input(bundled), samples_per_s=10.0).spec == bundled


def test_a_run_that_ends_needs_no_trace_and_any_other_does() -> None:
    spec = RunSpec()
    run = wiring.new_run(spec, wiring.run_input(spec), samples_per_s=10.0)
    lost = run.model_copy(update={"spec": spec.model_copy(update={"trace": "/gone/own.csv"})})
    with pytest.raises(ConfigError, match="cannot be read"):
        wiring.market_source(lost)
    ending = lost.model_copy(update={"state": RunState.STOPPING})
    assert wiring.market_source(ending).market(run.created_wall_s).offers
    assert wiring.provisioner(ending).list_nodes(run.id) == ()


def test_a_run_that_goes_on_is_planned_at_the_prices_of_the_moment_its_clock_stood_at(tmp_path: Path) -> None:
    trace = tmp_path / "own.csv"
    trace.write_text("at_h,event,offer,usd_per_hour,count\n1.0,price,nebius/*,x1.5,\n")
    spec = RunSpec(cloud=("nebius",), trace=str(trace))
    begun = wiring.run_input(spec)
    run = wiring.with_budget(wiring.new_run(spec, begun, samples_per_s=10.0), 70)
    stood = run.model_copy(update={"clock_origin_run_s": run.created_wall_s + 2 * 3600})
    given = wiring.resumed_input(stood)
    assert [offer.usd_per_hour for offer in given.market.offers] == [
        pytest.approx(1.5 * offer.usd_per_hour) for offer in begun.market.offers
    ]
    assert (given.policy, given.workload) == (stood.policy, stood.workload), "as its controller will see them"


def test_a_run_without_its_trace_is_not_resumed() -> None:
    spec = RunSpec()
    run = wiring.new_run(spec, wiring.run_input(spec), samples_per_s=10.0)
    with pytest.raises(ConfigError, match="cannot be read"):
        wiring.resumed_input(run.model_copy(update={"spec": spec.model_copy(update={"trace": "/gone/own.csv"})}))


def test_prices_stand_still_while_the_user_thinks_the_plan_over() -> None:
    spec = RunSpec()
    asked = wiring.new_run(spec, wiring.run_input(spec), samples_per_s=10.0)
    long_ago = asked.model_copy(update={"clock_origin_wall_s": asked.clock_origin_wall_s - 600})
    assert wiring.clock(long_ago).now_s() > asked.created_wall_s + 1000
    begun = wiring.begun_now(long_ago)
    assert wiring.clock(begun).now_s() - begun.created_wall_s < 100, "a few wall seconds, 25 times as fast"
