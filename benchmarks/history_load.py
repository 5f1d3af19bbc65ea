"""How long do loading and judging a recorded price history take, as a multiple of pandas reading the same files?

Bars: at most 12 times the time of pandas, and under 1.5 GB of memory at the peak. Each side runs in processes of its
own, in turns. Without arguments the history is 17 months of AWS where that lies beside the checkout, else a made-up one
of the same shape (375,285 spot events of 757 series in 2,061 snapshots); a folder as argument is measured instead.
"""

import gzip
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

RATIO_BAR, PEAK_BAR_GB = 12.0, 1.5
ROOT = Path(__file__).resolve().parents[1]
RECORDED = "shared/data/spot-traces/aws-catalog-2022-12_2024-05"
EVENTS, SERIES, SNAPSHOTS = 375_285, 757, 2061

PANDAS = """
import glob, json, resource, sys, time, warnings
import pandas
warnings.simplefilter("ignore")
files = sorted(glob.glob(sys.argv[1] + "/*.csv*"))
start = time.perf_counter()
lines = sum(len(pandas.read_csv(file)) for file in files)
seconds = time.perf_counter() - start
print(json.dumps([seconds, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6, lines]))
"""
OURS = """
import json, resource, sys, time
from pathlib import Path
from hexcloud.adapters.markets.history import load_history
from hexcloud.appraise.known import Known
from hexcloud.appraise.series import judge
start = time.perf_counter()
recorded = load_history(Path(sys.argv[1]))
loaded = time.perf_counter()
judged = judge(recorded.history, Known(usual_usd_per_gpu_hour={"V100": 2.6, "T4": 0.6}))
believed = judged.believed()
seconds = time.perf_counter() - start
asked = time.perf_counter()
quotes = [believed.at(believed.first_s + share * (believed.last_s - believed.first_s) / 100) for share in range(100)]
at_ms = (time.perf_counter() - asked) * 10
assert len(quotes[-1]) > 0.9 * len(believed.ids)
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
print(json.dumps([seconds, peak, recorded.history.at_s.size, loaded - start, at_ms]))
"""


def measured(code: str, folder: Path) -> list[float]:
    env = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-c", code, str(folder)], env=env, check=True, capture_output=True, text=True
    )
    figures: list[float] = json.loads(done.stdout)
    return figures


def generate(folder: Path, events: int, series: int, snapshots: int) -> None:
    """Write a history like the recorded one: prices drift by a percent or so, some reach the full price, zones go."""
    dice = random.Random(20240501)
    begin = datetime(2022, 12, 2, 18, tzinfo=UTC)
    moments = [f"{begin + timedelta(hours=6 * number):%Y-%m-%dT%H:%M:%SZ}" for number in range(snapshots)]
    kinds = [f"g{size}.{size}xlarge" for size in range(1, 20)]
    names = [(kinds[n % 19], f"us-east-{n % 40}", f"use{n % 40}-az{n // 760}") for n in range(series)]
    full = {kind: 2.0 * (place + 1) for place, kind in enumerate(kinds)}
    prices = [full[name[0]] * dice.uniform(0.2, 0.9) for name in names]
    lines = ["observed_at,instance_type,region,az_id,spot_usd_per_hour"]
    lines += [f"{moments[0]},{','.join(name)},{price:.6f}" for name, price in zip(names, prices, strict=True)]
    for picked in sorted(dice.sample(range(series, series * snapshots), events - series)):
        snapshot, place = divmod(picked, series)
        prices[place] = min(full[names[place][0]], prices[place] * dice.uniform(0.97, 1.03))
        told = "GONE" if dice.random() < 0.0004 else f"{prices[place]:.6f}"
        lines.append(f"{moments[snapshot]},{','.join(names[place])},{told}")
    (folder / "spot.csv.gz").write_bytes(gzip.compress("\n".join(lines).encode(), 6))
    listed = sorted({(kind, region) for kind, region, _ in names})
    rows = [f"{moments[0]},{kind},{region},{full[kind]}" for kind, region in listed]
    header = "observed_at,instance_type,region,on_demand_usd_per_hour"
    (folder / "on-demand-changes.csv").write_text("\n".join([header, *rows]))


def history_folder(made: Path, smoke: bool) -> tuple[Path, str]:
    given = [argument for argument in sys.argv[1:] if not argument.startswith("-")]
    beside = [parent / RECORDED for parent in (ROOT, ROOT.parent) if (parent / RECORDED).is_dir()]
    if given or (beside and not smoke):
        return (Path(given[0]) if given else beside[0]), "recorded"
    events, series, snapshots = (100_000, 300, 600) if smoke else (EVENTS, SERIES, SNAPSHOTS)
    generate(made, events, series, snapshots)
    return made, "generated"


def main() -> int:
    smoke = "--smoke" in sys.argv
    with tempfile.TemporaryDirectory() as made:
        folder, origin = history_folder(Path(made), smoke)
        start = time.perf_counter()
        measured(PANDAS, folder), measured(OURS, folder)  # warm the disk cache
        print(f"history: {origin}, warmed in {time.perf_counter() - start:.1f} s")
        # Interleaved, so that a busy machine slows both alike.
        pairs = [(measured(PANDAS, folder), measured(OURS, folder)) for _ in range(2 if smoke else 5)]
    pandas_s = statistics.median(theirs[0] for theirs, _ in pairs)
    seconds, load_s, at_ms = (statistics.median(ours[place] for _, ours in pairs) for place in (0, 3, 4))
    ratio, peak_gb = seconds / pandas_s, max(ours[1] for _, ours in pairs)
    events, lines = int(pairs[0][1][2]), int(pairs[0][0][2])
    print(f"{'':<34}{'seconds':>9}{'peak GB':>9}{'rows':>10}")
    print(f"{'pandas reads the files':<34}{pandas_s:>9.3f}{max(theirs[1] for theirs, _ in pairs):>9.3f}{lines:>10,}")
    print(f"{'load as columns and judge':<34}{seconds:>9.3f}{peak_gb:>9.3f}{events:>10,}")
    print(f"{'  of it: load':<34}{load_s:>9.3f}")
    print(f"{'all prices of one moment, ms':<34}{at_ms:>9.3f}")
    print(f"{'ratio':<34}{ratio:>9.2f}")
    bars = {
        "load_and_gate_over_pandas": {"value": ratio, "bar": RATIO_BAR, "ok": ratio <= RATIO_BAR},
        "peak_gb": {"value": peak_gb, "bar": PEAK_BAR_GB, "ok": peak_gb < PEAK_BAR_GB},
    }
    metrics = {"pandas_s": pandas_s, "load_and_gate_s": seconds, "load_s": load_s, "at_ms": at_ms, "events": events}
    print(json.dumps({"benchmark": "history_load", "metrics": {**metrics, "history": origin}, "bars": bars}))
    return 0 if all(bar["ok"] for bar in bars.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
