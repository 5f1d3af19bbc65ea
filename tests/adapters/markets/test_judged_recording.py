import re
from pathlib import Path

import pytest

from hexcloud.adapters.markets.judged_recording import judged_recording
from hexcloud.domain.errors import ConfigError
from hexcloud.domain.market import Outcome

HEADER = "observed_at,instance_type,region,az_id,spot_usd_per_hour\n"


def test_recorded_prices_are_held_against_what_the_machines_gpus_usually_cost(tmp_path: Path) -> None:
    path = tmp_path / "spot.csv"
    path.write_text(
        HEADER + "2026-06-01,p5.48xlarge,us-west-2,usw2-az1,0.05\n2026-06-01,p5.48xlarge,us-west-2,usw2-az2,20\n"
    )
    counts = judged_recording(path).judged.counts()
    assert counts == {(Outcome.QUARANTINE, "far_too_cheap"): 1, (Outcome.ACCEPT, ""): 1}


def test_lines_that_are_no_prices_are_kept_apart(tmp_path: Path) -> None:
    path = tmp_path / "spot.csv"
    path.write_text(HEADER + "soon,p5.48xlarge,us-west-2,usw2-az1,20\n")
    read = judged_recording(path)
    assert [finding.rule for finding in read.findings] == ["bad_date"]
    assert read.judged.counts() == {}


def test_a_small_recording_that_unfolds_into_millions_of_judgements_is_refused_by_its_name(tmp_path: Path) -> None:
    """Two thousand zones, each to be judged again at each of 1,400 on-demand prices."""
    moments = [f"2023-01-01T{second // 60:02d}:{second % 60:02d}:00Z" for second in range(1400)]
    on_demand = [f"{at},us-east-1,p5.x,{90 + number % 2}" for number, at in enumerate(moments)]
    (tmp_path / "on_demand.csv").write_text(
        "observed_at,region,instance_type,on_demand_usd_per_hour\n" + "\n".join(on_demand)
    )
    spot = [f"2022-12-31,p5.x,us-east-1,z{zone},40" for zone in range(2000)]
    (tmp_path / "spot.csv").write_text(HEADER + "\n".join(spot))
    with pytest.raises(ConfigError, match=re.escape(f"{tmp_path}: 2,000 spot series")):
        judged_recording(tmp_path)
