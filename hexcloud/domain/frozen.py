"""The one configuration shared by every noun: immutable, and strict about unknown fields."""

from pydantic import BaseModel, ConfigDict


class Frozen(BaseModel):
    """A value that never changes; a new value is made with `model_copy(update=...)`."""

    model_config = ConfigDict(frozen=True, extra="forbid")
