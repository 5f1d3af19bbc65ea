"""What the inside needs of the outside. Adapters and the simulator implement these; nothing here has behaviour."""

from collections.abc import Callable, Iterator
from typing import Protocol, runtime_checkable

from hexcloud.domain.command import Command
from hexcloud.domain.event import Event
from hexcloud.domain.fleet import Billed, Look, Node, NodeId, Rented, RunId
from hexcloud.domain.generation import EngineInfo, Generation, GenerationRequest, PauseMode
from hexcloud.domain.ledger import LedgerEntry
from hexcloud.domain.market import Market, Quota
from hexcloud.domain.messages import RunView
from hexcloud.domain.offer import Offer, OfferId
from hexcloud.domain.plan import ExecutionPlan, Placement, Role
from hexcloud.domain.policy import ReplanSchedule
from hexcloud.domain.prices import Held, PastPart, PriceBook, PriceChange, Refresh, Voucher
from hexcloud.domain.row import Belief, Part
from hexcloud.domain.run import RunRecord, RunState
from hexcloud.domain.world import GangPlan


class Clock(Protocol):
    """The run clock (prices, dwell, horizon, ledger) and real time (heartbeats, leases)."""

    def now_s(self) -> float:
        """Return run-clock seconds since the epoch."""
        ...

    def wall_s(self) -> float:
        """Return real seconds since the epoch."""
        ...

    def sleep(self, wall_s: float) -> None:
        """Wait for real seconds (the simulator jumps)."""
        ...


class MarketSource(Protocol):
    """Where offers come from."""

    def market(self, now_s: float) -> Market:
        """Return the believed market at this run-clock moment. Raises MarketError."""
        ...


class PriceSource(Protocol):
    """A catalog or a cloud's own API that lists prices."""

    def fetch(self) -> Iterator[Part]:
        """Yield the answer of each region as it arrives. A region that fails yields a Part with its problem.

        Never raises for what the outside does wrong: with no credentials, say, one Part for region `*` carries it.

        Every region that the source lists gets its Part, good or failed: of one that gets none, nothing is listed now.
        """
        ...


@runtime_checkable
class PastSource(Protocol):
    """A source that also knows what its prices were."""

    @property
    def kept_days(self) -> float:
        """Return how many days back it knows."""
        ...

    def past(self, days: float) -> Iterator[PastPart]:
        """Yield what each region's prices were in the last days, as it arrives. Never raises, as `fetch`."""
        ...


class PriceStore(Protocol):
    """The memory of prices: every accepted change, what waits, who vouched. Raises StoreError when it is gone."""

    def save_part(self, part: Part, beliefs: tuple[Belief, ...], latest_s: float = ...) -> int | None:
        """Keep one region's answer: changes of believed rows, rows in quarantine, quotas; return the changes.

        Rows and quotas of the same source and region that it no longer lists are recorded as gone. A part with a
        problem changes nothing but the list of refreshes. A part older than the last good one of its source and region
        changes nothing at all: None; but a good one after `latest_s`, seconds since the epoch, was dated by a wrong
        clock and is no reason.
        """
        ...

    def save_past(self, changes: tuple[PriceChange, ...]) -> int:
        """Keep believed changes older than any known of their source and offer, all or none; return how many were."""
        ...

    def book(self) -> PriceBook:
        """Return everything that a market is made from, as of one moment."""
        ...

    def current(self) -> tuple[Belief, ...]:
        """Return the last believed row of every (source, offer) still listed; `as_of` is when it was last confirmed."""
        ...

    def doubts(self) -> tuple[Belief, ...]:
        """Return the rows of the last answers that were not accepted as they stood."""
        ...

    def said(self, source: str) -> tuple[Belief, ...]:
        """Return the rows of a source's last good answers, each with its outcome."""
        ...

    def held(self) -> tuple[Held, ...]:
        """Return the rows in quarantine."""
        ...

    def quotas(self) -> tuple[Quota, ...]:
        """Return the last known account limits."""
        ...

    def history(self, offer_id: OfferId) -> tuple[PriceChange, ...]:
        """Return every accepted change of an offer's price, all sources, oldest first."""
        ...

    def refreshes(self) -> tuple[Refresh, ...]:
        """Return the last refresh of every (source, cloud, region)."""
        ...

    def vouch(self, voucher: Voucher, fallen: tuple[Belief, ...] = ()) -> None:
        """Remember that the user or a bill confirms an offer, or takes that back: then these prices are dropped."""
        ...

    def vouchers(self) -> tuple[Voucher, ...]:
        """Return all of them."""
        ...

    def save_rate(self, currency: str, usd_per_unit: float, at_s: float) -> None:
        """Remember what one unit of a currency is worth."""
        ...

    def rates(self) -> dict[str, float]:
        """Return USD for one unit of each currency the user gave a rate for."""
        ...

    def mark(self) -> int:
        """Return a number that grows with every change of anything here, whatever clocks say. Cheap."""
        ...


