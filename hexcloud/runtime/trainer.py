"""The trainer's process: takes batches from the coordinator, trains, publishes.

    python -m hexcloud.runtime.trainer --spec node.json --url http://HOST:PORT [--epoch N]

Each process trains in an epoch of its own. A version is on disk before it is published, and a checkpoint is of a
published version: so nothing that was trained after it counts as trained when a later epoch goes on from it.
"""

import argparse
import os
import random
import sys
import time
from pathlib import Path

import structlog
import torch

from hexcloud.domain.command import NodeSpec
from hexcloud.domain.errors import EngineError
from hexcloud.domain.messages import Batch, Evaluation, StepReport
from hexcloud.runtime.checkpoint import Counters, load_checkpoint, save_checkpoint
from hexcloud.runtime.checkpoint_index import newest_checkpoint, next_epoch
from hexcloud.runtime.open_task import open_task
from hexcloud.runtime.tasks import CharacterTask
from hexcloud.runtime.trainer_board import Board
from hexcloud.runtime.trainer_link import TrainerLink
from hexcloud.runtime.trainer_model import accuracy, build_model
from hexcloud.runtime.trainer_pace import GangPace
from hexcloud.runtime.trainer_step import StepNumbers, StepSettings, TrainingStep, make_optimizer
from hexcloud.runtime.trainer_stop import TerminatedError, Termination
from hexcloud.runtime.trainer_warmup import WarmupSettings, warm_start
from hexcloud.runtime.trainer_weights import Shelf, deliver, vocabulary_files

log = structlog.get_logger()

_EVALUATION_PROBLEMS = 512
_EVALUATION_SEED = 777
"""The same problems before and after."""

EXIT_TERMINATED = 143
"""128 + SIGTERM: ended on request with a checkpoint, not with a result."""


class Trainer:
    """One training run in one process."""

    def __init__(self, spec: NodeSpec, epoch: int | None, link: TrainerLink, termination: Termination) -> None:
        """Build an untrained policy. `epoch` None: the first that no checkpoint has."""
        self._spec = spec
        self._epoch = epoch
        self._link = link
        self._termination = termination
        self._run_dir = Path(spec.run_dir)
        self._task = open_task(spec.task, spec.weights)
        self._model = build_model(self._task, spec.seed, spec.weights or "")
        settings = StepSettings()
        self._optimizer = make_optimizer(self._model, settings)
        self._step = TrainingStep(self._model, self._optimizer, settings)
        self._pace = GangPace(spec.emulation.samples_per_s if spec.emulation else None)
        self._board = Board(self._run_dir)
        self._checkpointed = -1

    def run(self) -> None:
        """Train until the coordinator says done. Raises EngineError, TerminatedError (a checkpoint is written)."""
        with self._termination.interruptible():
            self._counters = self._start()
        self._publish_start()
        try:
            while not self._train_next():
                pass
        except TerminatedError:
            self._checkpoint()
            raise
        finally:
            self._board.close()
        self._finish()

    def _start(self) -> Counters:
        """Load the newest checkpoint into a new epoch, or warm up a new policy."""
        info, free = newest_checkpoint(self._run_dir), next_epoch(self._run_dir)
        epoch = free if self._epoch is None else self._epoch
        if epoch < free:
            raise EngineError(f"there is a checkpoint of epoch {free - 1}; go on with a later one than {epoch}")
        if info is not None:
            counters = load_checkpoint(info, self._model, self._optimizer)
            log.info("resumed", checkpoint=info.path.name, epoch=epoch)
            return counters.model_copy(update={"epoch": epoch})
        if isinstance(self._task, CharacterTask):
            warm_start(self._model, self._task, self._spec.seed, WarmupSettings())
        return Counters(epoch=epoch, version=0, trained_samples=0, accuracy_before=self._accuracy())

    def _publish_start(self) -> None:
        counters = self._counters
        self._checkpoint()
        self._shelf = Shelf(self._run_dir, counters.epoch)
        self._tell("before", counters.accuracy_before)
        self._link.publish(self._report(StepNumbers(reward=0.0, tokens=0)))
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
                self._shelf.restore(self._model, self._published)
                log.warning("weights_rewritten", version=self._counters.version)
            if batch.groups:
                self._train(batch, time.monotonic() - waiting_since_s)
                return False

    def _train(self, batch: Batch, wait_s: float) -> None:
        before, begun_s = self._counters, time.monotonic()
        if batch.version != before.version:
            raise EngineError(f"the batch is for version {batch.version}, this trainer is at {before.version}")
        # The order of samples follows from where the run stands, so a resumed run needs no stored state for it.
        rng = random.Random(f"{self._spec.seed}/{before.epoch}/{before.version}")
        numbers = self._step.run(batch.groups, before.version, rng)
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
        time.sleep(max(0.0, self._pace.end_s(begun_s, samples) - time.monotonic()))
        report = report.model_copy(update={"busy_s": time.monotonic() - begun_s, "wait_s": wait_s})
        self._link.publish(report)
        self._board.step(report)
        log.info("step", version=report.version, reward=round(report.reward, 3), wait_s=round(wait_s, 3))
        if report.version % self._spec.checkpoint_every == 0:
            self._checkpoint()

    def _report(self, numbers: StepNumbers) -> StepReport:
        """Write the current version to disk and describe it."""
        counters = self._counters
        published = self._shelf.put(self._model, counters.version)
        file = self._published = published.file
        return StepReport(
            epoch=counters.epoch,
            version=counters.version,
            path=str(file.path),
            sha256=file.sha256,
            size=file.size,
            delta=published.delta,
            reward=numbers.reward,
            loss=numbers.loss,
            grad_norm=numbers.grad_norm,
            clip_fraction=numbers.clip_fraction,
            prox_kl=numbers.prox_kl,
            tokens=numbers.tokens,
            checkpoint_version=self._checkpointed,
        )

    def _checkpoint(self) -> None:
        if self._checkpointed == self._counters.version:
            return
        info = save_checkpoint(self._run_dir, self._counters, self._model, self._optimizer)
        self._checkpointed = info.version
        log.info("checkpoint", name=info.path.name)

    def _finish(self) -> None:
        """Leave the result; only then say so: whoever hears it may end this machine."""
        self._checkpoint()
        deliver(Path(self._spec.output), self._model, vocabulary_files(self._task, self._spec.weights))
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
        return accuracy(self._model, self._task, _EVALUATION_PROBLEMS, _EVALUATION_SEED)


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
    termination = Termination()
    args = _parse()
    spec = NodeSpec.model_validate_json(args.spec.read_text())
    link = TrainerLink(args.url, os.environ["HEXCLOUD_NODE_TOKEN"], spec.ca_pem)
    try:
        Trainer(spec, args.epoch, link, termination).run()
    except TerminatedError:
        log.info("terminated")
        return EXIT_TERMINATED
    finally:
        link.close()
    return 0


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="hexcloud.runtime.trainer")
    parser.add_argument("--spec", type=Path, default=Path("node.json"), help="the node's specification")
    parser.add_argument("--url", default=os.environ.get("HEXCLOUD_COORDINATOR_URL"), help="the coordinator")
    parser.add_argument("--epoch", type=int, help="default: the first that no checkpoint has")
    args = parser.parse_args()
    if not args.url:
        parser.error("--url or HEXCLOUD_COORDINATOR_URL must say where the coordinator is")
    return args


if __name__ == "__main__":
    sys.exit(main())
