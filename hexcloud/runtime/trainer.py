"""A rank of the trainer. Rank 0 takes batches from the coordinator, and publishes; the others do as it says.

    python -m hexcloud.runtime.trainer --spec node.json --url http://HOST:PORT [--epoch N]
    python -m hexcloud.runtime.trainer --spec node.json --world WORLD --place 1

Each rank 0 trains in an epoch of its own. A version is on disk before it is published, and a checkpoint is of a
published version: so nothing that was trained after it counts as trained when a later epoch goes on from it.
"""

import argparse
import os
import signal
import sys
import time
from pathlib import Path

import structlog
import torch

from hexcloud.domain.command import NodeSpec
from hexcloud.domain.errors import EngineError
from hexcloud.domain.messages import Batch, Evaluation, Rendezvous, StepReport
from hexcloud.domain.metrics import StepNumbers
from hexcloud.domain.world import World
from hexcloud.runtime.checkpoint import Counters
from hexcloud.runtime.checkpoint_index import newest_checkpoint, next_epoch
from hexcloud.runtime.open_task import open_task
from hexcloud.runtime.tasks import CharacterTask
from hexcloud.runtime.trainer_board import Board
from hexcloud.runtime.trainer_crew import Crew, Seat
from hexcloud.runtime.trainer_link import TrainerLink
from hexcloud.runtime.trainer_meeting import Meeting
from hexcloud.runtime.trainer_model import accuracy
from hexcloud.runtime.trainer_pace import GangPace
from hexcloud.runtime.trainer_speed import mfu
from hexcloud.runtime.trainer_start import beginning
from hexcloud.runtime.trainer_stop import TerminatedError, Termination
from hexcloud.runtime.trainer_weights import Shelf, deliver, vocabulary_files

log = structlog.get_logger()

_EVALUATION_PROBLEMS = 512
_EVALUATION_SEED = 777
"""The same problems before and after."""

EXIT_TERMINATED = 143
"""128 + SIGTERM: ended on request with a checkpoint, not with a result."""


