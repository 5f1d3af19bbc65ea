import hashlib
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file

from hexcloud.domain.delta import WeightsDelta
from hexcloud.domain.errors import EngineError
from hexcloud.domain.messages import WeightsManifest
from hexcloud.runtime.delta import MAGIC, apply_delta, make_delta
from hexcloud.runtime.weights import write_weights

Version = tuple[Path, WeightsManifest]
CONFIG = {"tie_word_embeddings": False}


def weights(seed: int = 0) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return {
        "a": (0.02 * torch.randn(300, 70, generator=generator)).to(torch.bfloat16),
        "b": (0.02 * torch.randn(64, generator=generator)).to(torch.bfloat16),
    }


def stepped(state: dict[str, torch.Tensor], share: float = 0.02) -> dict[str, torch.Tensor]:
    """Move this share of the weights by a step of bf16."""
    generator = torch.Generator().manual_seed(9)
    return {
        name: (one.view(torch.int16) + (torch.rand(one.shape, generator=generator) < share)).view(torch.bfloat16)
        for name, one in state.items()
    }


def stored(folder: Path, version: int, state: dict[str, torch.Tensor]) -> Version:
    file = write_weights(folder / str(version), state, CONFIG)
    return file.path, WeightsManifest(epoch=1, version=version, sha256=file.sha256, size=file.size)


@pytest.fixture
def pair(tmp_path: Path) -> tuple[Version, Version]:
    return stored(tmp_path, 3, weights()), stored(tmp_path, 4, stepped(weights()))


def test_a_delta_gives_the_very_file_that_was_published(tmp_path: Path, pair: tuple[Version, Version]) -> None:
    delta = make_delta(*pair, tmp_path / "delta")
    assert delta is not None
    assert (delta.base, delta.result) == (pair[0][1], pair[1][1])
    assert delta.size == (tmp_path / "delta").stat().st_size < 0.06 * pair[1][1].size
    assert delta.sha256 == hashlib.sha256((tmp_path / "delta").read_bytes()).hexdigest()
    apply_delta(pair[0][0], (tmp_path / "delta", delta), tmp_path / "got")
    assert (tmp_path / "got").read_bytes() == pair[1][0].read_bytes()
    assert torch.equal(load_file(tmp_path / "got")["a"], stepped(weights())["a"])
    assert not list(tmp_path.glob(".*draft"))


def test_a_delta_against_other_bytes_is_refused(tmp_path: Path, pair: tuple[Version, Version]) -> None:
    delta = make_delta(*pair, tmp_path / "delta")
    assert delta is not None
    for base in (stored(tmp_path, 1, weights(seed=5))[0], pair[1][0]):
        with pytest.raises(EngineError, match="the result is"):
            apply_delta(base, (tmp_path / "delta", delta), tmp_path / "got")
    assert not (tmp_path / "got").exists()
    assert not list(tmp_path.glob(".*draft"))


@settings(deadline=None, max_examples=60)
@given(data=st.data())
def test_no_damage_gets_through(data: st.DataObject, damaged: "Damaged") -> None:
    content = bytearray(damaged.content)
    place = data.draw(st.integers(0, len(content) - 1))
    content[place] ^= data.draw(st.integers(1, 255))
    cut = data.draw(st.integers(0, len(content) - 1))
    for one in (bytes(content[:cut]), bytes(damaged.content) + b"more"):
        with pytest.raises(EngineError):
            damaged.apply(one)
    try:  # a deflated header ends in bits that mean nothing: to change them is no damage
        assert damaged.apply(bytes(content)) == damaged.wanted
    except EngineError as error:
        assert "delta" in str(error)


class Damaged:
    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._base = stored(folder, 3, weights())
        result = stored(folder, 4, stepped(weights()))
        self.wanted = result[0].read_bytes()
        made = make_delta(self._base, result, folder / "delta")
        assert made is not None
        self._delta = made
        self.content = (folder / "delta").read_bytes()

    def apply(self, content: bytes) -> bytes:
        (self._folder / "bad").write_bytes(content)
        apply_delta(self._base[0], (self._folder / "bad", self._delta), self._folder / "got")
        return (self._folder / "got").read_bytes()


