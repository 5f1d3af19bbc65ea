"""SGLang's servers as children of a node. The real one is in the sglang tier; elsewhere its absence is shown."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from hexcloud.adapters.engines.sglang_home import SGLANG_PYTHON, find_sglang
from hexcloud.domain.command import NodeSpec
from hexcloud.domain.errors import ConfigError, EngineError
from hexcloud.domain.generation import EngineKind, GenerationRequest
from hexcloud.domain.plan import Role
from hexcloud.node.sglang_process import SglangProcess
from hexcloud.runtime.tasks import TASKS
from hexcloud.runtime.trainer_model import build_model, config_of
from hexcloud.runtime.weights import write_weights

MakeSpec = Callable[[Role], NodeSpec]
REQUESTS = (GenerationRequest(rid="a", input_ids=(1, 5, 6), max_new_tokens=4, ignore_eos=True),)


@pytest.fixture
def weights(tmp_path: Path) -> Path:
    model = build_model(TASKS["sort_digits"], seed=0)
    return write_weights(tmp_path / "weights", model.state_dict(), config_of(model)).path.parent


@pytest.fixture
def spec(make_spec: MakeSpec) -> NodeSpec:
    return make_spec(Role.ROLLOUT).model_copy(update={"engine": EngineKind.SGLANG})


@pytest.fixture
def engine(spec: NodeSpec, tmp_path: Path) -> Iterator[SglangProcess]:
    try:
        find_sglang(os.environ).require_cpu()
    except ConfigError as error:
        pytest.skip(str(error))
    process = SglangProcess(spec, tmp_path)
    yield process
    process.close()


def below(pid: int) -> list[psutil.Process]:
    return psutil.Process(pid).children(recursive=True)


def are_gone(processes: list[psutil.Process]) -> bool:
    _, alive = psutil.wait_procs(processes, timeout=10)
    return all(one.status() == psutil.STATUS_ZOMBIE for one in alive)


def test_a_node_without_sglang_does_not_begin(spec: NodeSpec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SGLANG_PYTHON, str(tmp_path / "nowhere"))
    with pytest.raises(ConfigError, match="make sglang"):
        SglangProcess(spec, tmp_path)


@pytest.mark.sglang
@pytest.mark.timeout(1200)
def test_a_real_server_serves_and_leaves_nothing_behind(engine: SglangProcess, weights: Path, tmp_path: Path) -> None:
    engine.warm_up()
    others = below(os.getpid())  # servers that the contract keeps for its own tests
    served = engine.start(weights, 5)
    (made,) = served.generate(REQUESTS)
    assert set(made.versions) == {5} and served.info().version == 5
    processes = [process for process in below(os.getpid()) if process not in others]
    assert len(processes) >= 3
    assert "fired up" in (tmp_path / "sglang-0.log").read_text()
    engine.close()
    assert are_gone(processes)
    with pytest.raises(EngineError):
        served.generate(REQUESTS)
    with pytest.raises(EngineError):
        engine.start(weights, 6)


@pytest.mark.sglang
@pytest.mark.timeout(1200)
def test_a_killed_node_leaves_no_process_of_its_server(engine: SglangProcess, spec: NodeSpec, weights: Path) -> None:
    """The kernel ends the server with its node, and the server's own processes with the server."""
    script = (
        "import os, sys, time; from pathlib import Path; from hexcloud.domain.command import NodeSpec; "
        "from hexcloud.node.sglang_process import SglangProcess; "
        "engine = SglangProcess(NodeSpec.model_validate_json(sys.argv[1]), Path.cwd()); "
        "engine.start(Path(sys.argv[2]), 5); print('ready', flush=True); time.sleep(600)"
    )
    argv = [sys.executable, "-c", script, spec.model_dump_json(), str(weights)]
    with subprocess.Popen(argv, cwd=weights.parent, stdout=subprocess.PIPE, text=True) as node:
        assert node.stdout is not None
        assert "ready\n" in node.stdout, "it speaks of its engine first"
        processes = below(node.pid)
        assert len(processes) >= 3
        node.send_signal(signal.SIGKILL)
        assert are_gone(processes)
