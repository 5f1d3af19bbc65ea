"""The calls to SkyPilot: whoever stands in for it in tests must have them all, as they are."""

import inspect

import pytest

from hexcloud.adapters.provisioners.sky_api import SkyApi
from hexcloud.adapters.provisioners.sky_calls import SkyCalls, TaskRefusedError
from tests.adapters.provisioners.sky_stand_in import SkyStandIn

CALLS = [name for name in vars(SkyCalls) if not name.startswith("_")]


@pytest.mark.parametrize("call", CALLS)
def test_the_stand_in_is_asked_as_skypilot_is(call: str) -> None:
    words = list(inspect.signature(getattr(SkyCalls, call)).parameters)
    for one in (SkyApi, SkyStandIn):
        assert list(inspect.signature(getattr(one, call)).parameters) == words


def test_a_refused_task_keeps_what_refused_it() -> None:
    error = ValueError("no such machine")
    assert TaskRefusedError(error).error is error and "no such machine" in str(TaskRefusedError(error))
