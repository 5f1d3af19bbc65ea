"""The first thing a node's process runs: it claims the node's record, then becomes the node's program.

Invariant: of all processes ever started for a node, one at most gets past `claim`, whoever started them and whenever
they were killed. Run as a script, so it imports the standard library only and takes milliseconds.
"""

import json
import os
import sys

RECORD = "process.json"
CLOSED = 0
"""The pid in the record of a node that was ended before any process claimed it: nothing may start there any more."""


def claim(directory: str, pid: int) -> bool:
    """Write the node's record, whole and once. Return False when it has one already."""
    draft = os.path.join(directory, f".{RECORD}.{os.getpid()}")
    with open(draft, "w", encoding="utf-8") as file:
        json.dump({"pid": pid}, file)
    try:
        os.link(draft, os.path.join(directory, RECORD))
    except FileExistsError:
        return False
    finally:
        os.unlink(draft)
    return True


def main(argv: list[str]) -> None:
    """Become `argv[2:]` in the directory `argv[1]`, or exit quietly when the node has its process or is closed."""
    directory, program = argv[1], argv[2:]
    os.chdir(directory)
    if claim(directory, os.getpid()):
        os.execvp(program[0], program)


if __name__ == "__main__":
    main(sys.argv)
