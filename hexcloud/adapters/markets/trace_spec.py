"""TraceSpec: what `--trace` says, taken apart: a bundled name, a file, or `RECORDING[@START][=OFFERS]`."""

from pathlib import Path
from typing import NamedTuple

from hexcloud.adapters.files import is_path

SUFFIXES = (".csv", ".gz", ".json", ".txt", ".log")
"""Of recordings; a text with another ending, in no folder, is the name of a bundled trace: write `./folder`."""


class TraceSpec(NamedTuple):
    """What the user wrote, in its parts."""

    path: str
    start: str = ""
    offers: str = ""

    @property
    def is_file(self) -> bool:
        """Does it mean the user's own file or folder?"""
        return bool(self.start or self.offers) or "/" in self.path or is_path(self.path, *SUFFIXES)

    def absolute(self) -> str:
        """Spell it so that it reads the same from any folder."""
        if not self.is_file:
            return self.path
        start = f"@{self.start}" if self.start else ""
        return str(Path(self.path).absolute()) + start + (f"={self.offers}" if self.offers else "")


def parse_trace(text: str) -> TraceSpec:
    """Take `PATH[@START][=OFFERS]` apart. A path that exists as it stands has neither."""
    if Path(text).exists():
        return TraceSpec(text)
    path, _, offers = text.partition("=")
    path, _, start = path.rpartition("@") if "@" in path else (path, "", "")
    return TraceSpec(path, start, offers)
