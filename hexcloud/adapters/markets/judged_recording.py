"""judged_recording: a recording of prices, read and taken through the gate with what this program knows of machines."""

import time
from pathlib import Path
from typing import NamedTuple

from hexcloud.adapters.files import load_odd_counts, load_usual
from hexcloud.adapters.markets.history import load_history
from hexcloud.adapters.markets.snapshot import SnapshotMarket
from hexcloud.appraise.history import Machine
from hexcloud.appraise.known import Known
from hexcloud.appraise.series import Judged, judge
from hexcloud.domain.errors import ConfigError
from hexcloud.domain.market import Finding


class JudgedRecording(NamedTuple):
    """A recording and what the gate made of it."""

    name: str
    judged: Judged
    findings: tuple[Finding, ...]
    """Lines that are no prices; `judged` tells of doubtful prices."""


def judged_recording(path: Path) -> JudgedRecording:
    """Read and judge a file or folder. Raises ConfigError that names the file and what was expected.

    What is usual is today's: prices fall over the years, and the rule for far too cheap leaves a factor of ten.
    """
    recorded = load_history(path)
    offers = SnapshotMarket().market(time.time()).offers
    machines = {offer.instance_type: Machine(offer.gpu, offer.gpu_count) for offer in offers}
    known = Known(usual_usd_per_gpu_hour=load_usual(), odd_counts=load_odd_counts())
    try:
        judged = judge(recorded.history, known, machines)
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from error
    return JudgedRecording(recorded.name, judged, recorded.findings)
