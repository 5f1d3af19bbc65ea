"""A controller on real processes: when prices fall a second machine joins the trainer, when they rise it leaves."""

import sys
import time
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from hexcloud.adapters.clock import RunClock
from hexcloud.adapters.coordinator import Credentials, HttpCoordinator
from hexcloud.adapters.metrics import read_steps
from hexcloud.adapters.provisioners.local import LocalProvisioner
from hexcloud.adapters.store import SqliteStore
from hexcloud.controller.outside import EmulationPlan, Ports, RunSecrets, Timing
from hexcloud.controller.reconcile import ENDED, Controller
from hexcloud.domain.fleet import Node, NodeStatus
from hexcloud.domain.market import Market
from hexcloud.domain.messages import POINTER_FILE, RunView
from hexcloud.domain.metrics import METRICS_FILE
from hexcloud.domain.plan import Role
from hexcloud.domain.policy import Objective, Policy
from hexcloud.domain.run import RunRecord
from hexcloud.domain.training import TrainingSpec
from hexcloud.runtime.checkpoint import Counters, save_checkpoint
from hexcloud.runtime.trainer_ranks import Ranks
from hexcloud.simulator.clock import VirtualClock
from hexcloud.simulator.world import small_market, small_run, small_workload
from hexcloud.wiring.run import LOCAL_WEIGHT_BYTES
from tests.runtime.training import ALONE, small_model, state_of

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

POLICY = Policy(
    objective=Objective.MAX_THROUGHPUT,
    max_usd_per_hour=46.0,
    min_dwell_s=1.0,
    survival_share=0.0,
    clouds=("lambda",),
)
"""In the small market this buys one machine that trains and one for rollout; at 0.8 of its prices one trainer more."""
WORKLOAD = small_workload().model_copy(update={"prox_share": 0.75})
"""Heavy enough for its trainer that one machine of it holds a rollout machine back."""
SCALE = 10.0
WAIT_S = 300.0


class Prices:
    """A market that is as cheap as the test says. Implements ports.MarketSource."""

    factor = 1.0

    def market(self, _now_s: float) -> Market:
        market = small_market()
        priced = tuple(one.model_copy(update={"usd_per_hour": one.usd_per_hour * self.factor}) for one in market.offers)
        return market.model_copy(update={"offers": priced})


class Resized:
    """One run on this machine, and its controller."""

    def __init__(self, folder: Path) -> None:
        clock = VirtualClock(time.time(), time.time(), SCALE)
        run = small_run(clock, POLICY, steps=100_000, workload=WORKLOAD)
        self.folder, self.prices, self.secrets = folder, Prices(), RunSecrets(b"0123456789abcdef")
        self.run: RunRecord = run.model_copy(update={"run_dir": str(folder), "output": str(folder / "output")})
        self.store = SqliteStore(folder / "hexcloud.db")
        self.store.save_run(self.run)
        self.provisioner = LocalProvisioner(folder, RunClock.of(self.run))
        keys = (self.secrets.run_secret, self.secrets.controller_token)
        self.line = HttpCoordinator(
            folder / POINTER_FILE, Credentials(run_id=self.run.id, secret=keys[0], token=keys[1])
        )
        self.begin()

    def begin(self) -> None:
        """Have a controller that knows nothing but what is stored."""
        ports = Ports(
            clock=RunClock.of(self.run),
            market=self.prices,
            provisioner=self.provisioner,
            coordinator=lambda: self.line,
            store=self.store,
            secrets=self.secrets,
            emulation=EmulationPlan(SCALE, LOCAL_WEIGHT_BYTES),
            timing=Timing(poll_s=0.5, silent_rollout_s=60.0),
            python=sys.executable,
        )
        self.controller = Controller(self.run, ports)

    def until(self, is_reached: Callable[[], bool], what: str) -> None:
        gives_up_at = time.monotonic() + WAIT_S
        while not is_reached():
            if time.monotonic() > gives_up_at:
                logs = [path.read_text()[-1500:] for path in sorted(self.folder.glob("nodes/*/node.log"))]
                pytest.fail("\n".join([f"{what}: not within {WAIT_S} s", *logs]))
            self.controller.reconcile_once()
            time.sleep(0.5)

    def trainers(self) -> list[Node]:
        return [node for node in self.store.nodes(self.run.id) if node.role is Role.TRAINER]

    def view(self) -> RunView | None:
        return self.store.view(self.run.id)

    def ranks(self) -> list[int]:
        """The number of ranks that trained each step so far."""
        return [row.ranks for row in read_steps(self.folder / METRICS_FILE)]

    def trains_on(self, ranks: int) -> bool:
        return self.ranks()[-3:] == [ranks] * 3


@pytest.fixture
def resized(tmp_path: Path) -> Iterator[Resized]:
    counters = Counters(epoch=0, version=0, trained_samples=0, accuracy_before=0.0)
    save_checkpoint(tmp_path, counters, state_of(small_model(), TrainingSpec()), Ranks(0, ALONE))  # spares a warm start
    resized = Resized(tmp_path)
    yield resized
    resized.controller.stop("the test is over")
    resized.until(lambda: resized.store.runs()[0].state in ENDED, "the end")
    assert resized.provisioner.list_nodes(resized.run.id) == ()
    resized.store.close()
    resized.line.close()


def test_the_trainer_grows_and_shrinks_with_the_market_and_loses_no_step(resized: Resized) -> None:
    resized.until(lambda: resized.trains_on(1), "steps of one rank")
    (head,) = resized.trainers()
    epoch = getattr(resized.view(), "epoch", None)

    resized.prices.factor = 0.8
    resized.until(lambda: len(resized.trainers()) == 2, "the intent to rent a second machine")
    resized.begin()  # its controller dies in the middle
    resized.until(lambda: resized.trains_on(2), "steps of two ranks")
    assert [node.status for node in resized.trainers()] == [NodeStatus.READY] * 2
    joiner = resized.trainers()[1]
    assert joiner.is_joiner and set(resized.provisioner.list_nodes(resized.run.id)) >= {head.id, joiner.id}

    resized.prices.factor = 1.0
    resized.until(lambda: resized.trainers()[1].status is NodeStatus.DRAINING, "the order to leave")
    resized.begin()
    resized.until(lambda: resized.trainers()[1].status is NodeStatus.GONE, "the end of the joiner")
    assert joiner.id not in resized.provisioner.list_nodes(resized.run.id)
    resized.until(lambda: resized.trains_on(1), "steps of one rank again")

    view, rows = resized.view(), read_steps(resized.folder / METRICS_FILE)
    assert view is not None and (view.head, view.epoch) == (head.id, epoch), "no restart, and the same head"
    assert [node.id for node in resized.trainers()] == [head.id, joiner.id], "nothing was rented twice"
    assert all(later.version == earlier.version + 1 for earlier, later in pairwise(rows)), "no step was lost"
    assert max(view.staleness_histogram) <= resized.run.workload.eta
