from hexcloud.domain.formation import Formation
from hexcloud.domain.training import LayoutKind


def test_each_layout_cuts_state_and_samples_over_its_own_ranks() -> None:
    cuts = {kind: Formation(kind, machines=3, ranks=4) for kind in LayoutKind}
    assert {kind: one.shards for kind, one in cuts.items()} == {"fsdp": 12, "hsdp": 4, "tp": 3}
    assert {kind: one.data_ranks for kind, one in cuts.items()} == {"fsdp": 12, "hsdp": 12, "tp": 3}
    assert {kind: one.tensor for kind, one in cuts.items()} == {"fsdp": 1, "hsdp": 1, "tp": 4}
    assert all(one.size == 12 for one in cuts.values())


def test_flat_ranks_share_everything() -> None:
    assert Formation.flat(6).shards == Formation.flat(6).size == 6
