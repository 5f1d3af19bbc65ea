"""TextTokenizer: a Hugging Face folder's tokenizer and chat template, without transformers.

Importing transformers takes seconds on every rollout node; `tokenizer.json` holds all that a fast tokenizer is.
"""

import json
from pathlib import Path

from jinja2 import TemplateError
from jinja2.sandbox import ImmutableSandboxedEnvironment
from tokenizers import Tokenizer

from hexcloud.domain.errors import ConfigError


class TextTokenizer:
    """Text to ids and back, as the model was trained."""

    def __init__(self, folder: Path) -> None:
        """Read it. Raises ConfigError for a folder without `tokenizer.json`, or that lacks what a run must know."""
        path = folder / "tokenizer.json"
        try:
            self._tokenizer = Tokenizer.from_file(str(path))
        except Exception as error:  # the library raises nothing more precise
            raise ConfigError(f"weights: {path} is no tokenizer: {error}") from error
        self._settings = _read(folder / "tokenizer_config.json")
        self._template = _template(folder, self._settings)
        self.eos_ids = self._find_eos(folder)
        self.vocabulary_size = _vocabulary_size(folder)
        """Rows of the model's embedding, often more than the tokenizer has ids: all that the model can answer with."""

    def prompt(self, question: str, system: str, chat: bool) -> tuple[int, ...]:
        """Return the ids that the model answers to: by the chat template when it is wanted and there is one."""
        if not (chat and self._template):
            return tuple(self._tokenizer.encode(f"{system}\n\n{question}" if system else question).ids)
        messages = [{"role": "system", "content": system}] if system else []
        text = self._render([*messages, {"role": "user", "content": question}])
        return tuple(self._tokenizer.encode(text, add_special_tokens=False).ids)

    def decode(self, ids: tuple[int, ...]) -> str:
        """Return the text of ids; special tokens have none."""
        return str(self._tokenizer.decode(list(ids)))

    def _render(self, messages: list[dict[str, str]]) -> str:
        def complain(message: str) -> None:
            raise TemplateError(message)

        # The settings and names that Hugging Face's templates are written for.
        environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
        environment.globals["raise_exception"] = complain
        special = {key: _text(self._settings.get(key)) for key in ("bos_token", "eos_token", "pad_token", "unk_token")}
        try:
            template = environment.from_string(self._template)
            return template.render(messages=messages, add_generation_prompt=True, **special)
        except TemplateError as error:
            raise ConfigError(f"the chat template cannot be used: {error}; say `chat: false` under `task:`") from error

    def _find_eos(self, folder: Path) -> tuple[int, ...]:
        """Return what ends a response: the model's own word, and its tokenizer's."""
        found: set[int] = set()
        for name in ("generation_config.json", "config.json"):
            eos = _read(folder / name).get("eos_token_id")
            found |= {one for one in (eos if isinstance(eos, list) else [eos]) if isinstance(one, int)}
        token = self._tokenizer.token_to_id(_text(self._settings.get("eos_token")))
        found |= set() if token is None else {token}
        if not found:
            raise ConfigError(f"weights: nothing in {folder} says which id ends a text (eos_token_id in config.json)")
        return tuple(sorted(found))


def _read(path: Path) -> dict[str, object]:
    try:
        found = json.loads(path.read_text())
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise ConfigError(f"weights: {path} cannot be read: {error}") from error
    return found if isinstance(found, dict) else {}


def _vocabulary_size(folder: Path) -> int:
    config = _read(folder / "config.json")
    inner = config.get("text_config")  # of a model that is more than text
    for found in (config, inner if isinstance(inner, dict) else {}):
        size = found.get("vocab_size")
        if isinstance(size, int) and size > 0:
            return size
    raise ConfigError(f"weights: {folder / 'config.json'} does not say how many ids the model knows (vocab_size)")


def _template(folder: Path, settings: dict[str, object]) -> str:
    path = folder / "chat_template.jinja"
    found = path.read_text() if path.exists() else settings.get("chat_template")
    return found if isinstance(found, str) else ""


def _text(token: object) -> str:
    """Return a special token's text: it is written as a text or as an object around it."""
    content = token.get("content") if isinstance(token, dict) else token
    return content if isinstance(content, str) else ""
