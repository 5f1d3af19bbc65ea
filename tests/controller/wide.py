"""A world in which a replica takes two machines: the small one with L40S whose memory does not hold the model alone."""

from hexcloud.domain.market import Market
from hexcloud.domain.policy import Policy
from hexcloud.domain.workload import Workload
from hexcloud.simulator.world import small_market, small_workload

TARGET = Policy(target_samples_per_s=0.8, survival_share=0.0, gpus=("L40S", "A100"))
"""Its cheapest plan: two replicas of two L40S machines each, and one A100 machine that trains."""


def wide_market() -> Market:
    """The small one, with L40S so small that eight do not hold the model and sixteen do; and A100 that are dear."""
    listed = small_market()
    tiny = listed.gpus["L40S"].model_copy(update={"hbm_gib": 0.42})
    offers = tuple(
        offer.twin(usd_per_hour=offer.usd_per_hour * (9 if offer.gpu == "A100" else 1)) for offer in listed.offers
    )
    return listed.model_copy(update={"gpus": {**listed.gpus, "L40S": tiny}, "offers": offers})


def wide_workload() -> Workload:
    model = small_workload().model.model_copy(update={"heads": 16, "kv_heads": 8, "head_dim": 96, "intermediate": 8192})
    return small_workload().model_copy(update={"model": model, "spans": (2, 4)})
