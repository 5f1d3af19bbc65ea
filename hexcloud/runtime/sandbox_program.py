"""What a verifier's interpreter runs inside the room: one line of JSON in, one out. Its text is handed to `python -c`.

First line in: the verifier's source, which must define `verify(response, answer)`; out: `{}`. Then each line in is
`[response, answer]`, and each out `{"reward": R}` or `{"fault": TEXT}`. Whatever the verifier prints is thrown away.
"""

import json
import os
import sys

_MOST_WORDS = 500
"""Characters of a fault."""


def main() -> None:
    """Answer until nobody asks any more."""
    out = os.fdopen(os.dup(1), "w")
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.dup2(nowhere, 2)

    def say(word: dict[str, object]) -> None:
        out.write(json.dumps(word) + "\n")
        out.flush()

    def fault(error: BaseException) -> dict[str, object]:
        return {"fault": f"{type(error).__name__}: {error}"[:_MOST_WORDS]}

    names: dict[str, object] = {"__name__": "verifier"}
    try:
        exec(compile(json.loads(sys.stdin.readline()), "verifier.py", "exec"), names)
        verify = names["verify"]
    except Exception as error:  # noqa: BLE001 - whatever the user's file does wrong is told
        say(fault(error))
        return
    say({})
    for line in sys.stdin:
        try:
            say({"reward": float(verify(*json.loads(line)))})  # type: ignore[operator]
        except Exception as error:  # noqa: BLE001 - as above
            say(fault(error))


if __name__ == "__main__":
    main()