@pytest.fixture(scope="module")
def damaged(tmp_path_factory: pytest.TempPathFactory) -> Damaged:
    return Damaged(tmp_path_factory.mktemp("damaged"))


def test_a_delta_that_is_no_gain_is_not_written(tmp_path: Path) -> None:
    base, other = stored(tmp_path, 1, weights()), stored(tmp_path, 2, weights(seed=8))
    assert make_delta(base, other, tmp_path / "delta") is None
    assert not (tmp_path / "delta").exists()
    assert not list(tmp_path.glob(".*draft"))


def test_other_tensors_have_no_delta(tmp_path: Path) -> None:
    base, other = stored(tmp_path, 1, weights()), stored(tmp_path, 2, {**weights(), "c": torch.zeros(4)})
    assert make_delta(base, other, tmp_path / "delta") is None


def test_a_file_with_an_odd_byte_has_no_delta(tmp_path: Path) -> None:
    base, other = (stored(tmp_path, one, {"w": torch.full((5,), one, dtype=torch.uint8)}) for one in (1, 2))
    assert make_delta(base, other, tmp_path / "delta") is None


def test_fp32_weights_have_deltas_too(tmp_path: Path) -> None:
    state = {"w": torch.randn(5000, generator=torch.Generator().manual_seed(0))}
    moved = {"w": state["w"].clone()}
    moved["w"][::50] *= 1.0001
    base, other = stored(tmp_path, 1, state), stored(tmp_path, 2, moved)
    delta = make_delta(base, other, tmp_path / "delta")
    assert delta is not None
    apply_delta(base[0], (tmp_path / "delta", delta), tmp_path / "got")
    assert (tmp_path / "got").read_bytes() == other[0].read_bytes()


def test_a_header_that_changed_comes_along(tmp_path: Path) -> None:
    base, state = stored(tmp_path, 1, weights()), stepped(weights())
    file = write_weights(tmp_path / "2", state, {**CONFIG, "note": "x" * 300})
    other = file.path, WeightsManifest(epoch=1, version=2, sha256=file.sha256, size=file.size)
    delta = make_delta(base, other, tmp_path / "delta")
    assert delta is not None
    apply_delta(base[0], (tmp_path / "delta", delta), tmp_path / "got")
    assert (tmp_path / "got").read_bytes() == file.path.read_bytes()


def test_files_of_several_blocks_and_chunks_come_through(tmp_path: Path) -> None:
    state = {"w": torch.randn(5_000_000, generator=torch.Generator().manual_seed(0)).to(torch.bfloat16)}
    base, other = stored(tmp_path, 1, state), stored(tmp_path, 2, stepped(state, 0.6))
    delta = make_delta(base, other, tmp_path / "delta")
    assert delta is not None
    assert len(delta.chunks) == 1 + delta.size // delta.chunk_bytes
    apply_delta(base[0], (tmp_path / "delta", delta), tmp_path / "got")
    assert (tmp_path / "got").read_bytes() == other[0].read_bytes()


def test_what_is_no_safetensors_file_is_named(tmp_path: Path, pair: tuple[Version, Version]) -> None:
    odd = tmp_path / "odd"
    for content in (b"", b"abc", (1 << 60).to_bytes(8, "little"), (50).to_bytes(8, "little") + b"{}"):
        odd.write_bytes(content)
        with pytest.raises(EngineError, match="odd is not a safetensors file"):
            make_delta((odd, pair[0][1]), pair[1], tmp_path / "delta")
    assert MAGIC == b"HXDELTA2", "a change of the format needs another name"


def test_a_base_that_is_gone_is_named(tmp_path: Path, pair: tuple[Version, Version]) -> None:
    delta = make_delta(*pair, tmp_path / "delta")
    assert isinstance(delta, WeightsDelta)
    with pytest.raises(EngineError, match="gone"):
        apply_delta(tmp_path / "gone", (tmp_path / "delta", delta), tmp_path / "got")
    with pytest.raises(EngineError, match="cannot be applied"):
        apply_delta(pair[0][0], (tmp_path / "gone", delta), tmp_path / "got")
