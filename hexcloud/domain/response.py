"""Response: tokens of a response or its beginning, what is known of each, and whether a model can have made them."""

from array import array
from typing import NamedTuple

LEAST_LOGPROB, MOST_LOGPROB = -(2.0**13), 2.0**-11
"""A token that was sampled has a logprob between: at most 0 but for rounding, and of a chance that there is.
Powers of two, so that the first byte of an f32 decides (raw.py)."""


class Response(NamedTuple):
    """Token ids, behaviour logprobs and versions of the weights that made each; equally long if it is sound."""

    tokens: tuple[int, ...] = ()
    logprobs: tuple[float, ...] = ()
    versions: tuple[int, ...] = ()

    @property
    def length(self) -> int:
        """How many tokens there are."""
        return len(self.tokens)

    @property
    def oldest_version(self) -> int:
        """The version of the oldest token; 0 where there is none."""
        return min(self.versions, default=0)

    @property
    def newest_version(self) -> int:
        """The version of the newest token; 0 where there is none."""
        return max(self.versions, default=0)

    def opened(self) -> "Response":
        """Return it as it is (PackedResponse is not)."""
        return self

    @property
    def is_even(self) -> bool:
        """Are all three equally long?"""
        return len(self.tokens) == len(self.logprobs) == len(self.versions)

    def has_ids_below(self, vocabulary: int) -> bool:
        """Does the model have a row for every token?"""
        return not self.tokens or (min(self.tokens) >= 0 and max(self.tokens) < vocabulary)

    @property
    def has_sound_logprobs(self) -> bool:
        """Can every token have been sampled? False where one is not finite."""
        return all(LEAST_LOGPROB < logprob < MOST_LOGPROB for logprob in self.logprobs)

    def continues(self, begun: "Response") -> bool:
        """Does it begin with these, logprobs taken as f32 as they are on the wire? Logprobs of both must be sound."""
        length = len(begun.tokens)
        return (
            self.tokens[:length] == begun.tokens
            and self.versions[:length] == begun.versions
            and array("f", self.logprobs[:length]) == array("f", begun.logprobs)
        )
