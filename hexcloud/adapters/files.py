"""Files: everything a person or the catalog writes in YAML, read strictly. The only user of YAML.

A wrong file is answered with a ConfigError whose every line names the file, the key, what is wrong and what is
allowed. Unknown and repeated keys, anchors, deep nesting and huge files are refused.
"""

import difflib
from collections.abc import Iterable
from datetime import date
from pathlib import Path
from typing import Any, TypeVar, get_args

import yaml
from pydantic import BaseModel, RootModel, ValidationError
from pydantic_core import ErrorDetails

from hexcloud.adapters.catalog_models import FactorFile, GpuNameCatalog, OddCountCatalog, RateCatalog, UsualCatalog
from hexcloud.domain.calibration import Calibration, Factor
from hexcloud.domain.errors import ConfigError
from hexcloud.domain.frozen import Frozen
from hexcloud.domain.gpu import GpuSpec
from hexcloud.domain.market import EgressPrice, LinkSpec, Network
from hexcloud.domain.model import ModelSpec
from hexcloud.domain.policy import Policy
from hexcloud.domain.run import RunSpec

MAX_BYTES = 1 << 20
"""No honest configuration is larger; a huge file is a mistake, such as the name of a checkpoint."""
MAX_DEPTH = 12
POLICY_SUFFIXES = (".yaml", ".yml")

Parsed = TypeVar("Parsed", bound=BaseModel)
Location = tuple[str | int, ...]

_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class GpuCatalog(Frozen):
    """`catalogs/gpus.yaml`."""

    as_of: date
    source: str
    gpus: tuple[GpuSpec, ...]


class ModelCatalog(Frozen):
    """`catalogs/models.yaml`."""

    as_of: date
    source: str
    models: tuple[ModelSpec, ...]


class LinkCatalog(Frozen):
    """`catalogs/links.yaml`."""

    as_of: date
    source: str
    links: tuple[LinkSpec, ...]
    egress: tuple[EgressPrice, ...]


def catalog_root() -> Path:
    """Return the folder of the bundled catalogs: beside the package in a checkout, inside it in a wheel."""
    return _data_root("catalogs")


def policy_root() -> Path:
    """Return the folder of the bundled policies."""
    return _data_root("policies")


def load_run_spec(path: Path | str) -> RunSpec:
    """Read a `run.yaml`. Raises ConfigError."""
    return load_yaml(path, RunSpec)


def load_policy(name_or_path: str) -> Policy:
    """Read a bundled policy by name, or a user's own by path. Raises ConfigError."""
    path = Path(name_or_path)
    if not is_path(name_or_path, *POLICY_SUFFIXES):
        path = policy_root() / f"{name_or_path}.yaml"
        if not path.is_file():
            known = [file.stem for file in policy_root().glob("*.yaml")]
            raise ConfigError(f"policy {name_or_path!r} is unknown{suggest(name_or_path, known)}")
    policy = load_yaml(path, Policy)
    return policy if "name" in policy.model_fields_set else policy.model_copy(update={"name": path.stem})


def load_gpus(root: Path | None = None) -> dict[str, GpuSpec]:
    """Read the GPU catalog. Raises ConfigError."""
    catalog = load_yaml((root or catalog_root()) / "gpus.yaml", GpuCatalog)
    return {gpu.name: gpu for gpu in catalog.gpus}


def load_models(root: Path | None = None) -> dict[str, ModelSpec]:
    """Read the model catalog. Raises ConfigError."""
    catalog = load_yaml((root or catalog_root()) / "models.yaml", ModelCatalog)
    return {model.name: model for model in catalog.models}


def load_network(root: Path | None = None) -> Network:
    """Read forecast links and egress prices. Raises ConfigError."""
    catalog = load_yaml((root or catalog_root()) / "links.yaml", LinkCatalog)
    return Network(links=catalog.links, egress=catalog.egress)


def load_calibration(root: Path | None = None) -> Calibration:
    """Read the efficiency factors. Raises ConfigError."""
    return load_yaml((root or catalog_root()) / "calibration.yaml", Calibration)


def load_factors(path: Path) -> tuple[Factor, ...]:
    """Read measured speeds; none where there is no file. Raises ConfigError."""
    return load_yaml(path, FactorFile).factors if path.exists() else ()


