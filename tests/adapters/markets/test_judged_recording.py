from pathlib import Path

from hexcloud.adapters.markets.judged_recording import judged_recording
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
