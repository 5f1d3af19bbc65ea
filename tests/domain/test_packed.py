import math

from hypothesis import given
from hypothesis import strategies as st

from hexcloud.domain.packed import Beginning, PackedResponse, gone_on, packed_numbers
from hexcloud.domain.response import Response

VOCABULARY = 50_000
NUMBER = st.one_of(st.integers(0, VOCABULARY), st.sampled_from([-1, 2**31 - 1, -(2**31)]))
LOGPROB = st.one_of(st.floats(-20.0, 0.0, width=32), st.sampled_from([0.5, math.inf, -math.inf, math.nan]))


@st.composite
def responses(draw: st.DrawFn, logprobs: st.SearchStrategy[float] = LOGPROB) -> Response:
    rows = draw(st.lists(st.tuples(NUMBER, logprobs, st.integers(0, 3)), max_size=6))
    return Response(tuple(one for one, _, _ in rows), tuple(one for _, one, _ in rows), tuple(one for *_, one in rows))


def packed(made: Response) -> PackedResponse:
    return PackedResponse(b"".join(packed_numbers(made)), len(made.tokens))


def numbers(made: Beginning | None) -> bytes | None:
    return None if made is None else b"".join(packed_numbers(made.opened()))


@given(responses())
def test_packed_numbers_are_believed_exactly_when_open_ones_are(made: Response) -> None:
    sealed = packed(made)
    assert numbers(sealed) == numbers(made)
    assert sealed.length == made.length and sealed.is_even and made.is_even
    assert (sealed.oldest_version, sealed.newest_version) == (made.oldest_version, made.newest_version)
    assert sealed.has_ids_below(VOCABULARY) == made.has_ids_below(VOCABULARY)
    assert sealed.has_sound_logprobs == made.has_sound_logprobs


SOUND = responses(logprobs=st.floats(-20.0, 0.0, width=32))


@given(SOUND, SOUND, st.integers(-1, 7))
def test_what_goes_on_is_the_same_packed_or_not_and_never_over_a_gap(
    begun: Response, more: Response, start: int
) -> None:
    found = gone_on(begun, start, more)
    assert (found is not None) == (0 <= start <= begun.length)
    for first, second in ((packed(begun), packed(more)), (packed(begun), more), (begun, packed(more))):
        assert numbers(gone_on(first, start, second)) == numbers(found)
    if found is not None:
        kept = Response(begun.tokens[:start], begun.logprobs[:start], begun.versions[:start])
        assert found.continues(kept) and found.length == start + more.length
        joined = packed(found.opened())
        assert joined.continues(kept)
        assert joined.continues(begun) == found.continues(begun)
