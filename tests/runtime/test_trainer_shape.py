from pathlib import Path

import pytest

from hexcloud.domain.errors import EngineError
from hexcloud.runtime.trainer_shape import require_alike, shape_of
from tests.runtime.training import small_model


def test_the_shape_of_a_folder_takes_no_room_and_is_like_the_model_that_was_saved(tmp_path: Path) -> None:
    small_model().save_pretrained(tmp_path)
    shape = shape_of(tmp_path)
    assert all(weight.is_meta for weight in shape.parameters())
    require_alike(shape, small_model())


def test_a_reference_without_one_of_the_policys_weights_is_refused() -> None:
    bare = small_model()
    del bare.model.layers[1].self_attn.q_proj.bias
    with pytest.raises(
        EngineError, match=r"another model\.layers\.1\.self_attn\.q_proj\.bias.*: None, and not \(64,\)"
    ):
        require_alike(bare, small_model())
