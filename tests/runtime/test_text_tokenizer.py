import json
from pathlib import Path

import pytest

from hexcloud.domain.errors import ConfigError
from hexcloud.runtime.text_tokenizer import TextTokenizer


def words(folder: Path, text: str) -> tuple[int, ...]:
    vocabulary = json.loads((folder / "tokenizer.json").read_text())["model"]["vocab"]
    return tuple(vocabulary[word] for word in text.split())


def test_the_chat_template_frames_system_and_question(word_folder: Path) -> None:
    tokenizer = TextTokenizer(word_folder)
    ids = tokenizer.prompt("add 3", "be brief", chat=True)
    assert ids == words(word_folder, "<s> system be brief <e> user add 3 <e> assistant")


def test_without_template_the_text_stands_alone(word_folder: Path) -> None:
    tokenizer = TextTokenizer(word_folder)
    assert tokenizer.decode(tokenizer.prompt("add 3", "", chat=False)) == "add 3"
    (word_folder / "tokenizer_config.json").write_text(json.dumps({"eos_token": {"content": "<e>"}}))
    plain = TextTokenizer(word_folder)
    assert plain.decode(plain.prompt("add 3", "be brief", chat=True)) == "be brief add 3"


def test_every_end_that_the_folder_names_ends_a_response(word_folder: Path) -> None:
    assert TextTokenizer(word_folder).eos_ids == (1,)
    (word_folder / "generation_config.json").write_text(json.dumps({"eos_token_id": [1, 5]}))
    assert TextTokenizer(word_folder).eos_ids == (1, 5)


def test_a_folder_without_end_of_text_is_refused(word_folder: Path) -> None:
    (word_folder / "tokenizer_config.json").unlink()
    with pytest.raises(ConfigError, match="eos_token_id"):
        TextTokenizer(word_folder)


def test_a_folder_without_tokenizer_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="is no tokenizer"):
        TextTokenizer(tmp_path)


def test_a_template_that_complains_or_is_broken_is_an_error_with_a_mend(word_folder: Path) -> None:
    for template in ("{{ raise_exception('no system') }}", "{% if %}", "{{ ().__class__.__bases__ }}"):
        (word_folder / "chat_template.jinja").write_text(template)
        with pytest.raises(ConfigError, match="chat: false"):
            TextTokenizer(word_folder).prompt("add", "", chat=True)


def test_a_model_knows_more_ids_than_its_tokenizer(word_folder: Path) -> None:
    assert TextTokenizer(word_folder).vocabulary_size == 64
    (word_folder / "config.json").write_text(json.dumps({"text_config": {"vocab_size": 128}}))
    assert TextTokenizer(word_folder).vocabulary_size == 128, "of a model that sees too"
    (word_folder / "config.json").write_text("{}")
    with pytest.raises(ConfigError, match=r"config.json does not say how many ids the model knows \(vocab_size\)"):
        TextTokenizer(word_folder)
