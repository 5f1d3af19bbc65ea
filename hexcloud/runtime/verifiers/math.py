"""math-verify: is the response's final answer (boxed, LaTeX or plain) the same number, set or expression?"""

from math_verify import ExprExtractionConfig, LatexExtractionConfig, parse
from math_verify import verify as equal

_FINAL = "####"
"""GSM8K marks the answer at the end of a worked solution with it."""


def verify(response: str, answer: str) -> float:
    """Return 1 or 0. Time is limited by who runs this, so math-verify's own alarms are off."""
    gold = answer.rpartition(_FINAL)[2].strip()
    target = [LatexExtractionConfig(), ExprExtractionConfig()]
    wanted = parse(gold if "\\" in gold or "$" in gold else f"${gold}$", target, parsing_timeout=None)
    if not wanted:
        raise ValueError(f"the answer {gold[:80]!r} is no mathematics")
    got = parse(response, target, parsing_timeout=None)
    return float(equal(wanted, got, timeout_seconds=None))
