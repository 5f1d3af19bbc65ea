import json

import pytest

from hexcloud.cli.refusals import RefusedError, error_fields, refuse
from hexcloud.domain.errors import BudgetError, CapacityError, ConfigError, InfeasibleError, StoreError


def test_wrong_input_exits_2_and_everything_else_1(capsys: pytest.CaptureFixture[str]) -> None:
    assert refuse(ConfigError("run.yaml: stpes is unknown"), as_json=False) == 2
    assert refuse(StoreError("gone"), as_json=False) == 1
    assert capsys.readouterr().err == "error: run.yaml: stpes is unknown\nerror: gone\n"


def test_fields_say_what_a_machine_needs() -> None:
    infeasible = InfeasibleError("no", rules=("train_rate",), nearest_samples_per_s=3.0, nearest_usd_per_hour=9.0)
    assert error_fields(infeasible) == {
        "type": "InfeasibleError",
        "message": "no",
        "rules": ["train_rate"],
        "nearest_samples_per_s": 3.0,
        "nearest_usd_per_hour": 9.0,
    }
    assert error_fields(BudgetError("too little", least_usd=4.5))["least_usd"] == 4.5
    assert error_fields(CapacityError("sold out", "a/b/c/d/spot", "ICE"))["code"] == "ICE"


def test_an_error_in_the_users_words_keeps_the_name_of_what_it_stands_for(capsys: pytest.CaptureFixture[str]) -> None:
    refuse(RefusedError("no plan", "InfeasibleError", {"nearest_target": "3 samples/s"}), as_json=True)
    shown = json.loads(capsys.readouterr().out)["error"]
    assert shown == {"type": "InfeasibleError", "message": "no plan", "nearest_target": "3 samples/s"}
