from hexcloud.admission.groups import EPOCH_STRIDE, GroupBook, OpenGroup, Prompt, lease_id
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
    book.pop_waiting()
    book.pop_waiting()
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
