"""SGLang's servers as children of a node. The real one is in the sglang tier; elsewhere its absence is shown."""

import os
import signal
import socket
import subprocess
import sys
import threading
import time
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
from hexcloud.runtime.replica_line import ReplicaHead, ReplicaMember
from hexcloud.runtime.tasks import TASKS
from hexcloud.runtime.trainer_model import build_model, config_of
from hexcloud.runtime.weights import write_weights

MakeSpec = Callable[[Role], NodeSpec]
HERE, KEY = "127.0.0.1", b"0123456789abcdef"
GREEDY = (GenerationRequest(rid="g", input_ids=(1, 5, 6), max_new_tokens=8, ignore_eos=True, temperature=0.0),)
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


class Machines:
    """The two machines of a replica, each with its own part of the engine."""

    def __init__(self, spec: NodeSpec, nodes: Path) -> None:
        head, member = (spec.model_copy(update={"emulation": None, "gang": 2, "rank": rank}) for rank in (0, 1))
        for rank in "01":
            (nodes / rank).mkdir()
        port = _free_port()
        self.head = SglangProcess(head, nodes / "0", head=ReplicaHead((HERE, port), KEY, 1))
        self.member = SglangProcess(member, nodes / "1")
        self._line = ReplicaMember((HERE, port), KEY, 1, nodes)
        work = (self.member.start_part, self.member.end_part)
        self._thread = threading.Thread(target=self._line.follow, args=work, daemon=True)
        self._thread.start()

    def close(self) -> None:
        self.head.close()
        self._line.leave()
        self.member.close()
        self._thread.join(30.0)
        assert not self._thread.is_alive()


def _free_port() -> int:
    with socket.create_server((HERE, 0)) as server:
        return int(server.getsockname()[1])


@pytest.mark.sglang
@pytest.mark.timeout(1800)
def test_a_real_engine_over_two_machines_takes_weights_and_is_started_anew_when_one_part_dies(
    engine: SglangProcess, spec: NodeSpec, weights: Path, tmp_path: Path
) -> None:
    others, machines = below(os.getpid()), Machines(spec, tmp_path)
    try:
        served = machines.head.start(weights, 5)
        (first,) = served.generate(GREEDY)
        model = build_model(TASKS["sort_digits"], seed=1)
        other = write_weights(tmp_path / "other", model.state_dict(), config_of(model)).path.parent
        served.update_weights_from_disk(str(other), 6)
        (second,) = served.generate(GREEDY)
        assert (set(first.versions), set(second.versions)) == ({5}, {6})
        assert first.logprobs != pytest.approx(second.logprobs, abs=1e-3)

        parts = {_rank(one): one for one in below(os.getpid()) if one not in others}
        parts["1"].send_signal(signal.SIGKILL)
        gives_up_at = time.monotonic() + 120
        while parts["0"].status() != psutil.STATUS_ZOMBIE:
            assert time.monotonic() < gives_up_at, "an engine does not outlive one of its machines"
            time.sleep(0.2)
        with pytest.raises(EngineError):
            served.generate(GREEDY)
        (again,) = machines.head.start(other, 6).generate(GREEDY)
        assert again.tokens == second.tokens and again.logprobs == pytest.approx(second.logprobs, abs=1e-5)
    finally:
        left = [one for one in below(os.getpid()) if one not in others]
        machines.close()
    assert are_gone(left)


def _rank(process: psutil.Process) -> str:
    """Return which part a process is; empty for those that a part has started."""
    words = process.cmdline()
    return words[words.index("--node-rank") + 1] if "--node-rank" in words else ""
