"""The coordinator's door: HTTP routes of domain/messages.py over a Coordinator, and the socket they listen on.

Bodies are validated once, straight from bytes, and answers are dumped once: /leases and /samples are called hundreds of
times per second. Samples, commits and batches may travel with their numbers as arrays (domain/raw.py).

401 is a token nobody knows (any more), 403 another's business, 409 a contradiction, 422 a malformed
body, 503 a node that must register first.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from http import HTTPStatus
from pathlib import Path
from typing import TypeVar

import uvicorn
from fastapi import FastAPI, Request, Response

from hexcloud.domain.messages import (
    Admit,
    DrainRequest,
    Evaluation,
    Heartbeat,
    Heeded,
    LeaseRenewal,
    LeaseRequest,
    LinkReport,
    PartialCommit,
    Place,
    PlaceRequest,
    PlaceTrouble,
    Pointer,
    Register,
    Rendezvous,
    Renewal,
    StepReport,
    StopRequest,
    Submission,
)
from hexcloud.domain.pointer import sign_pointer
from hexcloud.domain.raw import RAW, opened, pack_batch, parse_commit, parse_submission
from hexcloud.runtime.coordinator import Coordinator, UnknownNodeError
from hexcloud.runtime.coordinator_access import Caller
from hexcloud.runtime.coordinator_door import HERE, Door, listen, local_host
from hexcloud.runtime.coordinator_publish import ConflictError
from hexcloud.runtime.coordinator_stores import NoCopyError
from hexcloud.runtime.coordinator_wire import CountedFile, RefusalError, answer, read
from hexcloud.runtime.pointer import write_pointer
from hexcloud.runtime.probe import MAX_PAYLOAD

KEEP_ALIVE_S = 75
"""Longer than any client of ours keeps an idle connection, so that none is closed under a request."""
GRACEFUL_S = 3
"""At the end, open calls (a long poll) have this long."""

PLACE_WAIT_S = 5.0
"""A node's question for a file's place in its region's store is answered within this."""

NodeMessage = TypeVar(
    "NodeMessage",
    Register,
    Heartbeat,
    LeaseRequest,
    LeaseRenewal,
    Submission,
    PartialCommit,
    LinkReport,
    PlaceRequest,
    PlaceTrouble,
)
Endpoint = Callable[[Request], Awaitable[Response]]
TellPointer = Callable[[Pointer], None]

DONE = HTTPStatus.NO_CONTENT


