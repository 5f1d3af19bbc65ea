from pathlib import Path

import pytest
import torch
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.checkpoint.state_dict_saver import save

from hexcloud.runtime.atomic import sha256_of
from hexcloud.runtime.checkpoint_shards import ShardReader, ShardWriter
from hexcloud.runtime.trainer_ranks import Ranks
from tests.runtime.training import ALONE

ONE = Ranks(0, ALONE)


@pytest.mark.filterwarnings("ignore:torch.distributed is disabled")
def test_shards_have_the_digest_of_what_is_on_disk_and_come_back(tmp_path: Path) -> None:
    kept = {"a": torch.randn(300, 70), "b": torch.arange(5), "c": torch.randn(3).bfloat16()}
    writer = ShardWriter(tmp_path, ONE)
    save(kept, storage_writer=writer, no_dist=True)
    assert writer.digests == {path.name: sha256_of(path) for path in tmp_path.iterdir()}
    assert set(writer.digests) == {"__0_0.distcp", ".metadata"}
    again = {name: torch.zeros_like(tensor) for name, tensor in kept.items()}
    load(again, storage_reader=ShardReader(tmp_path, ONE), no_dist=True)
    assert all(torch.equal(again[name], tensor) for name, tensor in kept.items())
