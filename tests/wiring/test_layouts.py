import json
from pathlib import Path

import pytest

from hexcloud import wiring
from hexcloud.adapters.files import find_model
from hexcloud.domain.run import RunSpec
from hexcloud.domain.training import LayoutKind, TrainingSpec
from hexcloud.wiring.layouts import layouts_of

EVERY = tuple(LayoutKind)
WITHOUT_TP = (LayoutKind.FSDP, LayoutKind.HSDP)
LLAMA = {
    "model_type": "llama",
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "intermediate_size": 14336,
}


def test_the_layout_that_the_user_names_is_the_only_one() -> None:
    spec = RunSpec(training=TrainingSpec(layout=LayoutKind.TP, minibatches=2))
    job = wiring.workload_of(spec)
    assert (job.layouts, job.minibatches) == ((LayoutKind.TP,), 2)
    assert wiring.workload_of(RunSpec()).layouts == EVERY


def test_several_ranks_a_machine_cut_only_a_model_that_is_known_to_be_like_the_planned_one() -> None:
    model = find_model("Qwen2.5-7B")
    rented = RunSpec(provider="skypilot")
    assert layouts_of(rented, model) == WITHOUT_TP
    assert layouts_of(RunSpec(training=TrainingSpec(ranks=2)), model) == WITHOUT_TP
    assert layouts_of(RunSpec(provider="skypilot", training=TrainingSpec(ranks=1)), model) == EVERY


@pytest.mark.parametrize(
    ("changes", "layouts"),
    [({}, EVERY), ({"num_key_value_heads": 4}, WITHOUT_TP), ({"model_type": "qwen3"}, WITHOUT_TP)],
    ids=["alike", "other heads", "other family"],
)
def test_a_folder_of_weights_says_whether_it_is(
    changes: dict[str, object], layouts: tuple[LayoutKind, ...], tmp_path: Path
) -> None:
    (tmp_path / "config.json").write_text(json.dumps(LLAMA | changes))
    spec = RunSpec(weights=str(tmp_path), training=TrainingSpec(ranks=8))
    assert layouts_of(spec, find_model("Llama-3.1-8B")) == layouts


def test_a_folder_that_cannot_be_read_says_nothing(tmp_path: Path) -> None:
    spec = RunSpec(weights=str(tmp_path), training=TrainingSpec(ranks=8))
    model = find_model("Llama-3.1-8B")
    assert layouts_of(spec, model) == WITHOUT_TP
    (tmp_path / "config.json").write_text("[]")
    assert layouts_of(spec, model) == WITHOUT_TP