class Routes:
    """One method per route. Who may call it is its first line."""

    def __init__(self, coordinator: Coordinator) -> None:
        self._coordinator = coordinator

    async def health(self, request: Request) -> Response:
        """GET /health: open to all, says nothing but that it answers."""
        return Response("ok", media_type="text/plain")

    async def register(self, request: Request) -> Response:
        """POST /register."""
        message = await self._from_node(request, Register)
        if message.role is not (role := self._caller(request).role):
            raise RefusalError(HTTPStatus.FORBIDDEN, f"{message.node_id} was admitted as {role}, not {message.role}")
        return answer(self._coordinator.register(message))

    async def heartbeat(self, request: Request) -> Response:
        """POST /heartbeat."""
        return answer(self._coordinator.heartbeat(await self._from_node(request, Heartbeat)))

    async def leases(self, request: Request) -> Response:
        """POST /leases."""
        return answer(self._coordinator.lease(await self._from_node(request, LeaseRequest)))

    async def leases_renew(self, request: Request) -> Response:
        """POST /leases/renew."""
        self._coordinator.keep(await self._from_node(request, LeaseRenewal))
        return Response(status_code=DONE)

    async def samples(self, request: Request) -> Response:
        """POST /samples."""
        self._coordinator.submit(await self._from_node(request, Submission, parse_submission))
        return Response(status_code=DONE)

    async def partials(self, request: Request) -> Response:
        """POST /partials."""
        self._coordinator.commit(await self._from_node(request, PartialCommit, parse_commit))
        return Response(status_code=DONE)

    async def links(self, request: Request) -> Response:
        """POST /links."""
        self._coordinator.link(await self._from_node(request, LinkReport))
        return Response(status_code=DONE)

    async def weights(self, request: Request) -> Response:
        """GET /weights/{epoch}/{version}: the safetensors file; ranges are honoured."""
        caller = self._caller(request)
        epoch, version = request.path_params["epoch"], request.path_params["version"]
        path = await asyncio.to_thread(self._coordinator.weights.intact_path, epoch, version)
        if path is None:
            raise RefusalError(HTTPStatus.NOT_FOUND, f"version {version} of epoch {epoch} is not served")
        return self._sent(path, caller)

    async def deltas(self, request: Request) -> Response:
        """GET /deltas/{epoch}/{base}/{version}: a delta's file; ranges are honoured."""
        caller = self._caller(request)
        names = (request.path_params[name] for name in ("epoch", "base", "version"))
        path = await asyncio.to_thread(self._coordinator.weights.intact_delta, *names)
        if path is None:
            raise RefusalError(HTTPStatus.NOT_FOUND, "this delta is not served")
        return self._sent(path, caller)

    async def ways(self, request: Request) -> Response:
        """GET /ways/{epoch}/{version}: deltas and neighbours for the node that asks."""
        caller = self._caller(request)
        if caller.node_id is None:
            raise RefusalError(HTTPStatus.FORBIDDEN, "only a node takes weights")
        where = request.path_params["epoch"], request.path_params["version"]
        return answer(self._coordinator.ways(caller.node_id, *where))

    async def places(self, request: Request) -> Response:
        """POST /places (long poll)."""
        asked, weights = await self._from_node(request, PlaceRequest), self._coordinator.weights
        region = self._coordinator.region_of(asked.node_id)
        path = await asyncio.to_thread(weights.intact_file, asked.sha256)
        if path is None:
            raise RefusalError(HTTPStatus.NOT_FOUND, "this file is not served")
        try:
            return answer(Place(url=await weights.copies.place(region, asked.sha256, path, PLACE_WAIT_S)))
        except NoCopyError as error:
            raise RefusalError(HTTPStatus.NOT_FOUND, str(error)) from error

    async def places_trouble(self, request: Request) -> Response:
        """POST /places/trouble."""
        told = await self._from_node(request, PlaceTrouble)
        self._coordinator.weights.copies.hear(self._coordinator.region_of(told.node_id), told)
        return Response(status_code=DONE)

    async def probe(self, request: Request) -> Response:
        """GET /probe/{size}: as many bytes, by which a node measures the link to a head that opens this door only."""
        self._caller(request)
        size = request.path_params["size"]
        if size > MAX_PAYLOAD:
            raise RefusalError(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"a probe has at most {MAX_PAYLOAD} bytes")
        return Response(bytes(size), media_type="application/octet-stream")

    async def batch(self, request: Request) -> Response:
        """GET /batch."""
        self._require_trainer(request)
        batch = await self._coordinator.batch()
        if request.headers.get("accept") == RAW:
            return Response(await asyncio.to_thread(pack_batch, batch), media_type=RAW)
        return answer(opened(batch))

    async def publish(self, request: Request) -> Response:
        """POST /publish."""
        self._require_trainer(request)
        report = await read(request, StepReport)
        if not await asyncio.to_thread(self._coordinator.weights.holds, Path(report.path), report.sha256, report.size):
            raise RefusalError(HTTPStatus.CONFLICT, f"{report.path} is not the file that was reported")
        self._coordinator.publish(report)
        self._coordinator.weights.copies.keep_only(self._coordinator.weights.digests)
        return Response(status_code=DONE)

    async def evaluation(self, request: Request) -> Response:
        """POST /evaluation."""
        self._require_trainer(request)
        self._coordinator.evaluate(await read(request, Evaluation))
        return Response(status_code=DONE)

    async def rendezvous(self, request: Request) -> Response:
        """POST /rendezvous: rank 0 says where the trainer's ranks meet, and how far they are."""
        self._require_trainer(request)
        return answer(Heeded(is_wanted=self._coordinator.gang.meet(await read(request, Rendezvous))))

    async def finish(self, request: Request) -> Response:
        """POST /finish: the trainer has written output and checkpoint."""
        self._require_trainer(request)
        self._coordinator.finish()
        return Response(status_code=DONE)

    async def status(self, request: Request) -> Response:
        """GET /status."""
        self._caller(request)
        return answer(self._coordinator.view())

    async def renew(self, request: Request) -> Response:
        """POST /control/renew."""
        self._require_controller(request)
        self._coordinator.renew(await read(request, Renewal))
        return Response(status_code=DONE)

    async def admit(self, request: Request) -> Response:
        """POST /control/admit."""
        self._require_controller(request)
        self._coordinator.admit(await read(request, Admit))
        return Response(status_code=DONE)

    async def drain(self, request: Request) -> Response:
        """POST /control/drain."""
        self._require_controller(request)
        self._coordinator.drain(await read(request, DrainRequest))
        return Response(status_code=DONE)

    async def stop(self, request: Request) -> Response:
        """POST /control/stop."""
        self._require_controller(request)
        self._coordinator.stop(await read(request, StopRequest))
        return Response(status_code=DONE)

    def _sent(self, path: Path, caller: Caller) -> Response:
        return CountedFile(path, caller.node_id or self._coordinator.spec.node_id, self._coordinator.sent_bytes)

    def _caller(self, request: Request) -> Caller:
        caller = self._coordinator.access.caller(request.headers.get("authorization", ""))
        if caller is None:
            raise RefusalError(HTTPStatus.UNAUTHORIZED, "no token that is admitted")
        return caller

    def _require_controller(self, request: Request) -> None:
        if not self._caller(request).is_controller:
            raise RefusalError(HTTPStatus.FORBIDDEN, "only the controller may do this")

    def _require_trainer(self, request: Request) -> None:
        if self._caller(request).node_id != self._coordinator.spec.node_id:
            raise RefusalError(HTTPStatus.FORBIDDEN, "only the trainer may do this")

    async def _from_node(
        self, request: Request, kind: type[NodeMessage], parse_raw: Callable[[bytes], NodeMessage] | None = None
    ) -> NodeMessage:
        """Return a node's message about itself; a token speaks for its own node only."""
        caller = self._caller(request)
        message = await read(request, kind, parse_raw if request.headers.get("content-type") == RAW else None)
        if caller.node_id != message.node_id:
            raise RefusalError(HTTPStatus.FORBIDDEN, "a token speaks for its own node only")
        return message


