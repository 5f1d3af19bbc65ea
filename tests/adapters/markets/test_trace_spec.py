from pathlib import Path

import pytest

from hexcloud.adapters.markets.trace_spec import TraceSpec, parse_trace


@pytest.mark.parametrize(
    ("text", "parts", "is_file"),
    [
        ("demo", ("demo", "", ""), False),
        ("mine.csv", ("mine.csv", "", ""), True),
        ("./folder", ("./folder", "", ""), True),
        ("a.json.gz=aws/us-west-2/*/p3.2xlarge/spot", ("a.json.gz", "", "aws/us-west-2/*/p3.2xlarge/spot"), True),
        ("./aws@2023-06-01", ("./aws", "2023-06-01", ""), True),
        ("./aws@2023-06-01T10:00=*/spot", ("./aws", "2023-06-01T10:00", "*/spot"), True),
        ("me@home/a.csv@2023-06-01", ("me@home/a.csv", "2023-06-01", ""), True),
    ],
)
def test_a_trace_is_taken_apart(text: str, parts: tuple[str, str, str], is_file: bool) -> None:
    spec = parse_trace(text)
    assert spec == TraceSpec(*parts)
    assert spec.is_file == is_file


def test_a_path_that_exists_as_it_stands_is_whole(tmp_path: Path) -> None:
    odd = tmp_path / "day=3@home.csv"
    odd.write_text("")
    assert parse_trace(str(odd)) == TraceSpec(str(odd))


def test_a_trace_reads_the_same_from_any_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert parse_trace("demo").absolute() == "demo"
    assert parse_trace("a.csv").absolute() == f"{tmp_path}/a.csv"
    assert parse_trace("a/b.gz@2023-06-01=*/spot").absolute() == f"{tmp_path}/a/b.gz@2023-06-01=*/spot"
