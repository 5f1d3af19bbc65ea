import os
import shutil
import signal
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import pytest

from hexcloud.adapters.provisioners import processes
from hexcloud.adapters.provisioners.local import CLAIM_S, GRACE_S, LocalProvisioner
from hexcloud.adapters.provisioners.node_dir import NodeDir
from hexcloud.domain.command import Command
from hexcloud.domain.errors import CapacityError, UnknownProvisionError
from hexcloud.domain.fleet import Node, RunId
from hexcloud.domain.offer import Offer

RUN = RunId("main-1")
SLEEPER = "echo $$ >> began; exec sleep 300"
STUBBORN = "trap '' TERM; echo $$ >> began; while :; do sleep 0.05; done"
FAMILY = "setsid sleep 300 & sleep 300 & echo $$ >> began; wait"


def shell(script: str) -> Command:
    return Command(image=None, argv=("sh", "-c", script), env={}, secrets={}, files={"node.json": "{}"})


def until(condition: Callable[[], object], wall_s: float = 60.0) -> bool:
    give_up = time.monotonic() + wall_s
    while time.monotonic() < give_up:
        if condition():
            return True
        time.sleep(0.01)
    return False


def directory(tmp_path: Path, node: Node) -> Path:
    return tmp_path / "nodes" / node.id


def alive(tmp_path: Path, node: Node) -> list[psutil.Process]:
    path = directory(tmp_path, node)
    return processes.living([NodeDir(path)]).get(path, [])


def began(tmp_path: Path, node: Node) -> list[str]:
    file = directory(tmp_path, node) / "began"
    return file.read_text().split() if file.exists() else []


def start(provisioner: LocalProvisioner, tmp_path: Path, node: Node, offer: Offer, script: str = SLEEPER) -> None:
    provisioner.launch((node,), offer, (shell(script),))
    assert until(lambda: began(tmp_path, node))


def test_a_node_runs_in_its_own_directory_session_and_log(
    provisioner: LocalProvisioner, nodes: tuple[Node, ...], offer: Offer, tmp_path: Path
) -> None:
    node = nodes[0]
    start(provisioner, tmp_path, node, offer, "cat node.json; echo problem >&2; " + SLEEPER)
    assert provisioner.list_nodes(RUN) == (node.id,)
    (process,) = alive(tmp_path, node)
    assert Path(process.cwd()) == directory(tmp_path, node)
    assert os.getsid(process.pid) == os.getpgid(process.pid) == process.pid
    assert (directory(tmp_path, node) / "node.log").read_text() == "{}problem\n"


def test_python_is_the_one_that_runs_us(
    provisioner: LocalProvisioner, nodes: tuple[Node, ...], offer: Offer, tmp_path: Path
) -> None:
    code = "import sys, hexcloud.domain; open('prefix', 'w').write(sys.prefix)"
    command = Command(image=None, argv=("python", "-c", code), env={}, secrets={}, files={})
    provisioner.launch((nodes[0],), offer, (command,))
    file = directory(tmp_path, nodes[0]) / "prefix"
    assert until(lambda: file.exists() and file.read_text() == sys.prefix)


def test_secrets_are_in_the_environment_and_nowhere_else(
    provisioner: LocalProvisioner,
    nodes: tuple[Node, ...],
    offer: Offer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "of the controller")
    command = shell(SLEEPER).model_copy(update={"secrets": {"HEXCLOUD_NODE_TOKEN": "hush"}, "env": {"SEED": "7"}})
    provisioner.launch((nodes[0],), offer, (command,))
    assert until(lambda: began(tmp_path, nodes[0]))
    (process,) = alive(tmp_path, nodes[0])
    environment = process.environ()
    assert environment["HEXCLOUD_NODE_TOKEN"] == "hush"
    assert environment["SEED"] == "7"
    assert "AWS_SECRET_ACCESS_KEY" not in environment
    assert "hush" not in " ".join(process.cmdline())
    for file in directory(tmp_path, nodes[0]).iterdir():
        assert "hush" not in file.read_text()


def test_a_node_is_launched_once_however_often_it_is_asked_for(
    provisioner: LocalProvisioner, nodes: tuple[Node, ...], offer: Offer, tmp_path: Path
) -> None:
    start(provisioner, tmp_path, nodes[0], offer)
    provisioner.launch((nodes[0],), offer, (shell(SLEEPER),))
    (process,) = alive(tmp_path, nodes[0])
    process.kill()
    assert until(lambda: provisioner.list_nodes(RUN) == ())
    provisioner.launch((nodes[0],), offer, (shell(SLEEPER),))
    assert provisioner.list_nodes(RUN) == ()
    assert len(began(tmp_path, nodes[0])) == 1


