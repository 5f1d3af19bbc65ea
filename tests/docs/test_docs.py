"""The docs tell the truth: commands and code run, links lead somewhere, every field and command is there."""

import os
import re
import shlex
from pathlib import Path

import pytest
import typer.main
from pydantic import BaseModel

from hexcloud import wiring
from hexcloud.adapters.files import load_policy, load_run_spec, load_yaml, policy_root
from hexcloud.adapters.fleet_file import load_fleet
from hexcloud.adapters.markets.trace import load_trace
from hexcloud.cli import app, main
from hexcloud.domain.policy import Policy, ReplanSchedule
from hexcloud.domain.run import RunSpec
from hexcloud.domain.task import TaskSpec
from hexcloud.domain.training import TrainingSpec

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "SCOPE.md")] + sorted((ROOT / "docs").rglob("*.md"))
RUN_YAML = ROOT / "docs" / "run-yaml.md"
OWN_MACHINES = ROOT / "docs" / "how-to" / "own-machines.md"
OWN_TRACE = ROOT / "docs" / "how-to" / "own-price-trace.md"
SAFE = ("plan", "catalog", "status", "--help")
"""Commands that rent nothing and end at once."""
MODELS: dict[str, type[BaseModel]] = {
    "run.yaml": RunSpec,
    "Training": TrainingSpec,
    "Tasks": TaskSpec,
    "Policies": Policy,
    "Schedules": ReplanSchedule,
}
"""Heading in docs/run-yaml.md -> what its table describes."""


def blocks(page: Path, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL)


def commands(page: Path) -> list[str]:
    lines = [line for block in blocks(page, "console") for line in block.splitlines()]
    words = [shlex.split(part, comments=True) for line in lines for part in line.split("#")[0].split(";")]
    return [shlex.join(word[1:]) for word in words if word[:1] == ["hexcloud"] and word[1:2] and word[1] in SAFE]


COMMANDS = sorted({command for page in PAGES for command in commands(page)})
PYTHON = [(page, index) for page in PAGES for index in range(len(blocks(page, "python")))]


def rows(heading: str) -> dict[str, list[str]]:
    """The table below a heading of docs/run-yaml.md: field -> its other cells."""
    section = re.split(r"^## ", RUN_YAML.read_text(), flags=re.MULTILINE)
    text = next(part for part in section if part.startswith(heading + "\n"))
    cells = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in text.splitlines() if line[:2] == "| "]
    return {row[0].strip("`| "): row[1:] for row in cells if len(row) == 5 and row[0].startswith("`")}


