"""The tokenizer of a model that knows some words."""

import json
from pathlib import Path

from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import WhitespaceSplit


def make_word_folder(folder: Path) -> Path:
    """Make the folder of a tokenizer with a word for each id, `<e>` as its end, and a chat template."""
    words = ["<s>", "<e>", "<?>", "system", "user", "assistant", "be", "brief", "add", *map(str, range(10))]
    tokenizer = Tokenizer(WordLevel({word: index for index, word in enumerate(words)}, unk_token="<?>"))
    tokenizer.pre_tokenizer = WhitespaceSplit()
    tokenizer.add_special_tokens(["<s>", "<e>"])
    folder.mkdir()
    tokenizer.save(str(folder / "tokenizer.json"))
    template = (
        "{{ bos_token }}{% for message in messages %} {{ message.role }} {{ message.content }} {{ eos_token }}"
        "{% endfor %}{% if add_generation_prompt %} assistant{% endif %}"
    )
    settings = {"bos_token": "<s>", "eos_token": {"content": "<e>"}, "chat_template": template}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    (folder / "config.json").write_text(json.dumps({"vocab_size": 64}))  # rows that no word has, as real models do
    return folder
