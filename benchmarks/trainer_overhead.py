"""What does our training step cost over a bare torch loop on the same batch?

The bare loop is written by hand for one device: a pass for the policy at the step's start, minibatches of the same
decoupled loss, clipping, AdamW; no metrics but the loss, and nothing that could be spread over ranks. It is given our
own packs, laid out beforehand and for nothing, and spares the first minibatch that pass, as we do: what we take longer
goes to packing, metrics and what several ranks need. Bar: the median of the ratios of neighbouring steps is at most
1.05. Beside it stands, without a bar, the loop that people write first: the batch padded. All take the same groups in
turns, in an order that turns around, and start from the same weights. They are built anew a few times, as it is worth
a few per cent either way where their tensors lie in memory. A step's time is CPU time of one thread: nothing in it
waits.
"""

import argparse
import copy
import json
import random
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from transformers import PreTrainedModel, Qwen2Config, Qwen2ForCausalLM

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from hexcloud.domain.formation import Formation
from hexcloud.domain.packing import layouts
from hexcloud.domain.sample import Group, Sample
from hexcloud.domain.training import LayoutKind, TrainingSpec
from hexcloud.runtime.loss import group_advantages
from hexcloud.runtime.tasks import SORT_DIGITS
from hexcloud.runtime.trainer_model import config_of, pad
from hexcloud.runtime.trainer_pack import Graded, Pack, make_pack
from hexcloud.runtime.trainer_policy import Form
from hexcloud.runtime.trainer_ranks import Ranks
from hexcloud.runtime.trainer_resize import spread, whole_of
from hexcloud.runtime.trainer_state import TrainingState
from hexcloud.runtime.trainer_step import Moment, TrainingStep
from tests.runtime.training import groups_of

BAR, SMOKE_BAR = 1.05, 1.25
"""The few turns of a smoke run, on whatever machine, tell a loop that has become slow, and not a hundredth."""
SETTINGS = TrainingSpec()
PROMPTS, GROUP = 32, 8
TURNS = 6


@dataclass(frozen=True)
class Size:
    name: str
    hidden: int
    layers: int


SIZES = (Size("0.13M (main job)", 64, 2), Size("4.2M", 256, 4))


def model_of(size: Size) -> PreTrainedModel:
    torch.manual_seed(0)
    config = Qwen2Config(
        vocab_size=len(SORT_DIGITS.vocabulary),
        hidden_size=size.hidden,
        intermediate_size=4 * size.hidden,
        num_hidden_layers=size.layers,
        num_attention_heads=4,
        num_key_value_heads=4,
        tie_word_embeddings=True,
    )
    return Qwen2ForCausalLM(config)


def batch_of(model: PreTrainedModel) -> tuple[Group, ...]:
    """Return a batch of the main job's size in which every group teaches something."""
    rng = random.Random(0)
    draws = []
    for _ in range(PROMPTS):
        prompt, right = SORT_DIGITS.demonstration(rng)
        members = [(prompt, right, 1.0)]
        members += [(prompt, tuple(rng.sample(right, len(right))), 0.0) for _ in range(GROUP - 1)]
        draws.append(members)
    return groups_of(model, draws, drift=0.1)


class PaddedLoop:
    """One device, by hand."""

    def __init__(self, model: PreTrainedModel) -> None:
        self.model = copy.deepcopy(model)
        self.optimizer = torch.optim.AdamW(
            self.model.parameters(), lr=SETTINGS.learning_rate, betas=(0.9, 0.95), weight_decay=0.0
        )

    def step(self, groups: tuple[Group, ...]) -> float:
        pairs = [pair for group in groups for pair in zip(group.samples, advantages_of(group), strict=True)]
        random.Random(0).shuffle(pairs)
        ids, mask, behave, advantages = tensors_of(pairs)
        with torch.no_grad():
            prox = self.logprobs(ids)
        total = 0.0
        for rows in torch.arange(len(pairs)).chunk(SETTINGS.minibatches):
            losses = losses_of(self.logprobs(ids[rows]), prox[rows], behave[rows], advantages[rows])
            total += self.update((losses * mask[rows]).sum() / mask[rows].sum())
        return total / SETTINGS.minibatches

    def logprobs(self, ids: torch.Tensor) -> torch.Tensor:
        logits: torch.Tensor = self.model(input_ids=ids[:, :-1], use_cache=False).logits
        return logits.log_softmax(-1).gather(2, ids[:, 1:, None])[..., 0]

    def update(self, loss: torch.Tensor) -> float:
        self.optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), SETTINGS.max_grad_norm)
        self.optimizer.step()
        return float(loss.detach())