class Trainer:
    """Rank 0 of one training run."""

    def __init__(self, crew: Crew, spec: NodeSpec, link: TrainerLink, termination: Termination) -> None:
        """`crew` is this rank's, of a world that is yet to be formed."""
        self._crew = crew
        self._spec = spec
        self._link = link
        self._termination = termination
        self._run_dir = Path(spec.run_dir)
        self._task = open_task(spec.task, spec.weights)
        self._pace = GangPace(spec.emulation.samples_per_s if spec.emulation else None)
        self._board = Board(self._run_dir)
        self._checkpointed = -1

    def run(self, epoch: int | None) -> None:
        """Train until the coordinator says done; `epoch` None: the first that no checkpoint has.

        Raises EngineError, TerminatedError (a checkpoint is written), torch's errors when another rank is lost.
        """
        with self._termination.interruptible():
            self._counters = self._start(epoch)
        self._publish_start()
        try:
            while not self._train_next():
                pass
        except TerminatedError:
            self._checkpoint()
            self._crew.end()
            raise
        finally:
            self._board.close()
        self._finish()
        self._crew.end()

    def _start(self, asked: int | None) -> Counters:
        """Load the newest checkpoint into a new epoch, or warm up a new policy."""
        free = next_epoch(self._run_dir)
        epoch = free if asked is None else asked
        if epoch < free:
            raise EngineError(f"there is a checkpoint of epoch {free - 1}; go on with a later one than {epoch}")
        counters = self._crew.begin(lambda: beginning(self._spec, newest_checkpoint(self._run_dir)))
        if counters is not None:
            log.info("resumed", checkpoint=f"{counters.epoch}-{counters.version}", epoch=epoch)
            return counters.model_copy(update={"epoch": epoch})
        return Counters(epoch=epoch, version=0, trained_samples=0, accuracy_before=self._accuracy())

    def _publish_start(self) -> None:
        counters = self._counters
        self._checkpoint()
        self._shelf = Shelf(self._run_dir, counters.epoch, self._spec.training.precision)
        self._tell("before", counters.accuracy_before)
        self._link.publish(self._report(StepNumbers()))
        self._tell_formed()
        log.info("ready", epoch=counters.epoch, version=counters.version, accuracy=counters.accuracy_before)

    def _train_next(self) -> bool:
        """Wait for a batch and train it. Returns whether the run is done."""
        waiting_since_s = time.monotonic()
        while True:
            with self._termination.interruptible():
                batch = self._link.batch()
            if batch.checkpoint:
                self._checkpoint()
            if batch.done:
                return True
            if batch.rewrite:
                self._shelf.restore(self._crew.gather(), self._published)
                log.warning("weights_rewritten", version=self._counters.version)
            if batch.world is not None:
                self._heed(batch.world)
            if batch.groups:
                self._train(batch, time.monotonic() - waiting_since_s)
                return False
            self._crew.wait()

    def _heed(self, world: World) -> None:
        """Become the world that is asked for, once all who join it are there. One without `before` is not for us."""
        if world.generation <= self._crew.world.generation or not world.before:
            return
        if world.before != self._crew.world.nodes:  # a machine was lost just as the change was made
            raise EngineError(f"world {world.generation} is not made from the one that trains; all begin anew")
        if len(world.union) > 1 and not world.store:
            self._link.rendezvous(Rendezvous(generation=world.generation, store=self._crew.listen()))
        if self._crew.is_ready(world) and self._may_begin(world):
            self._crew.resize(world)
            self._tell_formed()
            log.info("resized", generation=world.generation, ranks=world.size, version=self._counters.version)

    def _may_begin(self, world: World) -> bool:
        begun = Rendezvous(generation=world.generation, store=self._crew.address, is_begun=True)
        return self._link.rendezvous(begun)

    def _tell_formed(self) -> None:
        world = self._crew.world
        self._link.rendezvous(Rendezvous(generation=world.generation, store=self._crew.address, is_formed=True))

    def _train(self, batch: Batch, wait_s: float) -> None:
        before, begun_s = self._counters, time.monotonic()
        if batch.version != before.version:
            raise EngineError(f"the batch is for version {batch.version}, this trainer is at {before.version}")
        numbers = self._crew.train(batch.groups, before)
        samples = sum(len(group.samples) for group in batch.groups)
        self._counters = before.model_copy(
            update={
                "version": before.version + 1,
                "trained_samples": before.trained_samples + samples,
                "cursor": batch.cursor,
            }
        )
        report = self._report(numbers)
        # The rest of the emulated gang's compute.
        share = len(self._crew.world.nodes) / self._spec.gang
        time.sleep(max(0.0, self._pace.end_s(begun_s, samples, share) - time.monotonic()))
        report = self._timed(report, time.monotonic() - begun_s, wait_s)
        self._link.publish(report)
        self._board.step(report)
        log.info("step", version=report.version, reward=round(report.reward, 3), wait_s=round(wait_s, 3))
        if report.version % self._spec.checkpoint_every == 0:
            self._checkpoint()

    def _timed(self, report: StepReport, busy_s: float, wait_s: float) -> StepReport:
        times = {
            "busy_s": busy_s,
            "wait_s": wait_s,
            "tokens_per_s": report.trained_tokens / busy_s,
            "mfu": mfu(report.trained_tokens / busy_s, self._crew.parameters, report.ranks, self._spec),
        }
        return report.model_copy(update=times)

    def _report(self, numbers: StepNumbers) -> StepReport:
        """Write the current version to disk and describe it."""
        counters = self._counters
        published = self._shelf.put(self._crew.gather(), counters.version)
        file = self._published = published.file
        return StepReport(
            epoch=counters.epoch,
            version=counters.version,
            path=str(file.path),
            sha256=file.sha256,
            size=file.size,
            delta=published.delta,
            checkpoint_version=self._checkpointed,
            ranks=self._crew.world.size,
            **numbers.model_dump(),
        )

    def _checkpoint(self) -> None:
        if self._checkpointed == self._counters.version:
            return
        info = self._crew.save(self._counters)
        self._checkpointed = info.version
        log.info("checkpoint", name=info.path.name)

    def _finish(self) -> None:
        """Leave the result; only then say so: whoever hears it may end this machine."""
        self._checkpoint()
        vocabulary = vocabulary_files(self._task, self._spec.weights)
        deliver(Path(self._spec.output), self._crew.gather(), vocabulary, self._spec.training.precision)
        after = self._accuracy()
        self._tell("after", after)
        self._link.finish()
        log.info("finished", version=self._counters.version, accuracy=after, output=self._spec.output)

    def _tell(self, when: str, accuracy: float | None) -> None:
        if accuracy is not None:
            self._link.evaluation(Evaluation(when=when, accuracy=accuracy))
            self._board.accuracy(accuracy, self._counters.version)

    def _accuracy(self) -> float | None:
        """Return the accuracy of a tiny policy. Of a pretrained one it would take longer than many steps."""
        if not isinstance(self._task, CharacterTask):
            return None
        return accuracy(self._crew.gather(), self._task, _EVALUATION_PROBLEMS, _EVALUATION_SEED)