def test_a_machine_of_a_gang_ends_alone_and_another_comes_later(
    provisioner: LocalProvisioner, nodes: tuple[Node, ...], offer: Offer
) -> None:
    assert provisioner.is_elastic
    head, member, joiner = nodes
    provisioner.launch((head, member), offer, (shell(SLEEPER), shell(SLEEPER)))
    provisioner.launch((joiner,), offer, (shell(SLEEPER),))
    provisioner.terminate(member.id)
    assert until(lambda: provisioner.list_nodes(RUN) == (head.id, joiner.id))


def test_another_controller_adopts_what_runs(
    provisioner: LocalProvisioner, nodes: tuple[Node, ...], offer: Offer, tmp_path: Path, clock: Any
) -> None:
    start(provisioner, tmp_path, nodes[0], offer)
    other = LocalProvisioner(tmp_path, clock)
    assert other.list_nodes(RUN) == (nodes[0].id,)
    assert other.list_nodes(RunId("another")) == ()
    other.terminate(nodes[0].id)
    assert until(lambda: other.list_nodes(RUN) == ())


def test_a_node_that_heeds_sigterm_ends_within_the_grace(
    provisioner: LocalProvisioner, nodes: tuple[Node, ...], offer: Offer, tmp_path: Path
) -> None:
    start(provisioner, tmp_path, nodes[0], offer)
    (pid,) = map(int, began(tmp_path, nodes[0]))
    provisioner.terminate(nodes[0].id)
    assert until(lambda: provisioner.list_nodes(RUN) == ())
    provisioner.terminate(nodes[0].id)
    assert not psutil.pid_exists(pid), "its exit status is taken, so that no zombie is left"


def test_a_node_that_ignores_sigterm_is_killed_after_the_grace_and_not_before(
    provisioner: LocalProvisioner, nodes: tuple[Node, ...], offer: Offer, tmp_path: Path, clock: Any
) -> None:
    start(provisioner, tmp_path, nodes[0], offer, STUBBORN)
    provisioner.terminate(nodes[0].id)
    clock.at_s += GRACE_S - 1
    provisioner.terminate(nodes[0].id)
    time.sleep(0.1)
    assert provisioner.list_nodes(RUN) == (nodes[0].id,)
    clock.at_s += 2
    assert LocalProvisioner(tmp_path, clock).list_nodes(RUN) == ()


def test_children_that_left_the_group_are_ended_too(
    provisioner: LocalProvisioner, nodes: tuple[Node, ...], offer: Offer, tmp_path: Path, clock: Any
) -> None:
    start(provisioner, tmp_path, nodes[0], offer, FAMILY)
    assert until(lambda: len(alive(tmp_path, nodes[0])) == 3)
    provisioner.terminate(nodes[0].id)
    assert until(lambda: len(alive(tmp_path, nodes[0])) == 1)
    assert provisioner.list_nodes(RUN) == (nodes[0].id,)
    clock.at_s += GRACE_S + 1
    assert provisioner.list_nodes(RUN) == ()
    assert alive(tmp_path, nodes[0]) == []


def test_a_node_whose_directory_is_lost_is_not_forgotten(
    provisioner: LocalProvisioner, nodes: tuple[Node, ...], offer: Offer, tmp_path: Path, clock: Any
) -> None:
    start(provisioner, tmp_path, nodes[0], offer, STUBBORN)
    shutil.rmtree(tmp_path / "nodes")
    other = LocalProvisioner(tmp_path, clock)
    assert other.list_nodes(RUN) == (nodes[0].id,)
    other.terminate(nodes[0].id)
    assert other.list_nodes(RUN) == ()
    assert alive(tmp_path, nodes[0]) == []


def test_unknown_nodes_may_be_terminated(provisioner: LocalProvisioner, nodes: tuple[Node, ...]) -> None:
    provisioner.terminate(nodes[0].id)
    assert provisioner.list_nodes(RUN) == ()


def test_a_sold_out_pool_gives_no_new_node_and_keeps_the_old(
    provisioner: LocalProvisioner, nodes: tuple[Node, ...], offer: Offer, tmp_path: Path, clock: Any
) -> None:
    start(provisioner, tmp_path, nodes[0], offer)
    provisioner.list_nodes(RUN)
    clock.at_s += 6
    provisioner.launch((nodes[0],), offer, (shell(SLEEPER),))
    with pytest.raises(CapacityError) as caught:
        provisioner.launch((nodes[1],), offer, (shell(SLEEPER),))
    assert caught.value.offer_id == offer.id
    assert provisioner.list_nodes(RUN) == (nodes[0].id,)


