"""Rows, beliefs and answers to store: one spot machine in one zone, and what is odd about it."""

from datetime import UTC, datetime, timedelta
from typing import Any

from hexcloud.domain.market import Outcome
from hexcloud.domain.row import Belief, Part, Row

NOON = datetime(2026, 7, 20, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)


def row(price: float, **odd: Any) -> Row:
    facts: dict[str, Any] = {
        "cloud": "aws",
        "region": "us-east-1",
        "zone": "use1-az1",
        "instance_type": "p5.48xlarge",
        "tenure": "spot",
        "gpu": "H100",
        "gpu_count": 8,
        "vcpus": 192,
        "memory_gib": 2048,
        "network_gb_per_s": 400,
        "price": price,
        "as_of": NOON.isoformat(),
        "source": "aws",
    }
    return Row(**{**facts, **odd})


def believed(price: float, **odd: Any) -> Belief:
    return Belief(row=row(price, **odd), outcome=Outcome.ACCEPT)


def waiting(price: float, **odd: Any) -> Belief:
    """A row in quarantine."""
    return Belief(row=row(price, **odd), outcome=Outcome.QUARANTINE, rule="step", field="price", reason="fell by 55 %")


def part(at: datetime, **odd: Any) -> Part:
    facts: dict[str, Any] = {"source": "aws", "cloud": "aws", "region": "us-east-1", "as_of": at, "content": str(at)}
    return Part(**{**facts, **odd})


P5 = row(1).id
