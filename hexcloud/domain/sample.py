"""Sample and Group: trajectories, and all samples of one prompt."""

from pydantic import model_validator

from hexcloud.domain.bounds import Count, Number
from hexcloud.domain.frozen import Message
from hexcloud.domain.lease import GroupId, LeaseId
from hexcloud.domain.response import Response

MAX_REWARD = 1e6
"""Largest size of a reward. Verifiers give about 1; their mistakes give 1e200, whose square nobody can hold."""


class Sample(Message):
    """One trajectory. `tokens`, `logprobs` and `versions` are of the response and equally long.

    What tokens and versions are worth is for admission to say: one that is wrong costs its own sample, not its message.
    """

    lease: LeaseId
    attempt: Number
    group: GroupId
    index: Count
    epoch: Number
    prompt_ids: tuple[int, ...]
    tokens: tuple[int, ...]
    logprobs: tuple[float, ...]
    """Behaviour logprobs (natural log) of the temperature-scaled distribution, before any truncation."""
    versions: tuple[int, ...]
    """Version of the weights that produced each token."""
    reward: float

    @model_validator(mode="after")
    def _equally_long(self) -> "Sample":
        if not len(self.tokens) == len(self.logprobs) == len(self.versions) or not self.tokens:
            raise ValueError("tokens, logprobs and versions must be equally long and not empty")
        return self

    @property
    def length(self) -> int:
        """Tokens of the response."""
        return len(self.tokens)

    def has_ids_below(self, vocabulary: int) -> bool:
        """As of Response."""
        return self._response.has_ids_below(vocabulary)

    @property
    def has_sound_logprobs(self) -> bool:
        """As of Response."""
        return self._response.has_sound_logprobs

    def continues(self, begun: Response) -> bool:
        """As of Response."""
        return self._response.continues(begun)

    @property
    def _response(self) -> Response:
        return Response(self.tokens, self.logprobs, self.versions)

    @property
    def oldest_version(self) -> int:
        """The version of the oldest token: what the staleness bound is about."""
        return min(self.versions)

    @property
    def newest_version(self) -> int:
        """The version of the newest token."""
        return max(self.versions)


class Group(Message):
    """All samples of one prompt: the unit of admission, consumption and drop."""

    id: GroupId
    samples: tuple[Sample, ...]

    @property
    def oldest_version(self) -> int:
        """The oldest version over all its tokens."""
        return min(sample.oldest_version for sample in self.samples)
