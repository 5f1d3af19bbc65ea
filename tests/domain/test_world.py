from hexcloud.domain.fleet import NodeId
from hexcloud.domain.world import World

A, B, C = (NodeId(name) for name in "abc")


def test_ranks_are_those_of_all_machines() -> None:
    assert World(nodes=(A, B, C), ranks=2).size == 6


def test_a_change_is_made_by_those_who_were_there_and_those_who_come() -> None:
    assert World(nodes=(A, C), before=(A, B)).union == (A, B, C)
    assert World(nodes=(A, B)).union == (A, B)
