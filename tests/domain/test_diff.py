"""A diff that changes nothing says so."""

from hexcloud.domain.diff import Diff
from hexcloud.domain.fleet import NodeId


def test_keeping_nodes_is_no_change() -> None:
    assert Diff(keeps=(NodeId("a"),)).is_empty
    assert not Diff(releases=(NodeId("a"),)).is_empty
