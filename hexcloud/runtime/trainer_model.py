"""The trainer's model as Hugging Face has it, whole on one rank, and what is asked of it (logprobs, samples, accuracy).

Without a folder of weights it is a Qwen2 of 133,120 parameters.
"""

from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, PreTrainedModel, Qwen2Config, Qwen2ForCausalLM

from hexcloud.domain.errors import EngineError
from hexcloud.runtime.rewards import reward
from hexcloud.runtime.tasks import BOS_ID, EOS_ID, PAD_ID, CharacterTask, Task

_CONTEXT = 64
"""Most tokens of one sequence: far more than any task needs, and a cheap KV cache."""


def build_model(task: Task, seed: int, folder: str = "") -> PreTrainedModel:
    """Return the policy of a folder, else an untrained one for the task: a size that learns in minutes on two cores.

    Raises EngineError for a folder that is no Hugging Face model. Nothing is downloaded, and no code of it is run.
    """
    torch.manual_seed(seed)
    if folder:
        return read_model(folder)
    assert isinstance(task, CharacterTask)  # open_task lets no other task be without a folder
    return _small_model(task)


def read_model(folder: str) -> PreTrainedModel:
    """Read a folder of `config.json` and safetensors, in fp32. Raises EngineError."""
    if not (Path(folder) / "config.json").is_file():
        raise EngineError(f"{folder} is no Hugging Face folder: it has no config.json")
    try:
        model: PreTrainedModel = AutoModelForCausalLM.from_pretrained(
            folder, local_files_only=True, trust_remote_code=False, use_safetensors=True, dtype=torch.float32
        )
    except (OSError, ValueError, KeyError) as error:
        raise EngineError(f"{folder} cannot be read as a causal language model: {error}") from error
    return model


def _small_model(task: CharacterTask) -> Qwen2ForCausalLM:
    config = Qwen2Config(
        vocab_size=len(task.vocabulary),
        hidden_size=64,
        intermediate_size=256,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=4,
        max_position_embeddings=_CONTEXT,
        tie_word_embeddings=True,
        pad_token_id=PAD_ID,
        bos_token_id=BOS_ID,
        eos_token_id=EOS_ID,
    )
    return Qwen2ForCausalLM(config)


def config_of(model: PreTrainedModel) -> dict[str, object]:
    """Return what belongs into `config.json`."""
    config: dict[str, object] = model.config.to_dict()
    return config | {"architectures": [type(model).__name__]}


def pad(rows: list[tuple[int, ...]]) -> torch.Tensor:
    """Return ids [rows, longest], padded on the right. Causal attention never looks there, so no mask is needed."""
    longest = max(map(len, rows))
    return torch.tensor([row + (PAD_ID,) * (longest - len(row)) for row in rows])


def token_logprobs(model: PreTrainedModel, ids: torch.Tensor) -> torch.Tensor:
    """Return the logprob [rows, tokens - 1] of every token but the first, given those before it, in fp32."""
    logits: torch.Tensor = model(input_ids=ids[:, :-1]).logits
    return logits.float().log_softmax(-1).gather(2, ids[:, 1:, None])[..., 0]


@torch.no_grad()
def sample(
    model: PreTrainedModel, prompts: list[tuple[int, ...]], max_new_tokens: int, generator: torch.Generator
) -> list[tuple[int, ...]]:
    """Draw one response per prompt at temperature 1, up to and with eos. Without a cache: short and rarely used."""
    lengths = torch.tensor([len(prompt) for prompt in prompts])
    ids = torch.nn.functional.pad(pad(prompts), (0, max_new_tokens), value=PAD_ID)
    rows = torch.arange(len(prompts))
    for step in range(max_new_tokens):
        logits = model(input_ids=ids[:, : int(lengths.max()) + step]).logits[rows, lengths + step - 1]
        ids[rows, lengths + step] = torch.multinomial(logits.softmax(-1), 1, generator=generator)[:, 0]
    return [_until_eos(ids[row, start : start + max_new_tokens]) for row, start in enumerate(lengths.tolist())]


def accuracy(model: PreTrainedModel, task: Task, problems: int, seed: int) -> float:
    """Return the share of problems solved when sampling at temperature 1. The seed fixes problems and samples."""
    generator = torch.Generator().manual_seed(seed)
    drawn = [task.prompt(seed, index) for index in range(problems)]
    responses = sample(model, [prompt for prompt, _ in drawn], task.max_new_tokens, generator)
    rewards = [reward(task, response, answer) for response, (_, answer) in zip(responses, drawn, strict=True)]
    return sum(rewards) / problems


def _until_eos(tokens: torch.Tensor) -> tuple[int, ...]:
    found: list[int] = tokens.tolist()
    end = found.index(EOS_ID) + 1 if EOS_ID in found else len(found)
    return tuple(found[:end])