def spelt(default: object) -> str:
    """A default as YAML spells it."""
    match default:
        case None:
            return "null"
        case bool():
            return str(default).lower()
        case tuple():
            return f"[{', '.join(map(str, default))}]"
        case float():
            return f"{default:g}"
        case ReplanSchedule():
            return f"{{every: {default.every}}}"
        case TaskSpec():
            return default.name
        case TrainingSpec():
            return "{}"
    return str(default)


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A reader's folder: the files that the docs speak of, and a run that has not rented anything yet."""
    monkeypatch.setenv("HEXCLOUD_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    for name, text in zip(("fleet.yaml", "linked.yaml"), blocks(OWN_MACHINES, "yaml"), strict=True):
        (tmp_path / name).write_text(text)
    run_file, policy_file = blocks(RUN_YAML, "yaml")
    (tmp_path / "run.yaml").write_text(run_file)
    (tmp_path / "mine.yaml").write_text(policy_file)
    (tmp_path / "mine.csv").write_text(blocks(OWN_TRACE, "csv")[0])
    run = wiring.new_run(spec := RunSpec(name="night"), wiring.run_input(spec), samples_per_s=10.0)
    wiring.run_dir(run).create()
    wiring.open_store().save_run(run)
    return tmp_path


@pytest.mark.parametrize("command", COMMANDS)
def test_command_of_the_docs_runs(command: str, desk: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code = main(shlex.split(command))
    said = capsys.readouterr()
    assert code == 0, said.err
    assert said.out


@pytest.fixture
def price_desk(desk: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The same with SkyPilot's catalog files, one of whose machines has six GPUs, and a recording."""
    monkeypatch.setenv("HOME", str(desk))
    catalogs = desk / ".sky" / "catalogs" / "v8"
    header = "InstanceType,AcceleratorName,AcceleratorCount,vCPUs,MemoryGiB,Price,SpotPrice,Region,AvailabilityZone\n"
    for cloud, lines in {
        "neo": "odd6,H100-SXM,6,192,2048,21,,eu,\n",
        "aws": "p5.48xlarge,H100,8,192,2048,55.04,21.5,us-east-1,use1-az1\n"
        "p5.48xlarge,H100,8,192,2048,55.04,24.9,us-west-2,usw2-az1\n",
    }.items():
        (catalogs / cloud).mkdir(parents=True)
        (catalogs / cloud / "vms.csv").write_text(header + lines)
    (desk / "aws-2022-2024").mkdir()
    (desk / "aws-2022-2024" / "spot.csv").write_text(
        "observed_at,instance_type,region,az_id,spot_usd_per_hour\n"
        "2022-12-29,p4d.24xlarge,us-west-2,usw2-az1,12\n2024-02-01,p5.48xlarge,us-west-2,usw2-az1,40\n"
    )
    return desk


@pytest.mark.parametrize("page", ["live-prices.md", "past-prices.md"])
def test_commands_about_prices_run_one_after_the_other(
    page: str, price_desk: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Those that ask a cloud are only read: `tests/cli/test_refresh.py` asks emulators."""
    assert main(["catalog", "refresh", "--from", str(price_desk / ".sky" / "catalogs" / "v8")]) == 0
    lines = [line for block in blocks(ROOT / "docs" / "how-to" / page, "bash") for line in block.splitlines()]
    assert len(lines) > 3
    for line in lines:
        program, *words = [os.path.expanduser(word) for word in shlex.split(line, comments=True)]
        assert program == "hexcloud"
        if words[:2] == ["catalog", "refresh"] and "--from" not in words:
            catalog = getattr(typer.main.get_command(app), "commands", {})["catalog"]
            catalog.commands["refresh"].make_context("refresh", words[2:])
            continue
        code = main(words)
        assert code == 0, (line, capsys.readouterr().err)


@pytest.mark.parametrize(("page", "index"), PYTHON, ids=lambda value: getattr(value, "name", str(value)))
def test_python_of_the_docs_runs(page: Path, index: int, desk: Path) -> None:
    exec(compile(blocks(page, "python")[index], f"{page.name}[{index}]", "exec"), {})


def test_files_of_the_docs_are_read(desk: Path) -> None:
    assert load_run_spec(desk / "run.yaml").model_fields_set
    assert load_policy("./mine.yaml").name == "mine"
    assert load_fleet(desk / "fleet.yaml").market.offers
    assert load_fleet(desk / "linked.yaml").links
    assert load_trace("mine.csv").events


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    links = re.findall(r"\]\(([^)#\s]+)[^)]*\)", page.read_text())
    gone = [link for link in links if "://" not in link and not (page.parent / link).exists()]
    assert gone == []


@pytest.mark.parametrize("heading", MODELS)
def test_every_field_is_in_the_docs_with_its_default(heading: str) -> None:
    told = {field: cells[1].strip("`") for field, cells in rows(heading).items()}
    true = {
        name: spelt(field.get_default(call_default_factory=True))
        for name, field in MODELS[heading].model_fields.items()
    }
    assert told == true


@pytest.mark.parametrize("heading", MODELS)
def test_every_example_value_is_valid(heading: str, tmp_path: Path) -> None:
    for field, cells in rows(heading).items():
        file = tmp_path / "example.yaml"
        file.write_text(cells[3].strip("`"))
        assert load_yaml(file, MODELS[heading]).model_fields_set == {field}


def test_every_policy_is_in_the_docs() -> None:
    text = RUN_YAML.read_text()
    assert [file.stem for file in policy_root().glob("*.yaml") if f"| `{file.stem}` |" not in text] == []


def test_every_command_is_in_the_reference() -> None:
    reference = (ROOT / "docs" / "cli.md").read_text()
    root = typer.main.get_command(app)
    shown = [name for name, command in getattr(root, "commands", {}).items() if not command.hidden]
    assert shown
    assert [name for name in shown if f"## hexcloud {name}" not in reference] == []
