"""Where SGLang is installed: always in an environment of its own, since it pins torch and transformers exactly."""

import json
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from hexcloud.domain.errors import ConfigError

SGLANG_PYTHON = "HEXCLOUD_SGLANG_PYTHON"
"""Variable that names SGLang's environment, by its folder or its interpreter."""
BESIDE = ".venv-sglang"
"""Name of SGLang's environment beside ours, where nothing else is said."""
CPU_PLATFORM = "plain_cpu"
"""Name of the platform (deploy/sglang-cpu) without which SGLang does not run on a CPU."""

_MEND = f"`make sglang` builds one in a checkout, or {SGLANG_PYTHON} names one by its folder or its python"
_PROBE_S = 60.0
_PROBE = """
import importlib.metadata as metadata, json
platforms = [point.name for point in metadata.entry_points(group="sglang.srt.platforms")]
print(json.dumps({"version": metadata.version("sglang"), "platforms": platforms}))
"""


@dataclass(frozen=True)
class SglangHome:
    """An environment that has SGLang."""

    python: Path
    version: str
    platforms: tuple[str, ...]
    """Names of the platforms that are installed beside it."""

    def require_cpu(self) -> None:
        """Raise ConfigError when it cannot run without a GPU."""
        if CPU_PLATFORM not in self.platforms:
            raise ConfigError(
                f"engine: sglang {self.version} of {self.python} runs on GPUs only: deploy/sglang-cpu must be "
                f"installed beside it; {_MEND}"
            )


def find_sglang(environment: Mapping[str, str]) -> SglangHome:
    """Return SGLang's environment. Raises ConfigError, with the mend, where there is none."""
    python = _python(environment)
    if not python.exists():
        raise ConfigError(f"engine: sglang lives in an environment of its own, and there is no {python}; {_MEND}")
    # -I: no variable and no folder of ours leads the other interpreter astray.
    argv = [str(python), "-I", "-c", _PROBE]
    try:
        done = subprocess.run(argv, capture_output=True, text=True, timeout=_PROBE_S, check=False)
        found = json.loads(done.stdout)
        return SglangHome(python, found["version"], tuple(found["platforms"]))
    except (OSError, subprocess.TimeoutExpired, ValueError, KeyError) as error:
        raise ConfigError(f"engine: there is no sglang in the environment of {python}; {_MEND}") from error


def _python(environment: Mapping[str, str]) -> Path:
    given = environment.get(SGLANG_PYTHON)
    path = Path(given).expanduser() if given else Path(sys.prefix).parent / BESIDE
    # Made absolute and not resolved: a venv's python is a link out of it, and is that venv's only by its own name.
    return (path if path.is_file() else path / "bin" / "python").absolute()
