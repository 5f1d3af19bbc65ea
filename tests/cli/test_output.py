import json

import pytest

from hexcloud.cli.output import FILE_WIDTH, console, print_json, say


def test_results_and_messages_never_mix(capsys: pytest.CaptureFixture[str]) -> None:
    print_json({"a": [1.5, None]})
    say("hello")
    console(as_json=True).print("table")
    said = capsys.readouterr()
    assert json.loads(said.out) == {"a": [1.5, None]}
    assert said.err == "hello\ntable\n"


def test_names_of_rows_are_words_and_not_styles(capsys: pytest.CaptureFixture[str]) -> None:
    console().print("stock[red]")
    assert capsys.readouterr().out == "stock[red]\n"


def test_what_is_no_number_in_json_is_refused() -> None:
    with pytest.raises(ValueError, match="JSON"):
        print_json({"a": float("nan")})


def test_a_file_has_a_width_of_its_own() -> None:
    assert console().width == FILE_WIDTH
