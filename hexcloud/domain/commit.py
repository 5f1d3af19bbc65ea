"""What a rollout node says of work that it has begun: that it goes on, and how far it is. Part of messages.py."""

from hexcloud.domain.bounds import Count, Int32, Number
from hexcloud.domain.fleet import NodeId
from hexcloud.domain.frozen import Message
from hexcloud.domain.lease import LeaseId
from hexcloud.domain.packed import Beginning
from hexcloud.domain.response import Response


class LeaseRenewal(Message):
    """POST /leases/renew: the node still makes these; what it committed of them stays what it is."""

    node_id: NodeId
    leases: tuple[tuple[LeaseId, Number], ...]
    """(lease, attempt)."""


class Partial(Message):
    """Tokens of an unfinished sample."""

    lease: LeaseId
    attempt: Number
    start: Count = 0
    """Which token of the response is the first of these; those before it came with the lease or an earlier commit."""
    tokens: tuple[Int32, ...]
    logprobs: tuple[float, ...]
    versions: tuple[Int32, ...]

    @property
    def made(self) -> Beginning:
        """The tokens with what is known of each."""
        return Response(self.tokens, self.logprobs, self.versions)


class PartialCommit(Message):
    """POST /partials: renews the leases and parks the tokens, so that another worker can go on.

    409: of some the tokens before are not known; send them from the response's start. The others are parked.
    """

    node_id: NodeId
    partials: tuple[Partial, ...]
    released: bool = False
    """True when the node gives these leases back (drain, interruption notice)."""
