"""The staleness law: how much may be outstanding, and from which weights a sample can still be trained in time.

Version v counts published training batches of B samples. Step v -> v + 1 trains the next batch. Groups are consumed
oldest data first, so a group with `ahead` samples before it is trained at step v + ahead // B at the latest, if it is
ready by then. The count alone (AReaL's admission rule, arXiv 2505.24298) bounds staleness only for workers that
generate with the newest weights; the test on the loaded version closes that gap.
"""

from pydantic import Field, model_validator

from hexcloud.domain.frozen import Frozen


class StalenessLaw(Frozen):
    """The three numbers of the law and what follows from them. Counts are samples, ages are versions."""

    samples_per_step: int = Field(gt=0)
    """B: samples that one published batch consumes."""
    group_size: int = Field(gt=0)
    eta: int = Field(ge=0)

    @model_validator(mode="after")
    def _whole_groups(self) -> "StalenessLaw":
        if self.samples_per_step % self.group_size:
            raise ValueError(
                f"samples_per_step {self.samples_per_step} is not a multiple of group_size {self.group_size}"
            )
        return self

    @property
    def groups_per_step(self) -> int:
        """Groups that one batch consumes."""
        return self.samples_per_step // self.group_size

    @property
    def most_outstanding(self) -> int:
        """(eta + 1) * B: samples that may be under way at once, the batch being trained included."""
        return (self.eta + 1) * self.samples_per_step

    def room(self, outstanding: int) -> int:
        """Return how many more samples may be admitted; 0 when full."""
        return max(0, self.most_outstanding - outstanding)

    def due_step(self, version: int, ahead: int) -> int:
        """Return the step at which a group with `ahead` outstanding samples before it is trained if it is ready."""
        return version + ahead // self.samples_per_step

    def age(self, step: int, oldest_version: int) -> int:
        """Return the age of data at step `step` -> `step` + 1."""
        return step - oldest_version

    def oldest_trainable(self, step: int) -> int:
        """Return the lowest token version that may be trained at step `step` -> `step` + 1."""
        return step - self.eta
