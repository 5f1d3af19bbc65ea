from pathlib import Path

import pytest

from hexcloud import wiring
from hexcloud.adapters.markets.sky_optimizer import is_installed
from hexcloud.cli.frontier import chart_of, frontier_fields, require_png, require_writable, solve_frontier
from hexcloud.cli.planned import Planned, make
from hexcloud.domain.errors import ConfigError
from hexcloud.domain.run import RunSpec
from hexcloud.planner.allocate import MIP_GAP
from hexcloud.planner.baselines import SKYPILOT
from hexcloud.planner.frontier import PLAN, SHARES, FrontierStep


@pytest.fixture(scope="module")
def planned() -> Planned:
    spec = RunSpec(cloud=("nebius",), target="10k", max_usd_per_hour=90.0)
    return make(wiring.snapshot_input(spec), "10k", with_baselines=False)


def test_each_step_is_told_on_stderr_as_it_is_solved(planned: Planned, capsys: pytest.CaptureFixture[str]) -> None:
    steps = solve_frontier(planned)
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.count("\nfrontier ") + said.err.startswith("frontier ") == len(steps) == len(SHARES)
    assert f"frontier {len(SHARES)}/{len(SHARES)}: 30000 tok/s" in said.err
    assert "4/8: 10000 tok/s, " in said.err


def test_the_chart_has_a_line_for_each_buyer_in_the_units_of_the_user(planned: Planned) -> None:
    steps = (
        FrontierStep(samples_per_s=1.0, usd_per_hour={PLAN: 5.0, "rival": 6.0}),
        FrontierStep(samples_per_s=2.0, usd_per_hour={PLAN: 9.0}),
        FrontierStep(samples_per_s=3.0, usd_per_hour={}),
    )
    chart = chart_of(planned, steps)
    lines = {line.name: line.points for line in chart.lines}
    assert list(lines) == [PLAN, "rival"]
    assert lines == {PLAN: ((2048.0, 5.0), (4096.0, 9.0)), "rival": ((2048.0, 6.0),)}
    assert chart.here == pytest.approx((10_000.0, planned.result.plan.allocation.usd_per_hour))
    assert chart.cap_usd_per_hour == 90.0
    assert frontier_fields(planned, steps)[1] == {"tokens_per_s": 4096.0, "usd_per_hour": {PLAN: 9.0}}


def test_files_that_cannot_be_written_are_wrong_input_before_anything_is_solved(tmp_path: Path) -> None:
    require_png(tmp_path / "a.PNG")
    with pytest.raises(ConfigError, match=r"ends in \.png"):
        require_png(tmp_path / "a.jpg")
    old = tmp_path / "old.html"
    old.write_text("mine")
    require_writable("--html", old)
    require_writable("--html", tmp_path / "new.html")
    assert [(file.name, file.read_text()) for file in tmp_path.iterdir()] == [("old.html", "mine")]
    with pytest.raises(ConfigError, match=r"--html .*cannot be written: No such file"):
        require_writable("--html", tmp_path / "nowhere" / "a.html")


@pytest.mark.skipif(not is_installed(), reason="SkyPilot is not installed")
def test_skypilots_optimizer_is_one_of_the_buyers_at_every_step_it_can_serve(planned: Planned) -> None:
    steps = solve_frontier(planned)
    priced = [step for step in steps if SKYPILOT in step.usd_per_hour]
    assert len(priced) >= len(steps) // 2
    assert all(step.usd_per_hour[SKYPILOT] >= step.usd_per_hour[PLAN] * (1 - MIP_GAP) for step in priced)
    assert SKYPILOT in {line.name for line in chart_of(planned, steps).lines}
