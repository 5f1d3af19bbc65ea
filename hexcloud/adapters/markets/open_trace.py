"""open_trace: the trace that `--trace` names, whether somebody wrote it or a market did."""

from datetime import UTC, datetime
from pathlib import Path

from hexcloud.adapters.markets.availability import Availability, read_availability
from hexcloud.adapters.markets.capped import read_capped
from hexcloud.adapters.markets.price_formats import header_of, is_price_file
from hexcloud.adapters.markets.recorded_trace import RecordedAvailability, RecordedPrices
from hexcloud.adapters.markets.trace import COLUMNS, MarketTrace, Trace, is_written, load_trace, written_trace
from hexcloud.adapters.markets.trace_spec import TraceSpec, parse_trace
from hexcloud.domain.errors import ConfigError


def open_trace(text: str) -> MarketTrace:
    """Read a trace; recorded prices go through the gate.

    Raises ConfigError that names the file and what is wrong: the line, the start, or what it should have been.
    """
    spec = parse_trace(text)
    path = Path(spec.path)
    if not spec.is_file:
        return load_trace(text)
    content = None if path.is_dir() else read_capped(path)
    if content is None or is_price_file(content):
        # Loads pandas, which takes a while, and most runs play no recording.
        from hexcloud.adapters.markets.judged_recording import judged_recording

        judged = judged_recording(path).judged
        start_s = _start_s(spec, judged.history.first_s, judged.history.last_s)
        return RecordedPrices(_name(spec), judged, start_s, spec.offers or "*")
    availability = read_availability(spec.path, content)
    if availability is not None:
        return _availability(spec, availability)
    return _events(spec, content)


def _events(spec: TraceSpec, content: bytes) -> Trace:
    """Read events that somebody wrote: what is left when a file is no recording."""
    if not is_written(content):
        raise ConfigError(
            f"{spec.path}: is no recording of prices or availability that is known (docs/how-to/past-prices.md lists "
            f"them), and for events of your own the first line must be {','.join(COLUMNS)}{_meant(spec, content)}"
        )
    if spec.start or spec.offers:
        raise ConfigError(f"{spec.path}: is no recording, so it has no @START and no =OFFERS")
    return written_trace(Path(spec.path), content)


def _meant(spec: TraceSpec, content: bytes) -> str:
    """Return how the message goes on for a price list of one moment: nothing in it can be played."""
    if "InstanceType" not in header_of(content):
        return ""
    return f"; prices of today are read by `hexcloud catalog refresh --from {spec.path}`"


def _availability(spec: TraceSpec, availability: Availability) -> RecordedAvailability:
    if not spec.offers:
        example = f"{spec.path}=aws/us-west-2/*/p3.2xlarge/spot"
        raise ConfigError(f"{spec.path}: records availability and names no offers; say which, such as {example}")
    begin_s = availability.start_s
    if begin_s is None and spec.start:
        raise ConfigError(f"{spec.path}: has no dates, so a run can only begin at its beginning; leave @START out")
    begin_s = begin_s or 0.0
    start_s = _start_s(spec, begin_s, begin_s + float(availability.at_s[-1])) - begin_s
    return RecordedAvailability(_name(spec), availability, start_s, spec.offers)


def _start_s(spec: TraceSpec, first_s: float, last_s: float) -> float:
    """Return the recorded moment at which the run begins, seconds since the epoch."""
    if not spec.start:
        return first_s
    try:
        moment = datetime.fromisoformat(spec.start)
    except ValueError as error:
        raise ConfigError(
            f"{spec.path}: the start {spec.start!r} is no date; write it like @2023-06-01 or @2023-06-01T12:00"
        ) from error
    start_s = (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
    if not first_s <= start_s <= last_s:
        first, last = (f"{datetime.fromtimestamp(one, UTC):%Y-%m-%dT%H:%M}" for one in (first_s, last_s))
        raise ConfigError(f"{spec.path}: the start {spec.start} is outside the recording, from {first} to {last}")
    return start_s


def _name(spec: TraceSpec) -> str:
    return Path(spec.path).name.split(".")[0]
