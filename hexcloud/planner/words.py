"""words: what each named rule demands, as a sentence for a reader, and what a user can do about it."""

from typing import NamedTuple


class Words(NamedTuple):
    """A rule in words; `{}` stands for what its name has in brackets."""

    demands: str
    mend: str = ""
    """What a user can change so that it is in the way no more; empty where nothing can be done."""


PHYSICS = frozenset({"memory", "disk", "bf16", "gpu_facts"})
"""Reasons of `screen` that no wish can change."""
ANY_DOMAIN = "any one failure domain"
ASKED_FOR = "one of the offers that were asked for"

_WORDS = {
    "rollout_rate": Words("rollout must make the target", "ask for less, or let more machines take part"),
    "train_rate": Words("the trainer gang must train the target", "ask for less"),
    "pauses": Words("engines must load new weights in less than a step", "ask for less, or raise the batch"),
    "one_gang": Words("one gang of equal machines in one zone must train", "allow other GPUs, or take a smaller model"),
    "gang_size": Words("the trainer gang may not have more machines", "raise max_gang_nodes in the policy"),
    "spot_trainer": Words("no spot machine may train", "set spot_trainer: true in the policy"),
    "stock": Words("no more machines{} can be had", "raise max_nodes_per_pool in the policy, or allow more offers"),
    "sold_out": Words("offers refused us lately", "wait, or allow more offers"),
    "quota": Words(
        "the account's quota {} is used up", "ask the cloud for more of it, or allow other clouds, regions or tenures"
    ),
    "hourly_budget": Words("the plan may not cost more per hour", "raise --max-usd-per-hour"),
    "run_budget": Words("the samples that are left may not cost more than the money that is left", "raise --budget"),
    "deadline": Words("the samples must be trained before the deadline", "raise deadline_h in the policy"),
    "spot_share": Words("no more of the rollout may be on spot", "raise max_spot_share in the policy"),
    "pools": Words("the plan may not use more different offers", "raise max_pools in the policy"),
    "reward_cpu": Words("the rollout machines' CPUs must keep up with the rewards", "make rewards cheaper in CPU time"),
    "in_flight": Words(
        "admission lets no more samples be in flight: (eta + 1) * samples per step", "raise eta, or the batch"
    ),
    "staleness_reach": Words(
        "making a sample and bringing new weights to its region must take at most eta steps", "raise eta, or the batch"
    ),
    "survive": Words("enough rollout must remain when {} is lost", "lower survival_share in the policy"),
    "require": Words("the plan must hold {}"),
    "target": Words("rollout and trainer must make the target", "ask for less"),
    "cloud": Words("only some clouds may be used", "allow more with --cloud, or leave it out"),
    "region": Words("only some regions may be used", "allow more in the policy's regions"),
    "gpu": Words("only some GPUs may be used", "allow more in the policy's gpus"),
    "tenure": Words("no spot machine may be used", "raise max_spot_share in the policy"),
    "price_age": Words(
        "prices may not be older", "run hexcloud catalog refresh, or raise max_price_age_h in the policy"
    ),
    "unproven": Words(
        "offers whose capacity looks as if it did not exist may not be used", "set try_unproven: true in the policy"
    ),
    "memory": Words("the model must fit the memory of a machine's GPUs", "take a smaller model, or allow larger GPUs"),
    "disk": Words(
        "what the run keeps must fit the largest disk that a cloud gives a machine",
        "take a smaller model, or allow other clouds",
    ),
    "bf16": Words("a GPU must know bf16", "allow newer GPUs"),
    "gpu_facts": Words("the facts of a GPU must be known", "add it to catalogs/gpus.yaml"),
}


def rule_in_words(name: str) -> str:
    """Return what a named rule demands; the name itself when it is not known."""
    rule, _, rest = name.partition("[")
    known = _WORDS.get(rule)
    return name if known is None else known.demands.format(_what(rule, rest.removesuffix("]")))


def mend_in_words(name: str) -> str:
    """Return what a user can change about a rule; empty where nobody knows."""
    known = _WORDS.get(name.partition("[")[0])
    return "" if known is None else known.mend


def _what(rule: str, rest: str) -> str:
    if rule == "stock":
        return f" of {rest}" if rest else ""
    return rest or {"survive": ANY_DOMAIN, "require": ASKED_FOR}.get(rule, "")