class Provisioner(Protocol):
    """Who rents machines. Every call may be repeated: a node id is launched at most once."""

    is_elastic: bool
    """Can one machine of a gang be rented after the others, and end without them? Else gangs come and go whole."""

    def launch(self, nodes: tuple[Node, ...], offer: Offer, commands: tuple[Command, ...]) -> None:
        """Start one machine, or a whole gang in rank order, each under its node's id: all of it or nothing.

        Never blocks for long: the first call begins, and while machines are on the way every call raises NotYetError
        with its phase. Returns once all of them exist, are set up and have started their program; so does a call after
        a restart of the caller. A refusal is raised as the ProvisionError that says what to do next, once everything
        half-made was released.
        """
        ...

    def terminate(self, node_id: NodeId) -> None:
        """Ask for the end of a machine, and it may be of its whole gang; unknown or ended ids are fine.

        Raises a ProvisionError when the end was refused or may not have been heard.
        """
        ...

    def list_nodes(self, run_id: RunId) -> tuple[NodeId, ...]:
        """Return ids of all machines of the run that still exist (and bill), as the cloud itself says.

        Raises PartListError when some places did not answer.
        """
        ...


@runtime_checkable
class Biller(Protocol):
    """A provisioner that also knows since when a machine bills, and until when."""

    def billed(self) -> tuple[Billed, ...]:
        """Return the machines that the last `list_nodes` saw, those that ended lately among them. Asks nobody.

        A node has several where a try to launch it was given up. Of one that a cloud says nothing of there is none.
        """
        ...


class Roll(Protocol):
    """Every machine with our tags in one place, whatever run it is of."""

    @property
    def name(self) -> str:
        """Return what a user calls the place: `aws`."""
        ...

    def look(self) -> Look:
        """Return the machines that exist, as the place itself says, and where it says nothing."""
        ...

    def end(self, machines: tuple[Rented, ...]) -> None:
        """Ask for their end, all at once; those that have ended are fine. Raises ProvisionError."""
        ...


class Coordinator(Protocol):
    """The controller's line to the run's coordinator. Every call raises EngineError when it does not answer."""

    def view(self) -> RunView:
        """Return the run as the coordinator knows it."""
        ...

    def renew(self, run_until_s: float, gang: GangPlan | None = None) -> None:
        """Extend the spend lease of the whole fleet, wall seconds since the epoch; say what is planned of the gang."""
        ...

    def admit(self, node_id: NodeId, token_sha256: str, role: Role, revoke: tuple[NodeId, ...] = ()) -> None:
        """Let a node register with this token, as this; revoke others."""
        ...

    def drain(self, node_id: NodeId) -> None:
        """Tell a node to finish what it holds and to exit."""
        ...

    def stop(self, reason: str) -> None:
        """Tell the run to checkpoint, write its output and say `done`."""
        ...


class Engine(Protocol):
    """An inference engine beside the rollout agent. Calls block and may come from several threads at once.

    Every call raises EngineError when the engine refuses, fails or does not answer.
    """

    def generate(self, requests: tuple[GenerationRequest, ...]) -> tuple[Generation, ...]:
        """Return one generation per request, in order, when all have ended. RequestRefusedError of one refuses all."""
        ...

    def update_weights_from_disk(self, path: str, version: int) -> None:
        """Load `model.safetensors` of a directory between two decode steps. Running requests go on under it."""
        ...

    def pause(self, mode: PauseMode) -> None:
        """Stop decoding; requests that arrive meanwhile are held."""
        ...

    def resume(self) -> None:
        """Go on after `pause`."""
        ...

    def abort(self, rids: tuple[str, ...]) -> None:
        """End these requests with the tokens they have; unknown ids are ignored."""
        ...

    def abort_all(self) -> None:
        """End every open request with the tokens it has."""
        ...

    def is_healthy(self) -> bool:
        """Does it answer? Never raises."""
        ...

    def info(self) -> EngineInfo:
        """Return which weights are loaded."""
        ...


