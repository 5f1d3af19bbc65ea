"""A run that its trainer would refuse is refused while nothing is rented."""

import json
from pathlib import Path

import pytest

from hexcloud import wiring
from hexcloud.domain.errors import ConfigError
from hexcloud.domain.run import RunSpec
from hexcloud.domain.training import LayoutKind, TrainingSpec
from hexcloud.runtime.tasks import SORT_DIGITS
from hexcloud.runtime.trainer_model import build_model
from hexcloud.wiring.training import absolute_training, require_trainable

LLAMA = {
    "model_type": "llama",
    "vocab_size": 32,
    "hidden_size": 36,
    "intermediate_size": 91,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
}


def folder_of(path: Path, config: object) -> str:
    path.mkdir()
    (path / "config.json").write_text(json.dumps(config))
    (path / "model.safetensors").write_bytes(b"not read before the run")
    return str(path)


def referring(folder: str, **fields: object) -> RunSpec:
    return RunSpec.model_validate({"training": {"kl_weight": 0.1, "reference": folder}, **fields})


def cut(ranks: int | None, **fields: object) -> RunSpec:
    return RunSpec(training=TrainingSpec(layout=LayoutKind.TP, ranks=ranks)).model_copy(update=fields)


def test_a_reference_that_is_no_model_is_refused_by_field_and_file(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"^training\.reference: '/nowhere' .*/nowhere/config\.json cannot be read"):
        wiring.run_input(referring("/nowhere"))
    with pytest.raises(ConfigError, match=r"config\.json is no configuration"):
        require_trainable(referring(folder_of(tmp_path / "list", [])))
    with pytest.raises(ConfigError, match=r"config\.json is no configuration"):
        require_trainable(referring(folder_of(tmp_path / "other", {"model_type": "made_up"})))
    empty = folder_of(tmp_path / "empty", LLAMA)
    (tmp_path / "empty" / "model.safetensors").unlink()
    with pytest.raises(ConfigError, match=r"no \*\.safetensors"):
        require_trainable(referring(empty))


def test_a_reference_of_another_shape_than_the_policy_is_refused(tmp_path: Path) -> None:
    own = build_model(SORT_DIGITS, 0).config.to_dict()
    with pytest.raises(ConfigError, match=r"another vocab_size than the policy: 22, and not 21.*leave it out"):
        require_trainable(referring(folder_of(tmp_path / "words", own | {"vocab_size": 22})))
    with pytest.raises(ConfigError, match=r"another model\.layers\.0\.mlp\.down_proj\.weight"):
        require_trainable(referring(folder_of(tmp_path / "wide", own | {"intermediate_size": 128})))
    wiring.run_input(referring(folder_of(tmp_path / "like", own)))


def test_a_reference_does_not_travel_to_rented_machines_and_is_found_from_any_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ConfigError, match="do not travel"):
        require_trainable(referring("model", provider="skypilot", store="s3://b/p"))
    monkeypatch.chdir(tmp_path)
    changed = RunSpec().model_copy(update=absolute_training(referring("model")))
    assert changed.training == TrainingSpec(kl_weight=0.1, reference=f"{tmp_path}/model")
    assert absolute_training(RunSpec()) == {}


@pytest.mark.parametrize(
    ("changes", "ranks"),
    [({}, 2), ({"intermediate_size": 90}, 4), ({"intermediate_size": 90, "num_attention_heads": 3}, 2)],
    ids=["MLP width", "KV heads", "heads"],
)
def test_a_model_that_does_not_divide_by_the_ranks_is_not_rented_for(
    changes: dict[str, object], ranks: int, tmp_path: Path
) -> None:
    weights = folder_of(tmp_path / "model", LLAMA | changes)
    with pytest.raises(ConfigError, match=rf"^training\.layout: tp with training\.ranks {ranks} .*/config\.json"):
        require_trainable(cut(ranks, weights=weights))
    require_trainable(cut(1, weights=weights))
    require_trainable(cut(None, weights=weights))


def test_the_tasks_own_policy_is_cut_by_what_divides_it() -> None:
    with pytest.raises(ConfigError, match="do not all divide by 3 ranks a machine; ranks that divide them: 1, 2, 4"):
        wiring.run_input(cut(3))
    wiring.run_input(cut(4))


def test_rented_gpus_cut_by_themselves_only_the_model_that_was_planned(tmp_path: Path) -> None:
    planned = {"num_attention_heads": 28, "num_key_value_heads": 4, "intermediate_size": 18944, "model_type": "qwen2"}
    require_trainable(cut(None, provider="skypilot", weights=folder_of(tmp_path / "planned", planned)))
    with pytest.raises(ConfigError, match=r"set training\.ranks, or"):
        require_trainable(cut(None, provider="skypilot"))
    require_trainable(cut(2, provider="skypilot"))
