from hexcloud.appraise.doubt import flag, quarantine, reject
from hexcloud.domain.market import Outcome


def test_each_kind_of_doubt_carries_its_outcome() -> None:
    made = [make("rule", "price", "because") for make in (reject, quarantine, flag)]
    assert [doubt.outcome for doubt in made] == [Outcome.REJECT, Outcome.QUARANTINE, Outcome.FLAG]
    assert {doubt[1:] for doubt in made} == {("rule", "price", "because")}
