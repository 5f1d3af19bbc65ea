"""Where a node looks for the pointer to the coordinator: in the common folder, or in the run's store."""

from functools import partial

from hexcloud.node.identity import Identity
from hexcloud.runtime.pointer import fetch_pointer, read_pointer
from hexcloud.runtime.rollout_link import FindPointer


def pointer_finder(identity: Identity) -> FindPointer:
    """Return what finds the pointer. Raises ConfigError for a store that is none."""
    spec = identity.spec
    if not spec.store:
        return partial(read_pointer, identity.run_dir, spec.run_id, identity.run_secret)
    from hexcloud.adapters.objects import Bucket  # here: a node of a common folder needs no object store

    return partial(fetch_pointer, Bucket(spec.store), spec.run_id, identity.run_secret)
