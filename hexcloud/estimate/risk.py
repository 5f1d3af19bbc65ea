"""What being interrupted costs: the share of time a machine works, and the expected loss of a trainer gang."""

from hexcloud.domain.calibration import Calibration
from hexcloud.domain.offer import Offer, Tenure

_S_PER_H = 3600.0


def interruptions_per_hour(offer: Offer, calibration: Calibration) -> float:
    """Return how often one machine of an offer is taken away per hour; on-demand machines stay."""
    if offer.tenure is not Tenure.SPOT:
        return 0.0
    learned = offer.interruptions_per_hour
    return calibration.spot_interruptions_per_hour if learned is None else learned


def startup_s(offer: Offer | None, calibration: Calibration) -> float:
    """Return seconds from the provider's yes to the first heartbeat of one machine; None: no longer listed."""
    return calibration.startup_s if offer is None or offer.startup_s is None else offer.startup_s


def availability(offer: Offer, calibration: Calibration, machines: int = 1) -> float:
    """Return the share of time that machines of which none works without the others work: after a loss all start anew.

    One machine is a slot of its own.
    """
    missing_h = machines * interruptions_per_hour(offer, calibration) * startup_s(offer, calibration) / _S_PER_H
    return 1.0 / (1.0 + missing_h)


def gang_loss_share(offer: Offer, nodes: int, calibration: Calibration) -> float:
    """Return the share of time a gang of `nodes` loses to interruptions: each costs work redone and a restart.

    The whole fleet waits meanwhile, so the expected loss is this share of the plan's rent, USD/h.
    """
    per_hour = interruptions_per_hour(offer, calibration) * nodes
    return min(1.0, per_hour * (calibration.restart_s + startup_s(offer, calibration)) / _S_PER_H)


def startup_usd(offer: Offer, calibration: Calibration) -> float:
    """Return rent paid from the provider's yes to the first heartbeat of one machine, USD."""
    return offer.usd_per_hour * startup_s(offer, calibration) / _S_PER_H
