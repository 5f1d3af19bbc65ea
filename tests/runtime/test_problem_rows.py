from pathlib import Path

import pytest

from hexcloud.domain.errors import ConfigError
from hexcloud.domain.task import TaskSpec
from hexcloud.runtime.problem_rows import read_hf, read_jsonl

SPEC = TaskSpec(name="jsonl:x")


def read(path: Path, text: str, spec: TaskSpec = SPEC) -> list[tuple[str, str]]:
    path.write_text(text)
    rows, lines = read_jsonl(path, spec), sum(1 for line in text.splitlines() if line.strip())
    return sorted((rows.problem(0, index).question, rows.problem(0, index).answer) for index in range(lines))


def test_each_line_is_a_problem_and_empty_lines_are_none(tmp_path: Path) -> None:
    text = '{"prompt": "1+1", "answer": "2"}\n\n{"prompt": "2+2", "answer": 4, "more": true}\n'
    assert read(tmp_path / "p.jsonl", text) == [("1+1", "2"), ("2+2", "4")]


@pytest.mark.parametrize("inside", ["\u2028", "\u2029", "\u0085"])
def test_only_a_newline_ends_a_row(tmp_path: Path, inside: str) -> None:
    path = tmp_path / "p.jsonl"
    text = f'{{"prompt": "a{inside}b", "answer": "1"}}\r\n{{"prompt": "c", "answer": "2"}}\r\n'
    path.write_bytes(text.encode())
    rows = read_jsonl(path, SPEC)
    assert {rows.problem(0, index).question for index in range(2)} == {f"a{inside}b", "c"}


def test_fields_may_have_other_names_and_answers_other_kinds(tmp_path: Path) -> None:
    spec = TaskSpec(name="jsonl:x", prompt="question", answer="tests")
    assert read(tmp_path / "p.jsonl", '{"question": "q", "tests": ["a", 1]}', spec) == [("q", '["a", 1]')]


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ('{"prompt": "x"', "p.jsonl:2: not JSON"),
        ('["x", "y"]', "p.jsonl:2: a row must be an object"),
        ('{"question": "x", "answer": "y"}', "p.jsonl:2: no field 'prompt' .*fields: question, answer.*`prompt:`"),
        ('{"prompt": "x"}', "p.jsonl:2: no field 'answer'"),
        ('{"prompt": "", "answer": "y"}', "p.jsonl:2: prompt must be a text that is not empty"),
        ('{"prompt": 3, "answer": "y"}', "p.jsonl:2: prompt must be a text"),
        ('{"prompt": "x", "answer": null}', "p.jsonl:2: answer is null"),
    ],
)
def test_a_broken_row_is_named_by_file_line_and_field(tmp_path: Path, line: str, complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint):
        read(tmp_path / "p.jsonl", f'{{"prompt": "1", "answer": "1"}}\n{line}\n')


def test_a_missing_an_empty_and_a_binary_file_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read"):
        read_jsonl(tmp_path / "none.jsonl", SPEC)
    with pytest.raises(ConfigError, match="has no row"):
        read(tmp_path / "p.jsonl", "\n")
    (tmp_path / "b.jsonl").write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigError, match="cannot be read"):
        read_jsonl(tmp_path / "b.jsonl", SPEC)


def test_a_data_set_is_read_from_a_folder_or_a_parquet_file_and_never_downloaded(tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets", reason="the extra `hf` is not installed")
    rows = datasets.Dataset.from_dict({"prompt": ["a", "b"], "answer": ["1", "2"]})
    rows.save_to_disk(tmp_path / "saved")
    datasets.DatasetDict({"test": rows}).save_to_disk(tmp_path / "splits")
    rows.to_parquet(tmp_path / "rows.parquet")
    for name in (f"{tmp_path}/saved", f"{tmp_path}/splits:test", f"{tmp_path}/rows.parquet"):
        found = read_hf(name, SPEC)
        assert {found.problem(0, index).answer for index in range(2)} == {"1", "2"}
    with pytest.raises(ConfigError, match="is not on this machine"):
        read_hf("nobody/has-this", SPEC)
