import json
import subprocess
import sys
from pathlib import Path

from hexcloud.runtime import sandbox_program


def talk(*lines: object) -> list[object]:
    program = Path(sandbox_program.__file__).read_text()
    asked = "".join(json.dumps(line) + "\n" for line in lines)
    done = subprocess.run(
        [sys.executable, "-I", "-c", program], input=asked, capture_output=True, text=True, check=True
    )
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_each_line_is_answered_and_prints_are_thrown_away() -> None:
    source = "def verify(response, answer):\n    print('noise')\n    return response == answer"
    assert talk(source, ["1", "1"], ["1", "2"]) == [{}, {"reward": 1.0}, {"reward": 0.0}]


def test_what_goes_wrong_is_told_in_words() -> None:
    assert talk("def verify(): pass", ["1", "1"])[1] == {
        "fault": "TypeError: verify() takes 0 positional arguments but 2 were given"
    }
    assert talk("1 / 0") == [{"fault": "ZeroDivisionError: division by zero"}]
