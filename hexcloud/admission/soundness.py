"""Soundness: can what a worker says have been made under its lease, by weights that there are?

Else it lies or its machine is broken, and what it says must reach neither the trainer nor whoever would go on from it.
"""

from hexcloud.domain.lease import Lease
from hexcloud.domain.packed import Beginning
from hexcloud.domain.sample import MAX_REWARD, Sample


def is_sound_sample(sample: Sample, lease: Lease, vocabulary: int, newest: int) -> bool:
    """Is this finished sample what its lease asked for? `newest` is the newest version published."""
    wanted = (lease.group, lease.index, lease.epoch, lease.prompt_ids)
    return (
        (sample.group, sample.index, sample.epoch, sample.prompt_ids) == wanted
        and 0 < sample.length <= lease.max_new_tokens
        and 0 <= sample.oldest_version <= sample.newest_version <= newest
        and abs(sample.reward) <= MAX_REWARD
        and sample.has_ids_below(vocabulary)
        and sample.has_sound_logprobs
        and sample.continues(lease.begun)
    )


def is_sound_beginning(made: Beginning, lease: Lease, vocabulary: int, newest: int) -> bool:
    """Can a worker go on from this? It may be empty where the lease began with nothing."""
    return (
        made.is_even
        and made.length <= lease.max_new_tokens
        and (not made.length or 0 <= made.oldest_version <= made.newest_version <= newest)
        and made.has_ids_below(vocabulary)
        and made.has_sound_logprobs
        and made.continues(lease.begun)
    )
