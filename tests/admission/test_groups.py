from hexcloud.admission.groups import EPOCH_STRIDE, GroupBook, OpenGroup, Prompt, lease_id
from hexcloud.domain.lease import GroupId, LeaseId
from hexcloud.domain.response import Response
from hexcloud.domain.sample import Sample

PROMPT = Prompt((1, 2), "12")


def finish(group: OpenGroup, versions: tuple[int, ...] = (0,), rewards: tuple[float, ...] = (0.0, 1.0)) -> None:
    for index, reward in enumerate(rewards):
        group.add(
            Sample(
                lease=lease_id(group.id, index),
                attempt=0,
                group=group.id,
                index=index,
                epoch=0,
                prompt_ids=(1, 2),
                tokens=(5,) * len(versions),
                logprobs=(-1.0,) * len(versions),
                versions=versions,
                reward=reward,
            )
        )


def test_a_group_counts_whole_from_the_moment_it_is_opened() -> None:
    book = GroupBook(group_size=2, epoch=0)
    book.open(PROMPT, due_step=0)
    assert book.outstanding == 2


def test_a_discarded_group_stops_counting_at_once_and_its_samples_no_longer_wait() -> None:
    book = GroupBook(group_size=2, epoch=0)
    book.discard(book.open(PROMPT, due_step=0))
    assert book.outstanding == 0
    assert book.first_waiting() is None


def test_a_requeued_sample_of_an_old_group_waits_before_new_ones_with_a_higher_attempt() -> None:
    book = GroupBook(group_size=2, epoch=0)
    old, young = book.open(PROMPT, 0), book.open(PROMPT, 0)
    for index in range(2):
        book.pop_waiting(old, index)
    assert book.first_waiting() == (young, 0)
    book.requeue(old, 1)
    assert book.first_waiting() == (old, 1)
    assert old.attempts == [0, 1]


def test_the_oldest_data_is_taken_first_whatever_the_order_of_completion() -> None:
    book = GroupBook(group_size=2, epoch=0)
    first, second = book.open(PROMPT, 0), book.open(PROMPT, 0)
    finish(first, versions=(3, 4))
    finish(second, versions=(4, 2))
    book.mark_ready(first)
    book.mark_ready(second)
    assert [group.id for group in book.take(2)] == [second.id, first.id]


def test_the_batch_in_training_counts_until_it_is_trained() -> None:
    book = GroupBook(group_size=2, epoch=0)
    group = book.open(PROMPT, 0)
    finish(group)
    book.mark_ready(group)
    book.take(1)
    assert book.outstanding == 2
    book.trained()
    assert book.outstanding == 0


def test_a_group_dropped_while_it_waited_is_not_taken() -> None:
    book = GroupBook(group_size=2, epoch=0)
    gone, kept = book.open(PROMPT, 0), book.open(PROMPT, 0)
    for group in (gone, kept):
        finish(group)
        book.mark_ready(group)
    book.discard(gone)
    assert book.ready_count == 1
    assert [group.id for group in book.take(1)] == [kept.id]


def test_equal_rewards_have_no_variance() -> None:
    book = GroupBook(group_size=2, epoch=0)
    group, other = book.open(PROMPT, 0), book.open(PROMPT, 0)
    finish(group, rewards=(1.0, 1.0))
    finish(other, rewards=(1.0, 0.5))
    assert not group.has_variance
    assert other.has_variance


def test_a_book_of_a_later_epoch_gives_ids_that_no_earlier_one_has_given() -> None:
    assert GroupBook(group_size=2, epoch=0).open(PROMPT, 0).id == 0
    assert GroupBook(group_size=2, epoch=2).open(PROMPT, 0).id == 2 * EPOCH_STRIDE


def test_a_fast_worker_gets_what_is_expected_to_be_long_and_a_slow_one_what_is_short() -> None:
    book = GroupBook(group_size=3, epoch=0)
    short, long, later = (book.open(Prompt((1,), ""), due_step) for due_step in (0, 0, 1))
    for group, tokens in ((short, 2), (long, 9), (later, 99)):
        book.pop_waiting(group, 0)
        group.add(_sample(group.id, tokens))
    assert book.next_waiting(is_fast=True) == (long, 1)
    assert book.next_waiting(is_fast=False) == (short, 1)
    short.parked[2] = Response((7,) * 20, (0.0,) * 20, (0,) * 20)
    assert book.next_waiting(is_fast=True) == (short, 2), "it is longer than its sisters already"
    for group in (short, long):
        for index in (2, 1):
            book.pop_waiting(group, index)
    assert book.next_waiting(is_fast=False) == (later, 1), "what is due later waits, however long it is"


def _sample(group: GroupId, tokens: int) -> Sample:
    return Sample(
        lease=LeaseId(f"{group}.0"), attempt=0, group=group, index=0, epoch=0, prompt_ids=(1,),
        tokens=(7,) * tokens, logprobs=(0.0,) * tokens, versions=(0,) * tokens, reward=0.0,
    )  # fmt: skip
