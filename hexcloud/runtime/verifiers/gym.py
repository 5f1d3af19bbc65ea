"""reasoning-gym's own score of a response. `answer` is the literal `(task, entry)`: unlike JSON it keeps tuples."""

import ast
import re
from functools import cache

from reasoning_gym.factory import get_score_answer_fn

_ANSWER = re.compile(r"<answer>(.*?)</answer>", re.DOTALL)

_scorer = cache(get_score_answer_fn)


def verify(response: str, answer: str) -> float:
    """Score what stands in the last <answer> tags, or else the whole response."""
    name, entry = ast.literal_eval(answer)
    found = _ANSWER.findall(response)
    return float(_scorer(name)((found[-1] if found else response).strip(), entry))