def create_app(coordinator: Coordinator) -> FastAPI:
    """Return the app; the caller calls `coordinator.tick` every heartbeat.

    Plain routes: FastAPI's dependency solving would cost a third of a call and has nothing to solve here.
    """
    routes = Routes(coordinator)
    app = FastAPI(title="hexcloud coordinator", docs_url=None, redoc_url=None, openapi_url=None)
    for path, endpoint in (
        ("/health", routes.health),
        ("/weights/{epoch:number}/{version:number}", routes.weights),
        ("/deltas/{epoch:number}/{base:number}/{version:number}", routes.deltas),
        ("/ways/{epoch:number}/{version:number}", routes.ways),
        ("/probe/{size:number}", routes.probe),
        ("/batch", routes.batch),
        ("/status", routes.status),
    ):
        app.add_route(path, endpoint, methods=["GET"])
    for path, endpoint in (
        ("/register", routes.register),
        ("/heartbeat", routes.heartbeat),
        ("/leases", routes.leases),
        ("/leases/renew", routes.leases_renew),
        ("/samples", routes.samples),
        ("/partials", routes.partials),
        ("/links", routes.links),
        ("/places", routes.places),
        ("/places/trouble", routes.places_trouble),
        ("/publish", routes.publish),
        ("/evaluation", routes.evaluation),
        ("/rendezvous", routes.rendezvous),
        ("/finish", routes.finish),
        ("/control/renew", routes.renew),
        ("/control/admit", routes.admit),
        ("/control/drain", routes.drain),
        ("/control/stop", routes.stop),
    ):
        app.add_route(path, endpoint, methods=["POST"])
    for error in (RefusalError, UnknownNodeError, ConflictError):
        app.add_exception_handler(error, _refuse)
    return app


@asynccontextmanager
async def serving(
    coordinator: Coordinator, run_secret: str, door: Door = HERE, tell: TellPointer | None = None
) -> AsyncIterator[str]:
    """Serve while the block runs; give the URL for this machine once the signed pointer leads others here.

    `tell` is called with the pointer beside its file. Raises OSError when the port is taken.
    """
    config = uvicorn.Config(
        create_app(coordinator),
        log_config=None,
        access_log=False,
        ws="none",
        lifespan="off",
        timeout_keep_alive=KEEP_ALIVE_S,
        timeout_graceful_shutdown=GRACEFUL_S,
    )
    config.load()
    config.ssl = door.tls
    server = _Server(config)
    with listen(door) as listener:
        port = listener.getsockname()[1]
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(server.serve(sockets=[listener]))
            ticking = tasks.create_task(_tick_for_ever(coordinator))
            while not server.started:  # noqa: ASYNC110 - uvicorn has no event for it
                await asyncio.sleep(0.01)
            spec = coordinator.spec
            pointer = sign_pointer(
                spec.run_id, door.url(door.address or door.host, port), coordinator.epoch, run_secret
            )
            write_pointer(Path(spec.run_dir), pointer)
            if tell is not None:
                tell(pointer)
            try:
                yield door.url(local_host(door.host), port)
            finally:
                ticking.cancel()
                server.should_exit = True


class _Server(uvicorn.Server):
    """A server that leaves signals to the process it is part of."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Do nothing."""
        yield


async def _tick_for_ever(coordinator: Coordinator) -> None:
    while True:
        coordinator.tick()
        await asyncio.sleep(coordinator.spec.heartbeat_s)


async def _refuse(request: Request, error: Exception) -> Response:
    status = HTTPStatus.SERVICE_UNAVAILABLE
    if isinstance(error, RefusalError):
        status = error.status
    if isinstance(error, ConflictError):
        status = HTTPStatus.CONFLICT
    # The rest of a message that is too large is not waited for.
    headers = {"Connection": "close"} if status == HTTPStatus.REQUEST_ENTITY_TOO_LARGE else None
    return Response(str(error), status_code=status, headers=headers, media_type="text/plain")