class PackedLoop(PaddedLoop):
    """The same over packs that are there already."""

    def __init__(self, model: PreTrainedModel, groups: tuple[Group, ...]) -> None:
        super().__init__(model)
        graded = [Graded(*pair) for group in groups for pair in zip(group.samples, advantages_of(group), strict=True)]
        random.Random(0).shuffle(graded)
        size = len(graded) // SETTINGS.minibatches
        parts = [graded[start : start + size] for start in range(0, len(graded), size)]
        self.packs = [make_pack(layouts(part, SETTINGS.pass_tokens)[0], 0) for part in parts]

    def step(self, groups: tuple[Group, ...]) -> float:
        with torch.no_grad():
            known = [None, *(self.pack_logprobs(pack) for pack in self.packs[1:])]
        total = 0.0
        for pack, prox in zip(self.packs, known, strict=True):
            logprobs = self.pack_logprobs(pack)
            tokens = pack.tokens
            anchor = logprobs.detach() if prox is None else prox
            total += self.update(losses_of(logprobs, anchor, tokens.behave, tokens.advantages).mean())
        return total / SETTINGS.minibatches

    def pack_logprobs(self, pack: Pack) -> torch.Tensor:
        hidden = self.model.model(
            input_ids=pack.ids, position_ids=pack.positions, attention_mask=pack.mask, use_cache=False
        ).last_hidden_state
        logits: torch.Tensor = self.model.lm_head(hidden.flatten(0, 1)[pack.places])
        return logits.log_softmax(-1).gather(1, pack.targets[:, None])[:, 0]


def losses_of(
    logprobs: torch.Tensor, prox: torch.Tensor, behave: torch.Tensor, advantages: torch.Tensor
) -> torch.Tensor:
    weight = torch.exp(prox - behave)
    weight = weight * (weight <= SETTINGS.importance_cap)
    ratio = torch.exp(logprobs - prox)
    clipped = ratio.clamp(1 - SETTINGS.clip, 1 + SETTINGS.clip) * advantages
    return -weight * torch.minimum(ratio * advantages, clipped)


def advantages_of(group: Group) -> list[float]:
    return group_advantages([sample.reward for sample in group.samples])


def tensors_of(pairs: list[tuple[Sample, float]]) -> tuple[torch.Tensor, ...]:
    ids = pad([sample.prompt_ids + sample.tokens for sample, _ in pairs])
    mask, behave, advantages = (torch.zeros(len(pairs), ids.shape[1] - 1) for _ in range(3))
    for row, (sample, advantage) in enumerate(pairs):
        start = len(sample.prompt_ids) - 1
        span = slice(start, start + len(sample.tokens))
        mask[row, span] = 1.0
        behave[row, span] = torch.tensor(sample.logprobs)
        advantages[row, span] = advantage
    return ids, mask, behave, advantages


def our_step(model: PreTrainedModel) -> Callable[[tuple[Group, ...]], float]:
    ranks = Ranks(0, Formation(LayoutKind.FSDP, 1, 1))
    state = TrainingState(Form(config_of(model), SETTINGS), None)
    spread(state, ranks, dict(whole_of(model)))
    step = TrainingStep(state, ranks, SETTINGS)
    return lambda groups: step.run(groups, Moment(SETTINGS.ramp_steps, 100), random.Random(0)).loss


def timed(step: Callable[[tuple[Group, ...]], float], groups: tuple[Group, ...]) -> float:
    begun_s = time.process_time()
    step(groups)
    return time.process_time() - begun_s


def measure(size: Size, blocks: int) -> dict[str, float]:
    """Return the median seconds of a step, and the median ratios of neighbouring ones."""
    rows = [row for _ in range(blocks) for row in block(size)]
    seconds = {f"{name}_s": statistics.median(row[name] for row in rows) for name in rows[0]}
    ratios = {
        f"over_{name}": statistics.median(row["ours"] / row[name] for row in rows) for name in rows[0] if name != "ours"
    }
    return {**seconds, **ratios}


def block(size: Size) -> list[dict[str, float]]:
    """Return seconds of each step of some turns. The loops are built anew; the first losses must agree."""
    model = model_of(size)
    groups = batch_of(model)
    steps = {"ours": our_step(model), "packed": PackedLoop(model, groups).step, "padded": PaddedLoop(model).step}
    losses = [step(groups) for step in steps.values()]
    assert max(losses) - min(losses) <= 1e-4 * max(map(abs, losses)), losses
    for step in steps.values():
        step(groups)  # the first two steps of each allocate
    orders = [list(steps.items()), list(steps.items())[::-1]]
    return [{name: timed(step, groups) for name, step in orders[turn % 2]} for turn in range(TURNS)]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--smoke", action="store_true", help="the small model, and fewer turns")
    is_smoke = parser.parse_args().smoke
    torch.set_num_threads(1)
    sizes, blocks = (SIZES[:1], 2) if is_smoke else (SIZES, 7)
    print(f"{PROMPTS * GROUP} samples a step, {SETTINGS.minibatches} minibatches, one thread, {blocks} x {TURNS} turns")
    print(f"{'model':<20}{'ours s':>10}{'packed s':>10}{'ratio':>8}{'padded s':>10}{'ratio':>8}")
    found = {}
    for size in sizes:
        row = found[size.name] = measure(size, blocks)
        print(
            f"{size.name:<20}{row['ours_s']:>10.3f}{row['packed_s']:>10.3f}{row['over_packed']:>8.3f}"
            f"{row['padded_s']:>10.3f}{row['over_padded']:>8.3f}"
        )
    worst = max(row["over_packed"] for row in found.values())
    bar = SMOKE_BAR if is_smoke else BAR
    bars = {"ours_over_packed": {"value": worst, "bar": bar, "ok": worst <= bar}}
    print(json.dumps({"benchmark": "trainer_overhead", "metrics": found, "bars": bars}))
    return 0 if worst <= bar else 1


if __name__ == "__main__":
    sys.exit(main())
