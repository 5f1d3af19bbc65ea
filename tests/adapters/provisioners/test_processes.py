import os
import signal
import subprocess
import time
from pathlib import Path

from hexcloud.adapters.provisioners import processes
from hexcloud.adapters.provisioners.launch import claim
from hexcloud.adapters.provisioners.node_dir import NodeDir


def test_a_tagged_process_is_its_nodes_wherever_it_runs(tmp_path: Path) -> None:
    node, other = NodeDir(tmp_path / "a"), NodeDir(tmp_path / "b")
    environment = {"PATH": os.environ["PATH"], processes.TAG: str(node.path)}
    with subprocess.Popen(["sleep", "300"], env=environment, start_new_session=True) as process:
        found = processes.living([node, other])
        processes.kill(node)
    assert [found_process.pid for found_process in found[node.path]] == [process.pid]
    assert set(found) == {node.path}
    assert processes.living([node]) == {}


def test_a_process_that_hides_its_environment_is_known_by_the_record(tmp_path: Path) -> None:
    node = NodeDir(tmp_path)
    with subprocess.Popen(["sleep", "300"], env={}) as process:
        claim(str(tmp_path), process.pid)
        found = processes.living([node])
        processes.kill(node)
    assert [found_process.pid for found_process in found[node.path]] == [process.pid]


def test_a_stranger_with_the_pid_of_a_dead_node_is_left_alone(tmp_path: Path) -> None:
    node = NodeDir(tmp_path)
    with subprocess.Popen(["sleep", "300"]) as stranger:
        claim(str(tmp_path), stranger.pid)
        long_ago = time.time() - 3600
        os.utime(tmp_path / "process.json", (long_ago, long_ago))
        assert processes.living([node]) == {}
        processes.interrupt(node)
        processes.kill(node)
        assert stranger.poll() is None
        stranger.send_signal(signal.SIGKILL)


def test_children_that_ended_are_reaped(tmp_path: Path) -> None:
    ended = os.posix_spawnp("true", ["true"], os.environ)
    running = os.posix_spawnp("sleep", ["sleep", "300"], os.environ)
    children = {ended, running}
    give_up = time.monotonic() + 10
    while ended in children and time.monotonic() < give_up:
        children = processes.reap(children)
    assert children == {running}
    os.kill(running, signal.SIGKILL)
    os.waitpid(running, 0)
    assert processes.reap(children) == set()
