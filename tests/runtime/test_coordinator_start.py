from hexcloud.domain.command import NodeSpec
from hexcloud.runtime.coordinator_start import Start, terms_of
from hexcloud.runtime.tasks import SORT_DIGITS


def test_a_run_begins_at_its_beginning_unless_told_otherwise() -> None:
    assert (Start().epoch, Start().version, Start().cursor) == (0, 0, 0)


def test_the_terms_are_those_of_the_specification(rollout_spec: NodeSpec) -> None:
    terms = terms_of(rollout_spec.model_copy(update={"replace_zero_variance": True}), SORT_DIGITS)
    assert (terms.law.samples_per_step, terms.law.group_size, terms.law.eta) == (16, 4, 2)
    assert (terms.max_new_tokens, terms.vocabulary) == (10, 21) and terms.replace_zero_variance
