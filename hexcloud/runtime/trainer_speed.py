"""How much of the GPUs' peak training makes use of. Pure."""

from hexcloud.domain.command import NodeSpec

_FLOPS_FORWARD_BACKWARD = 6
"""Per parameter and token: 2 forward, 4 backward (Kaplan et al., arXiv 2001.08361). Attention over the context, and
what checkpointing computes again, are not counted: it is the model's own arithmetic."""
_FLOPS_FORWARD = 2


def mfu(tokens_per_s: float, parameters: int, ranks: int, spec: NodeSpec) -> float | None:
    """Return the share of the ranks' peak that these trained tokens/s are; None where the peak is not known."""
    if spec.rank_tflops is None:
        return None
    return tokens_per_s * flops_per_token(parameters, spec) / (ranks * spec.rank_tflops * 1e12)


def flops_per_token(parameters: int, spec: NodeSpec) -> float:
    """Return FLOPs of a trained token: forward, backward, and forward passes of other policies that a loss needs."""
    training = spec.training
    extra = _FLOPS_FORWARD * (training.prox_share + bool(training.kl_weight))
    return parameters * (_FLOPS_FORWARD_BACKWARD + extra)
