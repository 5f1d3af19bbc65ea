"""Signing and reading of the Pointer: nobody without the run's secret can send nodes or the controller elsewhere."""

import hashlib
import hmac

from pydantic import ValidationError

from hexcloud.domain.errors import EngineError
from hexcloud.domain.fleet import RunId
from hexcloud.domain.messages import Pointer


def sign_pointer(run_id: RunId, url: str, epoch: int, secret: str) -> Pointer:
    """Return the pointer with its HMAC-SHA256 (hex) over run, address and epoch."""
    return Pointer(run_id=run_id, url=url, epoch=epoch, signature=_signature(run_id, url, epoch, secret))


def verify_pointer(pointer: Pointer, secret: str) -> bool:
    """Return whether this pointer was signed with the run's secret."""
    expected = _signature(pointer.run_id, pointer.url, pointer.epoch, secret)
    return hmac.compare_digest(expected.encode(), pointer.signature.encode())


def parse_pointer(text: str | bytes, run_id: RunId, secret: str) -> Pointer:
    """Return the pointer of a file's text. Raises EngineError when it is none (yet), or not signed for this run."""
    try:
        pointer = Pointer.model_validate_json(text)
    except ValidationError as error:
        raise EngineError("no pointer to the coordinator (yet)") from error
    if pointer.run_id != run_id or not verify_pointer(pointer, secret):
        raise EngineError(f"the pointer was not signed for run {run_id}")
    return pointer


def _signature(run_id: RunId, url: str, epoch: int, secret: str) -> str:
    # Neither a run id nor an address holds a newline, so two different pointers never sign the same text.
    return hmac.new(secret.encode(), f"{run_id}\n{url}\n{epoch}".encode(), hashlib.sha256).hexdigest()
