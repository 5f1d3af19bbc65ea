"""The coordinator over a real socket."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import httpx
import pytest
from starlette.routing import Route

from hexcloud.domain.command import NodeSpec
from hexcloud.domain.fleet import NodeId, RunId
from hexcloud.domain.messages import Batch, Heeded, Orders, RunView
from hexcloud.domain.plan import Role, SlotName
from hexcloud.domain.raw import RAW
from hexcloud.domain.world import GangPlan
from hexcloud.runtime.coordinator import Coordinator
from hexcloud.runtime.coordinator_access import AccessList, token_sha256
from hexcloud.runtime.coordinator_app import create_app, serving
from hexcloud.runtime.coordinator_wire import MAX_BODY
from hexcloud.runtime.pointer import read_pointer
from tests.runtime.coordinator_desk import Sums
from tests.runtime.coordinator_line import HEAD, TOKENS, WEIGHTS, A, B, Line

Story = Callable[[Line], Awaitable[None]]


@pytest.fixture
def tell(tmp_path: Path) -> Callable[[Story], None]:
    """Run a story against a coordinator that is really served, and shut down cleanly after it."""
    spec = NodeSpec(
        run_id=RunId("run"),
        node_id=NodeId(HEAD),
        slot=SlotName("trainer-0"),
        role=Role.TRAINER,
        task="sums",
        seed=0,
        slots=0,
        samples_per_step=4,
        group_size=2,
        eta=1,
        steps=10,
        run_dir=str(tmp_path),
        output=str(tmp_path / "output"),
        tokens_per_sample=2048,
        heartbeat_s=0.05,
    )

    def run(story: Story) -> None:
        async def scene() -> None:
            access = AccessList(TOKENS["controller"], {NodeId(HEAD): token_sha256(TOKENS["head"])})
            access.admit(NodeId(A), token_sha256(TOKENS["a"]))
            coordinator = Coordinator(spec, Sums(), access)
            async with serving(coordinator, "run-secret") as url, httpx.AsyncClient(base_url=url) as client:
                await story(Line(client, coordinator, tmp_path))

        asyncio.run(scene())

    return run


def test_the_signed_pointer_leads_to_the_coordinator(tell: Callable[[Story], None]) -> None:
    async def story(line: Line) -> None:
        pointer = read_pointer(line.run_dir, RunId("run"), "run-secret")
        assert pointer.run_id == "run"
        assert (await line.client.get(f"{pointer.url}/health")).text == "ok"

    tell(story)


def test_a_step_from_registration_to_the_next_version(tell: Callable[[Story], None]) -> None:
    async def story(line: Line) -> None:
        assert (await line.publish(0)).status_code == 204
        orders = Orders.model_validate_json((await line.register()).content)
        assert orders.latest is not None
        assert orders.latest.size == len(WEIGHTS)
        grant = await line.leases(4)
        assert len(grant.leases) == 4
        assert (await line.submit(grant)).status_code == 204
        assert (await line.submit(grant)).status_code == 204, "a repetition is fine"
        batch = Batch.model_validate_json((await line.get("/batch", "head")).content)
        assert len(batch.groups) == 2
        assert (await line.publish(1)).status_code == 204
        body: dict[str, object] = {"when": "before", "accuracy": 0.25}
        assert (await line.post("/evaluation", body, "head")).status_code == 204
        view = RunView.model_validate_json((await line.get("/status", "controller")).content)
        assert (view.version, view.trained_samples, view.accuracy_before) == (1, 4, 0.25)
        assert (await line.post("/finish", {}, "head")).status_code == 204
        assert line.coordinator.is_finished

    tell(story)


def test_weights_come_whole_in_part_and_not_at_all(tell: Callable[[Story], None]) -> None:
    async def story(line: Line) -> None:
        await line.publish(0)
        assert (await line.get("/weights/0/0")).content == WEIGHTS
        headers = {"Authorization": "Bearer token-a", "Range": "bytes=1000-"}
        part = await line.client.get("/weights/0/0", headers=headers)
        assert (part.status_code, part.content) == (206, WEIGHTS[1000:])
        view = RunView.model_validate_json((await line.get("/status", "controller")).content)
        assert list(view.sent_bytes.values()) == [2 * len(WEIGHTS) - 1000], "what went out, and no more"
        assert (await line.get("/weights/0/1")).status_code == 404
        (line.run_dir / "0.safetensors").unlink()
        assert (await line.get("/weights/0/0")).status_code == 404

    tell(story)


ROUTES = [
    ("GET", "/weights/0/0"),
    ("GET", "/deltas/0/0/1"),
    ("GET", "/ways/0/0"),
    ("GET", "/probe/1"),
    ("GET", "/batch"),
    ("GET", "/status"),
    *(
        ("POST", path)
        for path in (
            "/register",
            "/heartbeat",
            "/leases",
            "/leases/renew",
            "/samples",
            "/partials",
            "/links",
            "/places",
            "/places/trouble",
            "/publish",
            "/evaluation",
            "/rendezvous",
            "/finish",
            "/control/renew",
            "/control/admit",
            "/control/drain",
            "/control/stop",
        )
    ),
]


def test_the_list_of_routes_is_whole(make_coordinator: Callable[[], Coordinator]) -> None:
    known = {path.split("/")[1] if "/control" not in path else path for _, path in ROUTES} | {"health"}
    served = {route.path for route in create_app(make_coordinator()).routes if isinstance(route, Route)}
    assert {path.split("/")[1] if "/control" not in path else path for path in served} == known


def test_every_route_but_health_refuses_a_stranger(tell: Callable[[Story], None]) -> None:
    async def story(line: Line) -> None:
        for method, path in ROUTES:
            assert (await line.client.request(method, path)).status_code == 401, path
            headers = {"Authorization": "Bearer token-b"}
            assert (await line.client.request(method, path, headers=headers, json={})).status_code == 401, path

    tell(story)


@pytest.mark.parametrize("path", [path for _, path in ROUTES if path.startswith("/control/")])
@pytest.mark.parametrize("who", ["a", "head"])
def test_only_the_controller_controls(tell: Callable[[Story], None], path: str, who: str) -> None:
    async def story(line: Line) -> None:
        assert (await line.post(path, {}, who)).status_code == 403

    tell(story)


@pytest.mark.parametrize("who", ["a", "controller"])
def test_only_the_trainer_trains(tell: Callable[[Story], None], who: str) -> None:
    async def story(line: Line) -> None:
        assert (await line.get("/batch", who)).status_code == 403
        assert (await line.publish(0, who)).status_code == 403
        if who == "controller":
            assert (await line.get("/ways/0/0", who)).status_code == 403, "a node's own word"
        assert (await line.post("/evaluation", {"when": "before", "accuracy": 1.0}, who)).status_code == 403
        assert (await line.post("/finish", {}, who)).status_code == 403

    tell(story)


def test_a_token_speaks_for_its_own_node_only(tell: Callable[[Story], None]) -> None:
    async def story(line: Line) -> None:
        assert (await line.register("a", node_id=HEAD)).status_code == 403
        assert (await line.register("controller", node_id=A)).status_code == 403

    tell(story)


def test_a_node_registers_as_what_it_was_admitted_for_and_as_nothing_else(tell: Callable[[Story], None]) -> None:
    async def story(line: Line) -> None:
        assert (await line.register("a", role="trainer")).status_code == 403
        assert (await line.register("head", node_id=HEAD, role="rollout")).status_code == 403
        assert (await line.register("head", node_id=HEAD, role="trainer")).status_code == 200
        member: dict[str, object] = {"node_id": B, "token_sha256": token_sha256(TOKENS["b"]), "role": "trainer"}
        assert (await line.post("/control/admit", member, "controller")).status_code == 204
        assert (await line.register("b", node_id=B, role="rollout")).status_code == 403
        assert (await line.register("b", node_id=B, role="trainer")).status_code == 200
        assert [node.node_id for node in line.coordinator.view().nodes] == [HEAD, B]

    tell(story)


def test_the_controller_admits_and_revokes(tell: Callable[[Story], None]) -> None:
    async def story(line: Line) -> None:
        assert (await line.register("b", node_id=B)).status_code == 401
        body: dict[str, object] = {"node_id": B, "token_sha256": token_sha256(TOKENS["b"]), "revoke": [A]}
        assert (await line.post("/control/admit", body, "controller")).status_code == 204
        assert (await line.register("b", node_id=B)).status_code == 200
        assert (await line.register("a")).status_code == 401

    tell(story)


def test_a_node_that_must_register_first_is_told_so_by_503(tell: Callable[[Story], None]) -> None:
    async def story(line: Line) -> None:
        body: dict[str, object] = {"node_id": A, "epoch": 0, "version": 0, "want": 1}
        assert (await line.post("/leases", body)).status_code == 503

    tell(story)


def test_a_contradiction_is_409_and_a_malformed_body_422(tell: Callable[[Story], None]) -> None:
    async def story(line: Line) -> None:
        assert (await line.publish(7)).status_code == 409
        assert (await line.post("/register", {"node_id": A})).status_code == 422

    tell(story)


@pytest.mark.parametrize("path", ["/probe/{}", "/weights/0/{}", "/ways/{}/0", "/deltas/0/{}/1"])
def test_a_number_too_long_to_be_read_is_no_path(tell: Callable[[Story], None], path: str) -> None:
    async def story(line: Line) -> None:
        for who in ("a", "a-stranger"):
            assert (await line.get(path.format("9" * 5000), who)).status_code == 404
        assert (await line.get(path.format("9" * 18), "a-stranger")).status_code == 401

    tell(story)


@pytest.mark.parametrize("lie", [{"tokens": [2**40, 2]}, {"logprobs": [-1e300, -0.1]}, {"reward": 1e300}], ids=str)
def test_a_number_that_no_batch_can_carry_is_refused_at_the_door(
    tell: Callable[[Story], None], lie: dict[str, object]
) -> None:
    async def story(line: Line) -> None:
        await line.publish(0)
        await line.register()
        assert (await line.submit(await line.leases(4), **lie)).status_code == 204
        assert line.coordinator.batch_now().groups == ()
        assert (await line.submit(await line.leases(4))).status_code == 204, "they are made again"
        for accept in ("application/json", RAW):
            headers = {"Authorization": f"Bearer {TOKENS['head']}", "Accept": accept}
            assert (await line.client.get("/batch", headers=headers)).status_code == 200

    tell(story)


def test_a_late_result_is_taken_without_effect(tell: Callable[[Story], None]) -> None:
    async def story(line: Line) -> None:
        await line.publish(0)
        await line.register()
        grant = await line.leases(2)
        released = [
            {"lease": lease.id, "attempt": 0, "tokens": [], "logprobs": [], "versions": []} for lease in grant.leases
        ]
        body: dict[str, object] = {"node_id": A, "partials": released, "released": True}
        assert (await line.post("/partials", body)).status_code == 204
        assert (await line.submit(grant)).status_code == 204
        again = await line.leases(2)
        assert [(lease.id, lease.attempt) for lease in again.leases] == [(lease.id, 1) for lease in grant.leases]

    tell(story)


def test_a_long_poll_waits_for_the_batch(tell: Callable[[Story], None]) -> None:
    async def story(line: Line) -> None:
        await line.publish(0)
        await line.register()
        polling = asyncio.create_task(line.get("/batch", "head"))
        await asyncio.sleep(0.05)
        assert not polling.done()
        await line.submit(await line.leases(4))
        assert len(Batch.model_validate_json((await polling).content).groups) == 2

    tell(story)


def test_a_drain_reaches_the_node_with_its_next_heartbeat(tell: Callable[[Story], None]) -> None:
    async def story(line: Line) -> None:
        await line.register()
        assert (await line.post("/control/drain", {"node_id": A}, "controller")).status_code == 204
        beat: dict[str, object] = {
            "node_id": A,
            "epoch": 0,
            "version": -1,
            "running": 0,
            "generated_tokens": 0,
        }
        assert Orders.model_validate_json((await line.post("/heartbeat", beat)).content).drain

    tell(story)


def test_rank_0_hears_whether_its_world_is_still_wanted(tell: Callable[[Story], None]) -> None:
    async def story(line: Line) -> None:
        world = line.coordinator.gang.world
        assert world is not None
        for generation, is_wanted in ((world.generation, True), (world.generation + 1, False)):
            told: dict[str, object] = {"generation": generation, "store": "127.0.0.1:1", "is_begun": True}
            heard = await line.post("/rendezvous", told, "head")
            assert Heeded.model_validate_json(heard.content).is_wanted is is_wanted

    tell(story)


def test_a_renewal_brings_what_is_planned_of_the_gang_and_one_without_takes_nothing_back(
    tell: Callable[[Story], None],
) -> None:
    async def story(line: Line) -> None:
        planned = {"machines": 2, "layout": "hsdp"}
        bodies: tuple[dict[str, object], ...] = ({"run_until_s": 4e9, "gang": planned}, {"run_until_s": 4e9})
        for body in bodies:
            assert (await line.post("/control/renew", body, "controller")).status_code == 204
            assert line.coordinator.gang.planned == GangPlan.model_validate(planned)

    tell(story)


def test_a_stop_and_a_renewal_by_the_controller(tell: Callable[[Story], None]) -> None:
    async def story(line: Line) -> None:
        assert (await line.post("/control/renew", {"run_until_s": 4e9}, "controller")).status_code == 204
        assert Orders.model_validate_json((await line.register()).content).run_until_s == 4e9
        assert (await line.post("/control/stop", {"reason": "enough"}, "controller")).status_code == 204
        batch = Batch.model_validate_json((await line.get("/batch", "head")).content)
        assert (batch.done, batch.checkpoint) == (True, True)

    tell(story)


def test_a_lapsed_spend_lease_stops_the_run_by_itself(tell: Callable[[Story], None]) -> None:
    async def story(line: Line) -> None:
        polling = asyncio.create_task(line.get("/batch", "head"))
        await asyncio.sleep(0.05)
        await line.post("/control/renew", {"run_until_s": 1.0}, "controller")
        batch = Batch.model_validate_json((await polling).content)
        assert (batch.done, batch.checkpoint) == (True, True)
        assert line.coordinator.has_lapsed

    tell(story)


def test_a_silent_worker_is_given_up_by_the_ticking_clock(tell: Callable[[Story], None]) -> None:
    async def story(line: Line) -> None:
        await line.publish(0)
        await line.register()
        grant = await line.leases(2)
        assert grant.leases
        await asyncio.sleep(0.5)  # ten heartbeats
        assert line.coordinator.view().nodes[0].silent_s > 0.25
        again = await line.leases(2)
        assert [lease.attempt for lease in again.leases] == [1, 1]

    tell(story)


def test_a_damaged_file_is_not_served_the_trainer_hears_of_it_and_the_next_version_is(
    tell: Callable[[Story], None],
) -> None:
    async def story(line: Line) -> None:
        await line.register()
        await line.publish(0)
        (line.run_dir / "0.safetensors").write_bytes(b"torn" + WEIGHTS[4:-1])
        assert (await line.get("/weights/0/0")).status_code == 404
        assert line.coordinator.batch_now().rewrite
        grant = await line.leases(want=8)
        await line.submit(grant)
        assert Batch.model_validate_json((await line.get("/batch", "head")).content).groups
        await line.publish(1)
        assert (await line.get("/weights/0/1")).content == WEIGHTS
        assert not line.coordinator.batch_now().rewrite

    tell(story)


def test_a_file_other_than_the_one_reported_is_not_published(tell: Callable[[Story], None]) -> None:
    async def story(line: Line) -> None:
        path = line.run_dir / "w"
        path.write_bytes(b"other")
        body: dict[str, object] = {"epoch": 0, "version": 0, "path": str(path), "sha256": "0" * 64, "size": 5}
        assert (await line.post("/publish", body, "head")).status_code == 409
        assert line.coordinator.view().version == 0
        assert (await line.get("/weights/0/0")).status_code == 404

    tell(story)


@pytest.mark.parametrize("is_announced", [True, False])
def test_a_message_that_is_too_large_is_refused_before_it_is_all_there(
    tell: Callable[[Story], None], is_announced: bool
) -> None:
    sent = 0

    async def flood() -> AsyncIterator[bytes]:
        nonlocal sent
        for _ in range(4 * MAX_BODY // 2**20):
            sent += 2**20
            yield b" " * 2**20

    async def story(line: Line) -> None:
        headers = {"Authorization": "Bearer token-a"}
        headers |= {"Content-Length": str(4 * MAX_BODY)} if is_announced else {}
        try:
            answer = await line.client.post("/samples", content=flood(), headers=headers)
            assert answer.status_code == 413
        except (httpx.WriteError, httpx.ReadError):  # the answer came, and the line was cut while we were still sending
            pass
        assert sent < 3 * MAX_BODY
        assert (await line.get("/health")).status_code == 200

    tell(story)


def test_nobody_without_a_token_makes_the_coordinator_read(tell: Callable[[Story], None]) -> None:
    async def story(line: Line) -> None:
        answer = await line.client.post("/samples", content=b"x" * 10_000, headers={"Authorization": "Bearer guess"})
        assert answer.status_code == 401

    tell(story)
