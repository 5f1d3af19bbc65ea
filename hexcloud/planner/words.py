"""words: what each named rule of the MILP demands, as a sentence for a reader."""

_WORDS = {
    "rollout_rate": "rollout must make the target",
    "train_rate": "the trainer gang must train the target",
    "one_gang": "one gang of equal machines in one zone must train",
    "stock": "no more machines of {} can be had",
    "quota": "the account's quota {} is used up",
    "hourly_budget": "the plan may not cost more per hour",
    "run_budget": "the samples that are left may not cost more than the money that is left",
    "deadline": "the samples must be trained before the deadline",
    "spot_share": "no more of the rollout may be on spot",
    "pools": "the plan may not use more different offers",
    "reward_cpu": "the rollout machines' CPUs must keep up with the rewards",
    "in_flight": "admission lets no more samples be in flight: (eta + 1) * samples per step",
    "staleness_reach": "making a sample and bringing new weights to its region must take at most eta steps",
    "survive": "enough rollout must remain when {} is lost",
    "require": "the plan must hold {}",
}


def rule_in_words(name: str) -> str:
    """Return what a named rule of the MILP demands; the name itself when it is not known."""
    rule, _, rest = name.partition("[")
    return _WORDS.get(rule, name).format(rest.removesuffix("]"))
