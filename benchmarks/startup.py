"""How long does `hexcloud --help` take, as a multiple of importing Typer and Rich? (bar: at most 3)"""

import json
import statistics
import subprocess
import sys
import time

BAR = 3.0
BASELINE = [sys.executable, "-c", "import typer, rich.table, rich.live"]
HELP = [sys.executable, "-m", "hexcloud.cli", "--help"]


def seconds(command: list[str]) -> float:
    start = time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - start


def main() -> int:
    rounds = 3 if "--smoke" in sys.argv else 15
    seconds(BASELINE), seconds(HELP)  # warm the disk cache
    # Interleaved, so that a busy machine slows both alike.
    pairs = [(seconds(BASELINE), seconds(HELP)) for _ in range(rounds)]
    baseline, help_s = (statistics.median(column) for column in zip(*pairs, strict=True))
    ratio = help_s / baseline
    print(f"{'command':<28}{'median s':>10}")
    print(f"{'import typer, rich':<28}{baseline:>10.3f}")
    print(f"{'hexcloud --help':<28}{help_s:>10.3f}")
    print(f"{'ratio':<28}{ratio:>10.2f}")
    result = {
        "benchmark": "startup",
        "metrics": {"baseline_s": baseline, "help_s": help_s},
        "bars": {"help_over_imports": {"value": ratio, "bar": BAR, "ok": ratio <= BAR}},
    }
    print(json.dumps(result))
    return 0 if ratio <= BAR else 1


if __name__ == "__main__":
    sys.exit(main())
