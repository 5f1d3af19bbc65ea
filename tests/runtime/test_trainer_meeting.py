import socket

import pytest
from torch.distributed import PrefixStore  # type: ignore[attr-defined]

from hexcloud.runtime.trainer_meeting import Meeting


def test_others_reach_rank_0_where_it_listens_and_nowhere_else() -> None:
    first, other = Meeting("127.0.0.2"), Meeting("127.0.0.1")
    address = first.listen()
    assert first.listen() == address == first.address
    assert not first.are_ready(1, range(2, 4))
    other.reach(address)
    for rank in (2, 3):
        other.be_ready(1, rank)
    assert first.are_ready(1, range(2, 4))
    assert not first.are_ready(2, range(2, 4))
    port = int(address.rpartition(":")[2])
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port), timeout=5).close()


def test_one_rank_alone_opens_no_door() -> None:
    alone = Meeting("127.0.0.1")
    assert alone.store("world/0") is None and alone.address == ""
    assert alone.are_ready(0, range(0))


def test_groups_do_not_see_each_others_words() -> None:
    meeting = Meeting("127.0.0.1")
    meeting.listen()
    one, other = meeting.store("one"), meeting.store("other")
    assert isinstance(one, PrefixStore) and isinstance(other, PrefixStore)
    one.set("word", "x")
    assert one.check(["word"]) and not other.check(["word"])