def main() -> int:
    """Train as the specification says; return the exit code."""
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso"),
            structlog.processors.JSONRenderer(),
        ],
        cache_logger_on_first_use=True,
    )
    torch.set_num_threads(1)  # two are slower beside three rollout nodes on two cores (measured)
    args = _parse()
    spec = NodeSpec.model_validate_json(args.spec.read_text())
    world = World.model_validate_json(args.world) if args.world else World(nodes=(spec.node_id,))
    crew = Crew(Seat(spec, args.place), world, Meeting(args.host))
    if args.url:
        return _lead(crew, spec, args)
    Path(world.sign_of_life(args.place)).touch()
    return _follow(crew)


def _lead(crew: Crew, spec: NodeSpec, args: argparse.Namespace) -> int:
    """Be rank 0."""
    termination = Termination()
    link = TrainerLink(args.url, os.environ["HEXCLOUD_NODE_TOKEN"], spec.ca_pem)
    try:
        if crew.world.size > 1:
            address = crew.listen()
            link.rendezvous(Rendezvous(generation=crew.world.generation, store=address))
        Trainer(crew, spec, link, termination).run(args.epoch)
    except TerminatedError:
        log.info("terminated")
        return EXIT_TERMINATED
    finally:
        link.close()
    return 0


def _follow(crew: Crew) -> int:
    """Be another rank: it ends with rank 0, with its machine's program, or when it is told to, and no sooner."""
    for notice in (signal.SIGTERM, signal.SIGINT):
        signal.signal(notice, signal.SIG_IGN)
    crew.follow()
    return 0


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="hexcloud.runtime.trainer")
    parser.add_argument("--spec", type=Path, default=Path("node.json"), help="the node's specification")
    parser.add_argument("--url", default=os.environ.get("HEXCLOUD_COORDINATOR_URL"), help="the coordinator, for rank 0")
    parser.add_argument("--epoch", type=int, help="default: the first that no checkpoint has")
    parser.add_argument("--world", help="the ranks there shall be (JSON); default: this one")
    parser.add_argument("--place", type=int, default=0, help="among the processes of this machine")
    parser.add_argument("--host", default="127.0.0.1", help="where rank 0 is reached by the others")
    args = parser.parse_args()
    if not args.url and not args.world:
        parser.error("--url or HEXCLOUD_COORDINATOR_URL must say where the coordinator is, or --world where rank 0 is")
    return args


if __name__ == "__main__":
    sys.exit(main())
