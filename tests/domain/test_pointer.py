from hypothesis import given
from hypothesis import strategies as st

from hexcloud.domain.fleet import RunId
from hexcloud.domain.pointer import sign_pointer, verify_pointer


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