class Objects(Protocol):
    """A run's store that every machine reaches: whole objects by name. Every call raises StoreError when it is away."""

    def put(self, name: str, content: bytes) -> None:
        """Write an object, in the place of any before."""
        ...

    def create(self, name: str, content: bytes) -> bool:
        """Write an object where there is none, and return True; of several that try at once one gets it."""
        ...

    def upload(self, name: str, path: str) -> None:
        """Write a file's content as an object."""
        ...

    def get(self, name: str) -> bytes | None:
        """Return an object, None when there is none of the name."""
        ...

    def download(self, name: str, path: str) -> None:
        """Write an object's content to a file. Raises DamagedError for an absent one: a marker promised it."""
        ...

    def list(self, prefix: str) -> tuple[str, ...]:
        """Return the names below `prefix/`, sorted."""
        ...

    def delete(self, names: tuple[str, ...]) -> None:
        """Remove objects; absent ones are fine."""
        ...


class Authority(Protocol):
    """A run's certificate authority. The same run has the same one again, on whatever machine."""

    @property
    def ca_pem(self) -> str:
        """Return its certificate: public, and all that a client needs."""
        ...

    def certificate(self, node_id: NodeId) -> str:
        """Return the certificate (PEM, public) that a head shows."""
        ...

    def private_key(self, node_id: NodeId) -> str:
        """Return that head's secret key, in one line."""
        ...


class Timer(Protocol):
    """Calls back on a schedule of the run clock, from a thread of its own."""

    def start(self, schedule: ReplanSchedule, callback: Callable[[], None]) -> None:
        """Begin. Raises ConfigError for a schedule that cannot be read."""
        ...

    def stop(self) -> None:
        """End; no callback runs afterwards."""
        ...


class Store(Protocol):
    """The run's memory, which outlives the controller. Raises StoreError when it is gone."""

    def save_run(self, run: RunRecord) -> None:
        """Insert or replace a run."""
        ...

    def run(self, run_id: RunId) -> RunRecord | None:
        """Return one run."""
        ...

    def runs(self) -> tuple[RunRecord, ...]:
        """Return all runs, newest first."""
        ...

    def set_run_state(self, run_id: RunId, state: RunState, reason: str) -> None:
        """Change a run's state."""
        ...

    def save_node(self, node: Node) -> None:
        """Insert or replace a node. Written before the provider is called: this is the intent."""
        ...

    def nodes(self, run_id: RunId) -> tuple[Node, ...]:
        """Return all nodes of a run ever recorded, in order of request."""
        ...

    def save_plan(self, run_id: RunId, plan: ExecutionPlan, placement: Placement) -> None:
        """Remember the accepted placement and the plan it comes from."""
        ...

    def plan(self, run_id: RunId) -> tuple[ExecutionPlan, Placement] | None:
        """Return the accepted plan."""
        ...

    def add_event(self, run_id: RunId, event: Event) -> None:
        """Append to the run's history."""
        ...

    def events(self, run_id: RunId, after: int = 0) -> tuple[tuple[int, Event], ...]:
        """Return (sequence number, event) with a number over `after`."""
        ...

    def last_event(self, run_id: RunId) -> Event | None:
        """Return the event added last, or None. Cheap, however long the history is."""
        ...

    def add_ledger(self, run_id: RunId, entries: tuple[LedgerEntry, ...]) -> None:
        """Append spans of spend, all or none."""
        ...

    def ledger(self, run_id: RunId) -> tuple[LedgerEntry, ...]:
        """Return all spans of a run."""
        ...

    def spent_usd(self, run_id: RunId) -> float:
        """Return the sum of the ledger."""
        ...

    def save_block(self, run_id: RunId, offer_id: OfferId, until_s: float, reason: str) -> None:
        """Remember that a pool refused us, until a run-clock moment."""
        ...

    def blocks(self, run_id: RunId, now_s: float) -> dict[OfferId, str]:
        """Return the pools still blocked, with the reason."""
        ...

    def save_view(self, run_id: RunId, view: RunView) -> None:
        """Keep the last word of the coordinator, for `status`, `attach` and `report`."""
        ...

    def view(self, run_id: RunId) -> RunView | None:
        """Return it."""
        ...
