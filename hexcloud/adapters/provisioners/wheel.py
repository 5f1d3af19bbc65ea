"""The wheel of the hexcloud that runs: what a rented machine installs is what rented it.

From a checkout the wheel is made of the sources; from an installation it is packed again by its RECORD. No build tool
is needed, and the same files give the same wheel to the byte.
"""

import base64
import hashlib
import tomllib
import zipfile
from collections.abc import Iterator, Mapping
from importlib.metadata import Distribution, distributions
from pathlib import Path, PurePosixPath
from typing import Any

import hexcloud
from hexcloud.domain.errors import ConfigError

NAME = "hexcloud"
OF_AN_INSTALLER = frozenset({"INSTALLER", "REQUESTED", "RECORD", "direct_url.json"})
"""What an installer adds beside the metadata of a wheel."""
MADE_AT = (1980, 1, 1, 0, 0, 0)
"""The earliest time that a zip file knows: when a file was written must not show."""
_WHEEL = "Wheel-Version: 1.0\nGenerator: hexcloud\nRoot-Is-Purelib: true\nTag: py3-none-any\n"

Files = dict[str, bytes]
"""Name in the wheel -> content."""


def make_wheel(folder: Path, package: Path | None = None) -> Path:
    """Write the wheel into a folder and return its path. `package` is the package's own folder: the one that runs.

    Raises ConfigError when it is neither a checkout nor an installation with a RECORD.
    """
    package = (package or Path(hexcloud.__file__).parent).resolve()
    project = package.parent / "pyproject.toml"
    version, files = _of_checkout(package, project) if project.exists() else _of_installation(package)
    path = folder / f"{NAME}-{version}-py3-none-any.whl"
    folder.mkdir(parents=True, exist_ok=True)
    draft = path.with_suffix(".draft")
    with zipfile.ZipFile(draft, "w", zipfile.ZIP_DEFLATED) as wheel:
        for name, content in (*sorted(files.items()), _record(version, files)):
            entry = zipfile.ZipInfo(name, MADE_AT)
            entry.external_attr = 0o644 << 16
            wheel.writestr(entry, content, zipfile.ZIP_DEFLATED, 9)
    draft.replace(path)
    return path


def _of_checkout(package: Path, project: Path) -> tuple[str, Files]:
    described: dict[str, Any] = tomllib.loads(project.read_text(encoding="utf-8"))
    about, build = described["project"], described["tool"]["hatch"]["build"]["targets"]["wheel"]
    roots = {NAME: package} | {inside: project.parent / outside for outside, inside in build["force-include"].items()}
    files = {name: content for inside, root in roots.items() for name, content in _below(root, inside)}
    metadata = f"{NAME}-{about['version']}.dist-info"
    files[f"{metadata}/METADATA"] = _metadata(about).encode()
    files[f"{metadata}/WHEEL"] = _WHEEL.encode()
    scripts = "".join(f"{name} = {target}\n" for name, target in sorted(about["scripts"].items()))
    files[f"{metadata}/entry_points.txt"] = f"[console_scripts]\n{scripts}".encode()
    return about["version"], files


def _below(root: Path, inside: str) -> Iterator[tuple[str, bytes]]:
    for path in sorted(root.rglob("*")):
        where = path.relative_to(root)
        if path.is_file() and "__pycache__" not in where.parts and not where.name.startswith("."):
            yield f"{inside}/{where.as_posix()}", path.read_bytes()


def _metadata(about: Mapping[str, Any]) -> str:
    lines = ["Metadata-Version: 2.3", f"Name: {NAME}", f"Version: {about['version']}"]
    lines += [f"Summary: {about['description']}", f"Requires-Python: {about['requires-python']}"]
    lines += [f"Requires-Dist: {needed}" for needed in about["dependencies"]]
    return "\n".join(lines) + "\n"


def _of_installation(package: Path) -> tuple[str, Files]:
    found = _installed(package)
    if found is None:
        raise ConfigError(f"{package}: neither a checkout nor an installation that says what belongs to it (RECORD)")
    metadata = f"{NAME}-{found.version}.dist-info"
    files: Files = {}
    for entry in found.files or ():
        name = PurePosixPath(entry)
        is_ours = name.parts[0] == NAME or (name.parts[0] == metadata and name.name not in OF_AN_INSTALLER)
        if is_ours and "__pycache__" not in name.parts:
            files[name.as_posix()] = _content(Path(str(entry.locate())))
    return found.version, files


def _installed(package: Path) -> Distribution | None:
    """Return the distribution that this very package belongs to: another one of the name may be on the path, too."""
    for found in distributions(name=NAME, path=[str(package.parent)]):
        if found.files and any(str(entry) == f"{NAME}/__init__.py" for entry in found.files):
            return found
    return None


def _content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise ConfigError(f"{path}: belongs to the installation and cannot be read: {error.strerror}") from error


def _record(version: str, files: Files) -> tuple[str, bytes]:
    name = f"{NAME}-{version}.dist-info/RECORD"
    lines = [f"{inside},sha256={_digest(content)},{len(content)}\n" for inside, content in sorted(files.items())]
    return name, "".join([*lines, f"{name},,\n"]).encode()


def _digest(content: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
