"""The error tree. Each error is named by what the caller does next.

HexcloudError
  ConfigError             the user's file is wrong: file, key, allowed values; exit 2
  PlanError
    InfeasibleError       carries the rules that clash and the nearest feasible ask; keep the old plan
    SolverStoppedError    the solver stopped before its proof: no plan from it
  ProvisionError          carries the offer id
    CapacityError         sold out: block the pool, back off, re-plan
    QuotaError            account limit: block the family and region, tell the user
    RateLimitError        back off, same offer
    PartListError         some places did not answer: use what the others listed
    NotYetError           still starting or stopping: ask again next turn
    CredentialsError      stop and tell the user
    UnknownProvisionError bounded tries, then the next offer
  BudgetError             the money asked for cannot buy what was asked; nothing is rented
  MarketError             a source failed or lied: keep the last good prices with their age
  EngineError             an engine or the trainer did not answer in time: node lost, re-plan
    UnreadableError       it answered, and what it said cannot be read: it lives, nobody is to be ended for it
    RequestRefusedError   the engine is well and this request is not: ask for the others without it
  StoreError              the store is gone: hold, spend nothing new
"""

from collections.abc import Mapping


class HexcloudError(Exception):
    """Anything hexcloud raises on purpose."""


class ConfigError(HexcloudError):
    """The user's input is wrong. The message names the file, the field and the mend."""


class PlanError(HexcloudError):
    """No plan could be made."""


class InfeasibleError(PlanError):
    """No allocation meets the ask.

    `rules` are names of MILP rows that clash (`stock[...]`, `train_rate`, ...). `nearest_samples_per_s` is the largest
    feasible throughput under the same rules (0 when nothing is feasible), `nearest_usd_per_hour` what it costs.
    """

    def __init__(
        self,
        message: str,
        rules: tuple[str, ...] = (),
        nearest_samples_per_s: float = 0.0,
        nearest_usd_per_hour: float | None = None,
    ) -> None:
        super().__init__(message)
        self.rules = rules
        self.nearest_samples_per_s = nearest_samples_per_s
        self.nearest_usd_per_hour = nearest_usd_per_hour


class SolverStoppedError(PlanError):
    """The solver hit its node limit without an answer of the proven gap."""


class ProvisionError(HexcloudError):
    """A machine could not be rented or ended. Carries the offer's id and the provider's raw code."""

    def __init__(self, message: str, offer_id: str = "", code: str = "") -> None:
        super().__init__(message)
        self.offer_id = offer_id
        self.code = code


class CapacityError(ProvisionError):
    """Sold out: block type, zone and tenure, back off, re-plan."""


GLOBAL_GPUS = "GPUS_ALL_REGIONS"
"""Code of a QuotaError of a limit over all regions: Google names it in the message only."""


class QuotaError(ProvisionError):
    """An account limit: block the family and region, or with GLOBAL_GPUS the cloud's GPUs, and tell the user."""


class RateLimitError(ProvisionError):
    """Asked too often: back off, same offer."""


class NotYetError(ProvisionError):
    """Still starting or stopping: ask again next turn. A launch on the way says in which `phase` it is."""

    def __init__(self, message: str, offer_id: str = "", code: str = "", phase: str = "") -> None:
        super().__init__(message, offer_id, code)
        self.phase = phase
        """`provision` until the machines exist, then `setup` until their program was started."""


class PartListError(ProvisionError):
    """Not every place answered: what the others listed counts, and of these places nothing is known.

    `listed` are ids of nodes. `silent` is `cloud/region` -> why it gave no answer.
    """

    def __init__(self, listed: tuple[str, ...], silent: Mapping[str, ProvisionError]) -> None:
        super().__init__("; ".join(f"{place}: {why}" for place, why in silent.items()))
        self.listed = listed
        self.silent = dict(silent)


class CredentialsError(ProvisionError):
    """The account refused us: stop and tell the user."""


class UnknownProvisionError(ProvisionError):
    """A code nobody mapped: bounded tries, then the next offer."""


class BudgetError(HexcloudError):
    """The budget cannot buy what was asked. `least_usd` is the least spend that makes sense."""

    def __init__(self, message: str, least_usd: float = 0.0) -> None:
        super().__init__(message)
        self.least_usd = least_usd


class MarketError(HexcloudError):
    """A market source failed or lied: keep the last good prices with their age."""


class EngineError(HexcloudError):
    """An engine or trainer failed or did not answer in time."""


class UnreadableError(EngineError):
    """It answered, so it lives; but what it said is not what was asked for, or that it has failed at it."""


class RequestRefusedError(EngineError):
    """An engine will not serve a request, or one of several that were asked for together; others it may well serve."""


class StoreError(HexcloudError):
    """The store is gone: hold, and spend nothing new."""
