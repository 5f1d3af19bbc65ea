"""Capped: the bytes of a recording, unpacked, and never more of them than memory can take."""

import gzip
import zlib
from io import BytesIO
from pathlib import Path

from hexcloud.domain.errors import ConfigError

MAX_FILE_BYTES = 64 << 20
"""Thirty times the largest recording tried here: 17 months of AWS pack into 2 MiB."""
MAX_TEXT_BYTES = 256 << 20
"""Unpacked. A small file can unfold into more than any machine holds."""
_GZIP = b"\x1f\x8b"


def read_capped(path: Path) -> bytes:
    """Return a file's bytes, unpacked where it is gzip by its content, whatever its name says. Raises ConfigError."""
    if not path.is_file():
        raise ConfigError(f"{path}: cannot be read: there is no such file")
    try:
        with path.open("rb") as file:
            packed = file.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from error
    if len(packed) > MAX_FILE_BYTES:
        raise ConfigError(f"{path}: over {MAX_FILE_BYTES >> 20} MiB; split the recording by time")
    return _unpack(path, packed) if packed.startswith(_GZIP) else packed


def _unpack(path: Path, packed: bytes) -> bytes:
    try:
        with gzip.GzipFile(fileobj=BytesIO(packed)) as file:
            text = file.read(MAX_TEXT_BYTES + 1)
    except EOFError as error:
        raise ConfigError(f"{path}: the gzip file is cut off; fetch it again") from error
    except (OSError, zlib.error) as error:
        raise ConfigError(f"{path}: the gzip file is damaged ({error}); fetch it again") from error
    if len(text) > MAX_TEXT_BYTES:
        raise ConfigError(f"{path}: unpacks to over {MAX_TEXT_BYTES >> 20} MiB; split the recording by time")
    return text