def test_each_preemption_takes_one_node_without_notice_and_once(
    provisioner: LocalProvisioner, nodes: tuple[Node, ...], offer: Offer, tmp_path: Path, clock: Any, trace: Any
) -> None:
    for node in nodes:
        start(provisioner, tmp_path, node, offer, STUBBORN)
    clock.at_s += 10
    assert provisioner.list_nodes(RUN) == (nodes[1].id, nodes[2].id)
    restarted = LocalProvisioner(tmp_path, clock, trace, origin_s=clock.at_s - 10)
    clock.at_s += 9
    assert restarted.list_nodes(RUN) == (nodes[1].id, nodes[2].id)
    clock.at_s += 1
    assert restarted.list_nodes(RUN) == (nodes[2].id,)


def test_a_program_that_does_not_exist_is_a_node_that_ends_at_once(
    provisioner: LocalProvisioner, nodes: tuple[Node, ...], offer: Offer, tmp_path: Path
) -> None:
    provisioner.launch((nodes[0],), offer, (shell("").model_copy(update={"argv": ("no-such-program",)}),))
    assert until(lambda: provisioner.list_nodes(RUN) == ())
    assert "FileNotFoundError" in (directory(tmp_path, nodes[0]) / "node.log").read_text()


def test_files_stay_in_the_nodes_directory(
    provisioner: LocalProvisioner, nodes: tuple[Node, ...], offer: Offer, tmp_path: Path
) -> None:
    with pytest.raises(UnknownProvisionError, match="plain file name"):
        provisioner.launch((nodes[0],), offer, (shell("").model_copy(update={"files": {"../escape": ""}}),))
    assert not (tmp_path / "nodes" / "escape").exists()


def test_a_gang_starts_in_one_call_and_one_bad_member_starts_none(
    provisioner: LocalProvisioner, nodes: tuple[Node, ...], offer: Offer, tmp_path: Path
) -> None:
    bad = shell(SLEEPER).model_copy(update={"files": {"../escape": ""}})
    with pytest.raises(UnknownProvisionError, match="plain file name"):
        provisioner.launch(nodes[:2], offer, (shell(SLEEPER), bad))
    assert alive(tmp_path, nodes[0]) == alive(tmp_path, nodes[1]) == []
    provisioner.launch(nodes, offer, (shell(SLEEPER),) * 3)
    assert until(lambda: all(began(tmp_path, node) for node in nodes))
    assert provisioner.list_nodes(RUN) == tuple(node.id for node in nodes)


def test_a_folder_that_cannot_be_made_is_a_provision_error(tmp_path: Path, clock: Any) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UnknownProvisionError):
        LocalProvisioner(tmp_path / "file", clock).list_nodes(RUN)


EFFECTS = {"open", "os.rename", "os.link", "os.mkdir", "os.posix_spawn", "fcntl.flock", "time.sleep"}


def killed_before(effect: int, provisioner: LocalProvisioner, node: Node, offer: Offer) -> bool:
    """Fork, launch, and die just before the nth effect on the world. Return False when the launch was over by then."""
    pid = os.fork()
    if pid == 0:
        counted, seen = set(EFFECTS), 0

        def hook(name: str, arguments: tuple[object, ...]) -> None:
            nonlocal seen
            if name in counted and not str(arguments[:1]).startswith("('/proc"):
                seen += 1
                if name == "time.sleep":  # one death while it waits for the new process is enough
                    counted.clear()
                if seen > effect:
                    os.kill(os.getpid(), signal.SIGKILL)

        sys.addaudithook(hook)
        provisioner.launch((node,), offer, (shell(SLEEPER),))
        os._exit(0)
    return os.WIFSIGNALED(os.waitpid(pid, 0)[1])


@pytest.mark.parametrize("is_asked_again", [True, False])
def test_a_controller_killed_at_any_point_of_launch_neither_loses_nor_doubles_a_node(
    nodes: tuple[Node, ...], offer: Offer, tmp_path: Path, clock: Any, is_asked_again: bool
) -> None:
    node, effect, was_killed = nodes[0], 0, True
    while was_killed:
        home = tmp_path / str(effect)
        was_killed = killed_before(effect, LocalProvisioner(home, clock), node, offer)
        restarted = LocalProvisioner(home, clock)
        if is_asked_again:
            restarted.launch((node,), offer, (shell(SLEEPER),))
            assert until(partial(began, home, node)), effect
        listed_at_once = restarted.list_nodes(RUN)
        clock.at_s += CLAIM_S + 1
        listed = restarted.list_nodes(RUN)
        assert until(partial(have_begun, home, node, len(listed))), effect
        time.sleep(0.05)
        assert len(alive(home, node)) == len(listed) == len(began(home, node)), effect
        assert set(listed) <= set(listed_at_once), effect
        restarted.terminate(node.id)
        assert until(partial(ended, restarted)), effect
        assert alive(home, node) == [], effect
        effect += 1
    assert effect > 10


def have_begun(home: Path, node: Node, count: int) -> bool:
    return len(began(home, node)) == count


def ended(provisioner: LocalProvisioner) -> bool:
    return provisioner.list_nodes(RUN) == ()
