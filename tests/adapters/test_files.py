from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import BaseModel

from hexcloud.adapters.files import (
    MAX_BYTES,
    catalog_root,
    find_model,
    load_factors,
    load_models,
    load_policy,
    load_run_spec,
    load_yaml,
    policy_root,
    save_factor,
)
from hexcloud.domain.calibration import Factor, Phase
from hexcloud.domain.errors import ConfigError
from hexcloud.domain.policy import Objective, Policy
from hexcloud.domain.run import RunSpec

Write = Callable[..., Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Write a file of the user and return its path."""

    def write(text: str, name: str = "run.yaml") -> Path:
        path = tmp_path / name
        path.write_text(text)
        return path

    return write


def fault(path: Path, model: type[BaseModel] = RunSpec) -> str:
    """Read a wrong file and return what the user is told, without the folder."""
    with pytest.raises(ConfigError) as caught:
        load_yaml(path, model)
    return str(caught.value).replace(f"{path.parent}/", "")


def test_a_good_file_is_read_and_what_it_leaves_out_has_its_default(write: Write) -> None:
    spec = load_run_spec(write("model: Qwen2.5-3B\nbatch: 128\nreplan: {every: 5m}\ncloud: [aws, gcp]\n"))
    assert (spec.model, spec.batch, spec.eta) == ("Qwen2.5-3B", 128, RunSpec().eta)
    assert spec.replan is not None and spec.replan.every == "5m"
    assert spec.cloud == ("aws", "gcp")


def test_an_empty_file_is_all_defaults(write: Write) -> None:
    assert load_run_spec(write("# nothing yet\n")) == RunSpec()


def test_a_misspelt_key_names_file_key_likely_key_and_line(write: Write) -> None:
    path = write("model: Qwen2.5-3B\nbudgt: 5\n")
    assert fault(path) == "run.yaml: budgt is unknown; did you mean budget? (line 2)"


def test_an_unlike_key_lists_what_is_allowed(write: Write) -> None:
    said = fault(write("zzzzzz: 5\n"))
    assert said.startswith("run.yaml: zzzzzz is unknown; allowed: batch, budget,")


def test_a_misspelt_key_inside_another_is_found(write: Write) -> None:
    path = write("replan:\n  evry: 5m\n")
    assert fault(path) == "run.yaml: replan.evry is unknown; did you mean every? (line 2)"


def test_a_wrong_value_names_the_value_and_what_it_must_be(write: Write) -> None:
    assert fault(write("batch: 0\n")) == "run.yaml: batch is 0: must be greater than 0 (line 1)"
    said = fault(write("objective: cheap\n"), Policy)
    assert said == "run.yaml: objective is 'cheap': must be 'min_cost', 'max_throughput' or 'budget_run' (line 1)"


def test_every_fault_has_its_own_line(write: Write) -> None:
    said = fault(write("batch: many\nbudgt: 5\n")).splitlines()
    assert len(said) == 2
    assert all(line.startswith("run.yaml: ") for line in said)


def test_a_repeated_key_is_refused_with_both_lines(write: Write) -> None:
    assert fault(write("eta: 1\nbatch: 64\neta: 2\n")) == "run.yaml: eta is given twice (lines 1 and 3)"


def test_broken_yaml_names_the_line(write: Write) -> None:
    said = fault(write("batch: 64\ncloud: [aws\neta: 2\n"))
    assert said.startswith("run.yaml: not valid YAML: ")
    assert "(line 3)" in said


@pytest.mark.parametrize("text", ["- 1\n- 2\n", "just words\n"])
def test_a_file_that_is_no_mapping_is_refused_in_words(write: Write, text: str) -> None:
    assert fault(write(text)).startswith("run.yaml: ")
    assert "must be keys with values" in fault(write(text))


def test_aliases_are_refused_before_they_unfold(write: Write) -> None:
    text = "a: &a [x, x]\n" + "".join(f"{c}: &{c} [*{p}, *{p}]\n" for p, c in zip("abcdefgh", "bcdefghi", strict=True))
    assert "alias" in fault(write(text))


def test_deep_nesting_is_refused(write: Write) -> None:
    assert "deep" in fault(write("[" * 50 + "]" * 50))
    assert "run.yaml" in fault(write("[" * 100_000))


def test_a_huge_file_is_refused_unread(write: Write) -> None:
    assert "KiB" in fault(write("#" * (MAX_BYTES + 1)))


def test_a_file_that_is_no_text_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "run.yaml"
    path.write_bytes(b"\xff\xfe\x00binary")
    assert fault(path) == "run.yaml: not UTF-8 text (byte 0)"


def test_tags_cannot_build_python_objects(write: Write) -> None:
    assert "not valid YAML" in fault(write("model: !!python/object/apply:os.system ['true']\n"))


def test_a_missing_file_says_so(tmp_path: Path) -> None:
    assert "cannot be read: No such file" in fault(tmp_path / "none.yaml")


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(text=st.text(alphabet=st.sampled_from("abe:- \n[]{}&*!|>'\"#?%@,0159.\t"), max_size=60))
def test_no_text_gets_past_as_another_error(tmp_path: Path, text: str) -> None:
    path = tmp_path / "run.yaml"
    path.write_text(text)
    try:
        load_run_spec(path)
    except ConfigError as error:
        assert all(line.startswith(str(path)) for line in str(error).splitlines())


@settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    spec=st.builds(
        RunSpec,
        name=st.from_regex(r"[a-c][a-c._-]{0,9}", fullmatch=True),
        batch=st.integers(1, 999),
        budget=st.none() | st.floats(0.1, 1e6),
        cloud=st.lists(st.sampled_from(["aws", "gcp"])).map(tuple),
    )
)
def test_what_is_written_is_what_is_read(tmp_path: Path, spec: RunSpec) -> None:
    path = tmp_path / "run.yaml"
    path.write_text(yaml.safe_dump(spec.model_dump(mode="json")))
    assert load_run_spec(path) == spec


def test_bundled_policies_are_found_by_name() -> None:
    assert load_policy("cheapest").objective is Objective.MIN_COST
    assert load_policy("on_demand_only").max_spot_share == 0


def test_no_bundled_policy_rents_by_a_live_price_of_over_a_week() -> None:
    limits_h = [load_policy(file.stem).max_live_price_age_h for file in policy_root().glob("*.yaml")]
    assert limits_h and all(limit_h is not None and limit_h <= 7 * 24 for limit_h in limits_h)
    assert load_policy("spot_cautious").max_live_price_age_h == 24


def test_a_misspelt_policy_names_the_likely_one() -> None:
    with pytest.raises(ConfigError, match="policy 'cheepest' is unknown; did you mean cheapest"):
        load_policy("cheepest")


def test_a_users_own_policy_is_read_by_path_and_named_after_its_file(write: Write) -> None:
    policy = load_policy(str(write("max_spot_share: 0.25\n", "mine.yaml")))
    assert (policy.name, policy.max_spot_share) == ("mine", 0.25)


def test_a_misspelt_policy_key_names_the_likely_one(write: Write) -> None:
    with pytest.raises(ConfigError, match="max_spot_shares is unknown; did you mean max_spot_share"):
        load_policy(str(write("max_spot_shares: 0.25\n", "mine.yaml")))


def test_models_are_found_whatever_their_case_and_organisation() -> None:
    assert find_model("Qwen2.5-7B").hidden == 3584
    assert find_model("Qwen/qwen2.5-7b") == find_model("Qwen2.5-7B")


def test_a_misspelt_model_names_the_likely_one() -> None:
    with pytest.raises(ConfigError, match=r"did you mean Qwen2\.5-7B"):
        find_model("Qwen2.5-7")


def test_the_roots_hold_data() -> None:
    assert (catalog_root() / "models.yaml").is_file()
    assert (policy_root() / "cheapest.yaml").is_file()
    assert "tiny-sort" in load_models()


@pytest.mark.parametrize(
    ("text", "said"),
    [("cloud: aws\n", "cloud is 'aws': must be a list, such as [aws]"), ("- 1\n", "must be keys with values")],
)
def test_no_message_speaks_of_python(write: Write, text: str, said: str) -> None:
    with pytest.raises(ConfigError) as refusal:
        load_run_spec(write(text))
    assert said in str(refusal.value)
    assert "tuple" not in str(refusal.value)
    assert "RunSpec" not in str(refusal.value)


def test_a_measured_speed_is_kept_and_replaced_by_its_key(tmp_path: Path) -> None:
    path = tmp_path / "home" / "calibration.yaml"
    assert load_factors(path) == ()
    old, other = (Factor(gpu=gpu, phase=Phase.ROLLOUT, speed=0.9, source="a day: measured") for gpu in ("H100", "L4"))
    new = old.model_copy(update={"speed": 1.1})
    for factor in (old, other, new):
        save_factor(path, factor)
    assert load_factors(path) == (new, other)


def test_a_wrong_measured_speed_is_named(write: Write) -> None:
    path = write("factors:\n- {gpu: H100, phase: rolout, speed: -1, source: me}\n", name="calibration.yaml")
    with pytest.raises(ConfigError) as caught:
        load_factors(path)
    assert "factors[0].phase is 'rolout': must be 'rollout' or 'training'" in str(caught.value)
    assert "factors[0].speed is -1: must be greater than 0" in str(caught.value)


def test_a_folder_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    (tmp_path / "home").write_text("no folder")
    with pytest.raises(ConfigError, match="cannot be written"):
        save_factor(tmp_path / "home" / "calibration.yaml", Factor(gpu="L4", phase=Phase.ROLLOUT, speed=1, source="me"))
