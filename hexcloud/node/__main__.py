"""`python -m hexcloud.node rollout|trainer`: run one node in the directory that holds its `node.json`."""

import argparse
import sys

from hexcloud.domain.plan import Role
from hexcloud.node import startup  # noqa: F401 - it notes when the program began


def main(argv: list[str] | None = None) -> int:
    """Run a node and return its exit code."""
    parser = argparse.ArgumentParser(prog="hexcloud.node", description=__doc__)
    parser.add_argument("role", choices=[role.value for role in Role])
    role = Role(parser.parse_args(argv).role)
    if role is Role.ROLLOUT:
        from hexcloud.node.rollout import main as run_rollout  # here: a rollout node needs no web server

        return run_rollout()
    from hexcloud.node.trainer import main as run_trainer

    return run_trainer()


if __name__ == "__main__":
    sys.exit(main())
