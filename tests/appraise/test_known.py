from hexcloud.appraise.known import Known
from hexcloud.domain.offer import OfferId

OURS, OTHER = OfferId("aws/r/-/big/spot"), OfferId("aws/r/-/small/spot")


def test_a_word_for_one_rule_frees_that_rule_only() -> None:
    known = Known(vouched=frozenset({(OURS, "step")}))
    assert known.vouches(OURS, "step")
    assert not known.vouches(OURS, "far_too_cheap")
    assert not known.vouches(OTHER, "step")


def test_a_star_frees_every_rule_of_its_offer() -> None:
    known = Known(vouched=frozenset({(OURS, "*")}))
    assert known.vouches(OURS, "step") and known.vouches(OURS, "missing_part")
    assert not known.vouches(OTHER, "step")