def save_factor(path: Path, factor: Factor) -> None:
    """Write a measured speed into a file, in place of the one with its key. Raises ConfigError."""
    kept = {one.key: one for one in load_factors(path)} | {factor.key: factor}
    rows = [one.model_dump(mode="json") for one in kept.values()]
    text = "# Measured over estimated speed, by GPU, phase and class of models. Written by `hexcloud profile`.\n"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        draft = path.with_suffix(".tmp")
        draft.write_text(text + yaml.safe_dump({"factors": rows}, sort_keys=False), encoding="utf-8")
        draft.replace(path)
    except OSError as error:
        raise ConfigError(f"{path}: cannot be written: {error.strerror}") from error


def load_usual(root: Path | None = None) -> dict[str, float]:
    """Read what an accelerator usually costs on demand, USD per hour. Raises ConfigError."""
    catalog = load_yaml((root or catalog_root()) / "usual.yaml", UsualCatalog)
    return {price.gpu: price.usd_per_hour for price in catalog.prices}


def load_odd_counts(root: Path | None = None) -> dict[str, float]:
    """Read the machines whose odd number of accelerators is true: instance type -> number. Raises ConfigError."""
    catalog = load_yaml((root or catalog_root()) / "odd_counts.yaml", OddCountCatalog)
    return {machine.instance_type: float(machine.count) for machine in catalog.machines}


def load_rates(root: Path | None = None) -> dict[str, float]:
    """Read USD for one unit of each currency, the dollar among them. Raises ConfigError."""
    catalog = load_yaml((root or catalog_root()) / "fx.yaml", RateCatalog)
    return {"USD": 1.0} | {rate.currency: rate.usd_per_unit for rate in catalog.rates}


def load_gpu_names(root: Path | None = None) -> GpuNameCatalog:
    """Read how SkyPilot's names of accelerators and ours belong together. Raises ConfigError."""
    return load_yaml((root or catalog_root()) / "gpu_names.yaml", GpuNameCatalog)


def find_model(name: str) -> ModelSpec:
    """Return a model of the catalog; case and an organisation in front (`Qwen/...`) do not matter.

    Raises ConfigError with the likely meant name.
    """
    models = load_models()
    wanted = name.rsplit("/", 1)[-1].lower()
    for model in models.values():
        if model.name.lower() == wanted:
            return model
    raise ConfigError(f"model {name!r} is unknown{suggest(name, models)}")


def load_yaml(path: Path | str, model: type[Parsed]) -> Parsed:
    """Read one YAML file as a model. Raises ConfigError, one line per fault."""
    name = str(path)
    data, lines = _parse(name, _read(name, Path(path)))
    try:
        return model.model_validate({} if data is None else data)
    except ValidationError as error:
        faults = [_fault(name, fault, model, lines) for fault in error.errors()]
        raise ConfigError("\n".join(faults)) from error


def suggest(word: str, known: Iterable[str]) -> str:
    """Return how an error message goes on after an unknown word: the likely meant one, or all that are allowed."""
    names = sorted(known)
    by_lower = {name.lower(): name for name in names}
    return _nearest(word, by_lower) or f"; allowed: {', '.join(names)}"


def hint(word: str, known: Iterable[str]) -> str:
    """Return the likely meant word as `suggest` does, or nothing: for words too many to list."""
    return _nearest(word, {name.lower(): name for name in sorted(known)})


def is_path(name_or_path: str, *suffixes: str) -> bool:
    """Does a text mean the user's own file rather than a bundled one? By its suffix, or because it names a folder."""
    path = Path(name_or_path)
    return path.suffix in suffixes or len(path.parts) > 1


def _nearest(word: str, by_lower: dict[str, str]) -> str:
    close = difflib.get_close_matches(word.lower(), by_lower, n=1)
    return f"; did you mean {by_lower[close[0]]}?" if close else ""


def _data_root(name: str) -> Path:
    package = Path(__file__).resolve().parent.parent
    installed = package / f"_{name}"
    return installed if installed.is_dir() else package.parent / name


def _read(name: str, path: Path) -> str:
    try:
        with path.open("rb") as file:
            content = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise ConfigError(f"{name}: cannot be read: {error.strerror}") from error
    if len(content) > MAX_BYTES:
        raise ConfigError(f"{name}: over {MAX_BYTES // 1024} KiB; this is not a configuration file")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ConfigError(f"{name}: not UTF-8 text (byte {error.start})") from error


