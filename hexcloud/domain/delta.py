"""WeightsManifest: one version of the weights. WeightsDelta: one told as what changed against another."""

from pydantic import model_validator

from hexcloud.domain.bounds import Count, Number
from hexcloud.domain.frozen import Message


class WeightsManifest(Message):
    """One published version of the weights. Identity is (epoch, version, sha256)."""

    epoch: Number
    version: Number
    sha256: str
    size: Count
    """Bytes of the safetensors file at `GET /weights/{epoch}/{version}`."""


class WeightsDelta(Message):
    """A file that turns the safetensors file of one version into that of a later one, to the bit."""

    base: WeightsManifest
    """What the receiver must have, and have verified."""
    result: WeightsManifest
    """What it has afterwards; its digest is checked before use."""
    sha256: str
    size: Count
    """Bytes of the delta's file."""
    chunk_bytes: int
    chunks: tuple[str, ...]
    """Digest of each chunk of the file, the last one shorter: a torn download goes on from the last that is right."""

    @model_validator(mode="after")
    def _goes_forward(self) -> "WeightsDelta":
        if self.base.epoch != self.result.epoch or self.base.version >= self.result.version:
            raise ValueError("a delta leads to a later version of the same epoch")
        if self.chunk_bytes <= 0 or len(self.chunks) != -(-self.size // self.chunk_bytes):
            raise ValueError(f"{len(self.chunks)} chunks of {self.chunk_bytes} bytes are not {self.size} bytes")
        return self
