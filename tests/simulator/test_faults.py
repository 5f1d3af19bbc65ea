import pytest

from hexcloud.domain.errors import RateLimitError
from hexcloud.simulator.faults import Crash, Fault, Faults


def test_a_fault_strikes_the_nth_call_of_its_operation_and_no_other() -> None:
    faults = Faults((Fault(1, RateLimitError("slow down"), "launch"),))
    with faults.around("launch"), faults.around("terminate"):
        pass
    with pytest.raises(RateLimitError), faults.around("launch"):
        raise AssertionError("the call had its effect")
    with faults.around("launch"):
        pass


def test_a_fault_after_the_call_leaves_its_effect() -> None:
    effects = []
    with pytest.raises(Crash), Faults((Fault(0, Crash(), after=True),)).around("store"):
        effects.append("written")
    assert effects == ["written"]