def _parse(name: str, text: str) -> tuple[object, dict[Location, int]]:
    """Return the plain data and the line of each key."""
    try:
        loader = _Loader(text)
        node = loader.get_single_node()
        if node is None:
            return None, {}
        lines: dict[Location, int] = {}
        _walk(name, node, (), lines, set())
        return loader.construct_document(node), lines
    except yaml.MarkedYAMLError as error:
        line = f" (line {error.problem_mark.line + 1})" if error.problem_mark else ""
        raise ConfigError(f"{name}: not valid YAML: {error.problem}{line}") from error
    except yaml.YAMLError as error:
        raise ConfigError(f"{name}: not valid YAML: {' '.join(str(error).split())}") from error
    except (RecursionError, ValueError) as error:
        raise ConfigError(f"{name}: not valid YAML: {error}") from error


def _walk(name: str, node: Any, at: Location, lines: dict[Location, int], seen: set[int]) -> None:
    """Note the line of every key; refuse aliases (a small file could unfold without end), depth and repeated keys."""
    line = node.start_mark.line + 1
    if id(node) in seen:
        raise ConfigError(f"{name}: {_spell(at)} uses an alias; write the value out (line {line})")
    if len(at) > MAX_DEPTH:
        raise ConfigError(f"{name}: nested more than {MAX_DEPTH} deep (line {line})")
    seen.add(id(node))
    lines.setdefault(at, line)
    if isinstance(node, yaml.SequenceNode):
        for index, item in enumerate(node.value):
            _walk(name, item, (*at, index), lines, seen)
    elif isinstance(node, yaml.MappingNode):
        _walk_mapping(name, node, at, lines, seen)


def _walk_mapping(name: str, node: Any, at: Location, lines: dict[Location, int], seen: set[int]) -> None:
    for key, value in node.value:
        here = (*at, str(key.value))
        line = key.start_mark.line + 1
        if not isinstance(key, yaml.ScalarNode):
            raise ConfigError(f"{name}: {_spell(at) or 'the file'} has a key that is no word (line {line})")
        if here in lines:
            raise ConfigError(f"{name}: {_spell(here)} is given twice (lines {lines[here]} and {line})")
        lines[here] = line
        _walk(name, value, here, lines, seen)


def _fault(name: str, fault: ErrorDetails, model: type[BaseModel], lines: dict[Location, int]) -> str:
    """Say one pydantic error in one line: file, key, what is wrong, what is allowed, line."""
    at: Location = fault["loc"]
    key = _spell(at) or "the file"
    line = f" (line {lines[at]})" if at in lines else ""
    match fault["type"]:
        case "extra_forbidden":
            what = f"{key} is unknown{suggest(str(at[-1]), _fields_at(model, at[:-1]))}"
        case "missing":
            what = f"{key} is missing"
        case "tuple_type":
            what = f"{key} is {_shorten(fault['input'])}: must be a list, such as [{fault['input']}]"
        case "model_type" | "model_attributes_type":
            what = f"{key} is {_shorten(fault['input'])}: must be keys with values, such as `key: value`"
        case "finite_number":
            what = f"{key} is {fault['input']}: must be a finite number; without the line the default holds"
        case _:
            wrong = fault["msg"].removeprefix("Value error, ").replace("Input should be ", "must be ")
            given = "" if isinstance(fault["input"], dict | list) else f" is {_shorten(fault['input'])}:"
            what = f"{key}{given} {wrong}" if at else f"{wrong}"
    return f"{name}: {what}{line}"


def _fields_at(model: type[BaseModel], at: Location) -> list[str]:
    """Return the field names of the model that stands at a place inside another."""
    if issubclass(model, RootModel):
        return _fields_at(_inner_model(model.model_fields["root"].annotation) or model, at[1:])
    if not at:
        return list(model.model_fields)
    if isinstance(at[0], int):
        return _fields_at(model, at[1:])
    field = model.model_fields.get(at[0])
    inner = _inner_model(field.annotation) if field else None
    return _fields_at(inner, at[1:]) if inner else []


def _inner_model(annotation: Any) -> type[BaseModel] | None:
    """Find the model inside `Model | None` or `tuple[Model, ...]`."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next((model for part in get_args(annotation) if (model := _inner_model(part))), None)


def _spell(at: Location) -> str:
    return "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in at).lstrip(".")


def _shorten(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
