"""Rewards: 1 for a response that is exactly the answer and then ends, else 0. Runs on the rollout node's CPU."""

from hexcloud.runtime.tasks import EOS_ID, Task


def reward(task: Task, tokens: tuple[int, ...], answer: str) -> float:
    """Score one response by its ids: ids without text (pad, bos) inside it make it wrong, as does a missing eos."""
    return 1.0 if tokens == (*task.encode(answer), EOS_ID) else 0.0
