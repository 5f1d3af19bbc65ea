"""The SkyPilot tasks in deploy/sky, filled: `<<name>>` that is the whole of an entry becomes the value of that name."""

import re
from collections.abc import Mapping
from pathlib import Path

from pydantic import JsonValue, RootModel

from hexcloud.adapters.files import catalog_root, load_yaml
from hexcloud.domain.errors import ConfigError
from hexcloud.domain.plan import Role

Task = dict[str, JsonValue]
_PLACE = re.compile(r"<<(\w+)>>")


class _Template(RootModel[Task]):
    """A SkyPilot task with places to fill."""


def template_path(role: Role) -> Path:
    """Return the file of a role's task: beside the package in a checkout, inside it in a wheel."""
    catalogs = catalog_root()
    return catalogs.with_name(catalogs.name.replace("catalogs", "deploy")) / "sky" / f"{role.value}.yaml"


def filled_template(role: Role, values: Mapping[str, JsonValue]) -> Task:
    """Return the task of a role; an entry whose value is None is left out. Raises ConfigError for a place unfilled."""
    path = template_path(role)
    task = load_yaml(path, _Template).root
    if missing := sorted(_places(task) - set(values)):
        raise ConfigError(f"{path}: nothing is given for {', '.join(missing)}")
    return {name: _fill(entry, values) for name, entry in task.items() if not _is_left_out(entry, values)}


def _places(entry: JsonValue) -> set[str]:
    if isinstance(entry, dict):
        return set().union(*map(_places, entry.values()))
    if isinstance(entry, list):
        return set().union(*map(_places, entry))
    place = _place(entry)
    return {place} if place else set()


def _fill(entry: JsonValue, values: Mapping[str, JsonValue]) -> JsonValue:
    if isinstance(entry, dict):
        return {name: _fill(inner, values) for name, inner in entry.items() if not _is_left_out(inner, values)}
    if isinstance(entry, list):
        return [_fill(inner, values) for inner in entry if not _is_left_out(inner, values)]
    place = _place(entry)
    return values[place] if place else entry


def _is_left_out(entry: JsonValue, values: Mapping[str, JsonValue]) -> bool:
    place = _place(entry)
    return bool(place) and values[place] is None


def _place(entry: JsonValue) -> str:
    found = _PLACE.fullmatch(entry) if isinstance(entry, str) else None
    return found[1] if found else ""
