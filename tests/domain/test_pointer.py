import pytest
from hypothesis import given
from hypothesis import strategies as st

from hexcloud.domain.errors import EngineError
from hexcloud.domain.fleet import RunId
from hexcloud.domain.pointer import parse_pointer, sign_pointer, verify_pointer


@given(st.text(), st.text(), st.integers(), st.text())
def test_what_was_signed_verify_pointer(run_id: str, url: str, epoch: int, secret: str) -> None:
    assert verify_pointer(sign_pointer(RunId(run_id), url, epoch, secret), secret)


def test_a_changed_field_or_another_secret_is_not_authentic() -> None:
    pointer = sign_pointer(RunId("run"), "http://10.0.0.1:9000", 3, "secret")
    assert not verify_pointer(pointer, "other")
    assert not verify_pointer(pointer.model_copy(update={"url": "http://10.0.0.2:9000"}), "secret")
    assert not verify_pointer(pointer.model_copy(update={"epoch": 4}), "secret")
    assert not verify_pointer(pointer.model_copy(update={"run_id": RunId("ruin")}), "secret")
    assert not verify_pointer(pointer.model_copy(update={"signature": "é"}), "secret")


def test_a_pointer_is_read_by_its_own_run_only() -> None:
    pointer = sign_pointer(RunId("run"), "http://10.0.0.1:9000", 3, "secret")
    text = pointer.model_dump_json()
    assert parse_pointer(text, RunId("run"), "secret") == pointer
    for run_id, secret in ((RunId("other"), "secret"), (RunId("run"), "other")):
        with pytest.raises(EngineError, match=f"not signed for run {run_id}"):
            parse_pointer(text, run_id, secret)


@pytest.mark.parametrize("text", ["", "{", b"\xff", '{"run_id": "run"}'])
def test_what_is_no_pointer_is_no_pointer_yet(text: str | bytes) -> None:
    with pytest.raises(EngineError, match="no pointer"):
        parse_pointer(text, RunId("run"), "secret")
