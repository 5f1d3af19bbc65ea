import asyncio
from http import HTTPStatus

import pytest
from fastapi import Request

from hexcloud.domain.messages import Renewal
from hexcloud.runtime import coordinator_wire
from hexcloud.runtime.coordinator_wire import RefusalError, answer, read


def request(*pieces: bytes) -> Request:
    left = [{"type": "http.request", "body": piece, "more_body": True} for piece in pieces]
    left.append({"type": "http.request", "body": b"", "more_body": False})

    async def receive() -> dict[str, object]:
        return left.pop(0)

    return Request({"type": "http", "method": "POST", "headers": []}, receive)


def test_a_message_is_read_as_it_was_answered() -> None:
    sent = Renewal(run_until_s=3.5)
    body = bytes(answer(sent).body)
    assert asyncio.run(read(request(body[:5], body[5:]), Renewal)) == sent


def test_a_malformed_message_is_refused() -> None:
    for body in (b"", b"{", b'{"run_until_s": "soon"}', b'{"run_until_s": 1, "more": 2}'):
        with pytest.raises(RefusalError) as refused:
            asyncio.run(read(request(body), Renewal))
        assert refused.value.status == HTTPStatus.UNPROCESSABLE_ENTITY


def test_a_message_over_the_limit_is_refused_before_it_is_all_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(coordinator_wire, "MAX_BODY", 10)
    one = request(*[b"12345"] * 100)
    with pytest.raises(RefusalError) as refused:
        asyncio.run(read(one, Renewal))
    assert refused.value.status == HTTPStatus.REQUEST_ENTITY_TOO_LARGE
