"""What the coordinator reads and writes: bodies with a limit, messages, files whose bytes are counted, refusals."""

from collections import Counter
from collections.abc import Callable
from http import HTTPStatus
from pathlib import Path
from typing import TypeVar

from fastapi import Request, Response
from fastapi.responses import FileResponse
from starlette.convertors import Convertor, register_url_convertor
from starlette.types import Message as AsgiMessage
from starlette.types import Receive, Scope, Send

from hexcloud.domain.fleet import NodeId
from hexcloud.domain.frozen import Frozen
from hexcloud.domain.raw import MAX_BODY as MAX_BODY

Message = TypeVar("Message", bound=Frozen)


class RefusalError(Exception):
    """A request is answered with this status and no more."""

    def __init__(self, status: HTTPStatus, detail: str = "") -> None:
        super().__init__(detail)
        self.status = status
        self.detail = detail


class NumberConvertor(Convertor[int]):
    """`{name:number}` in a path. A longer one is another path, so 404: Python refuses to read thousands of digits."""

    regex = "[0-9]{1,18}"

    def convert(self, value: str) -> int:
        """Return the number."""
        return int(value)

    def to_string(self, value: int) -> str:
        """Return its digits."""
        return str(value)


register_url_convertor("number", NumberConvertor())


class CountedFile(FileResponse):
    """A file of which the bytes that go out are counted: clouds bill them."""

    def __init__(self, path: Path, reader: NodeId, sent_bytes: Counter[NodeId]) -> None:
        super().__init__(path, media_type="application/octet-stream")
        self._reader, self._sent_bytes = reader, sent_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the file, and count."""

        async def counting(message: AsgiMessage) -> None:
            self._sent_bytes[self._reader] += len(message.get("body", b""))
            await send(message)

        await super().__call__(scope, receive, counting)


async def read(request: Request, kind: type[Message], parse_raw: Callable[[bytes], Message] | None = None) -> Message:
    """Return a call's message. Raises RefusalError for one that is too large or malformed."""
    body = await _body(request)
    try:
        return parse_raw(body) if parse_raw else kind.model_validate_json(body)
    except ValueError as error:
        raise RefusalError(HTTPStatus.UNPROCESSABLE_ENTITY, str(error)) from error


async def _body(request: Request) -> bytes:
    """Return the body; one that is too large is refused before it is there as a whole."""
    body = bytearray()
    async for piece in request.stream():
        body += piece
        if len(body) > MAX_BODY:
            raise RefusalError(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"a message has at most {MAX_BODY} bytes")
    return bytes(body)


def answer(message: Frozen) -> Response:
    """Return an answer as JSON."""
    return Response(message.model_dump_json(), media_type="application/json")
