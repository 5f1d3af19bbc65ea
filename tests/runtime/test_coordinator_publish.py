from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest

from hexcloud.admission.admission import Admission, Ask, Terms
from hexcloud.admission.groups import Prompt
from hexcloud.admission.staleness import StalenessLaw
from hexcloud.domain.messages import StepReport
from hexcloud.domain.sample import Sample
from hexcloud.runtime.coordinator_metrics import RunMetrics
from hexcloud.runtime.coordinator_publish import ConflictError, Publisher
from hexcloud.runtime.coordinator_weights import PublishedWeights


class Shop:
    """A publisher, and what it publishes to."""

    def __init__(self, run_dir: Path, epoch: int = 0, version: int = 0) -> None:
        law = StalenessLaw(samples_per_step=4, group_size=2, eta=1)
        self.admission = Admission(Terms(law=law, vocabulary=9, max_new_tokens=5), epoch, version)
        self.weights = PublishedWeights(keep=3)
        self.metrics = RunMetrics(run_dir)
        self.publisher = Publisher(self.admission, self.weights, self.metrics, clock=lambda: 50.0)
        self.prompts: Iterator[int] = count()

    def publish(self, version: int, epoch: int = 0, sha256: str = "", checkpoint_version: int = -1) -> None:
        self.publisher.publish(
            StepReport(
                epoch=epoch,
                version=version,
                path=f"/{epoch}-{version}",
                sha256=sha256 or f"hash of {version}",
                size=10,
                checkpoint_version=checkpoint_version,
            )
        )

    def take_a_batch(self) -> None:
        self.admission.join("a", 4)
        ask = Ask("a", self.admission.epoch, self.admission.version, 4)
        for lease in self.admission.grant(ask, 0.0, lambda: Prompt((next(self.prompts),), "")).leases:
            sample = Sample(
                lease=lease.id,
                attempt=lease.attempt,
                group=lease.group,
                index=lease.index,
                epoch=lease.epoch,
                prompt_ids=lease.prompt_ids,
                tokens=(7,),
                logprobs=(-0.1,),
                versions=(lease.version,),
                reward=float(lease.index),
            )
            self.admission.submit("a", sample)
        assert self.admission.take()


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    shop = Shop(tmp_path)
    shop.publish(0)
    return shop


def test_a_published_version_counts_and_is_served(shop: Shop) -> None:
    shop.take_a_batch()
    shop.publish(1)
    assert shop.admission.version == 1
    assert shop.weights.path(0, 1) == Path("/0-1")
    assert shop.metrics.staleness == {0: 4}
    assert shop.metrics.last_step_at_s == 50.0


def test_a_repetition_is_harmless(shop: Shop) -> None:
    shop.take_a_batch()
    shop.publish(1)
    shop.publish(1)
    assert (shop.admission.version, shop.admission.trained_samples) == (1, 4)


def test_a_repetition_with_other_content_is_refused(shop: Shop) -> None:
    with pytest.raises(ConflictError, match="other content"):
        shop.publish(0, sha256="another")


@pytest.mark.parametrize(("version", "epoch"), [(1, 0), (2, 0), (1, 1)], ids=["no batch", "a leap", "no checkpoint"])
def test_a_version_out_of_nowhere_is_refused_and_not_served(shop: Shop, version: int, epoch: int) -> None:
    with pytest.raises(ConflictError):
        shop.publish(version, epoch)
    assert shop.weights.path(epoch, version) is None
    assert (shop.admission.epoch, shop.admission.version) == (0, 0)


def test_a_run_begins_with_the_version_it_says_it_begins_with(tmp_path: Path) -> None:
    shop = Shop(tmp_path, epoch=2, version=20)
    with pytest.raises(ConflictError, match="where the run begins"):
        shop.publish(0, epoch=2)
    shop.publish(20, epoch=2)
    assert shop.weights.path(2, 20) == Path("/2-20")


def test_a_higher_epoch_is_a_recovery_and_ends_the_one_before(shop: Shop) -> None:
    shop.take_a_batch()
    shop.publish(1)
    shop.publish(0, epoch=1)
    assert (shop.admission.epoch, shop.admission.version) == (1, 0)
    assert shop.weights.path(0, 1) is None
    with pytest.raises(ConflictError, match="abandoned"):
        shop.publish(2, epoch=0)


def test_a_trainer_may_die_before_its_first_publication(tmp_path: Path) -> None:
    shop = Shop(tmp_path)
    shop.publish(0, epoch=1)
    assert shop.weights.path(1, 0) == Path("/1-0")


def test_the_newest_checkpoint_is_remembered(shop: Shop) -> None:
    assert shop.metrics.checkpoint_version == -1
    shop.take_a_batch()
    shop.publish(1, checkpoint_version=0)
    assert shop.metrics.checkpoint_version == 0
