"""The embedded engine's process: a subset of SGLang's HTTP API over a small Qwen2 or Llama on one CPU thread.

python -m hexcloud.adapters.engines.embedded --model-path DIR --port-file FILE
"""

import argparse
import asyncio
import json
import os
import socket
import sys
from pathlib import Path

import torch
import uvicorn
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, PlainTextResponse, Response

from hexcloud.adapters.engines.embedded_engine import Engine, Settings
from hexcloud.adapters.engines.embedded_protocol import (
    AbortBody,
    GenerateBody,
    PauseBody,
    SlowDownBody,
    UpdateWeightsBody,
    answer,
)
from hexcloud.domain.errors import EngineError

_ORPHAN_CHECK_S = 1.0
_LAST_WORDS_S = 1
"""How long open requests may still take after the process was told to end."""


class Api:
    """HTTP handlers, named after their paths."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    async def generate(self, body: GenerateBody, request: Request) -> Response:
        """Generate; the answer is a list when the prompts were one. A caller that hangs up has its requests aborted."""
        engine = self._engine
        if engine.scheduler.weights is None:
            return _refuse("no weights are loaded yet", 503)
        requests = body.requests()
        if len({request.rid for request in requests}) < len(requests):
            return _refuse("rid must be unique within a batch")
        for wanted in requests:
            if reason := engine.refusal(wanted):
                return _refuse(reason)
        watching = asyncio.create_task(_abort_when_gone(request, engine, frozenset(wanted.rid for wanted in requests)))
        sequences = await engine.generate(requests)
        watching.cancel()
        answers = [answer(sequence, engine.scheduler.version, body.return_logprob) for sequence in sequences]
        return JSONResponse(answers if body.is_batch else answers[0])

    async def update_weights_from_disk(self, body: UpdateWeightsBody) -> Response:
        """Replace the weights."""
        try:
            self._engine.load(body)
        except EngineError as error:
            return JSONResponse({"success": False, "message": str(error)}, 400)
        message = f"Loaded {body.model_path}"
        return JSONResponse({"success": True, "message": message, "num_paused_requests": 0})

    async def pause_generation(self, body: PauseBody) -> Response:
        """Pause."""
        self._engine.scheduler.pause(body.mode)
        return JSONResponse({"message": f"Generation paused ({body.mode})", "status": "ok"})

    async def continue_generation(self) -> Response:
        """Go on."""
        self._engine.scheduler.resume()
        self._engine.wake()
        return JSONResponse({"message": "Generation continued", "status": "ok"})

    async def abort_request(self, body: AbortBody) -> Response:
        """Abort one request or all."""
        self._engine.scheduler.abort(None if body.abort_all else frozenset({body.rid}))
        return Response()

    async def slow_down(self, body: SlowDownBody) -> Response:
        """Sleep at every step from now on, or no more."""
        self._engine.step_sleep_s = body.forward_sleep_time or 0.0
        return Response()

    async def flush_cache(self) -> Response:
        """Answer as SGLang does; there is no cache between requests to flush."""
        scheduler = self._engine.scheduler
        if scheduler.running or scheduler.waiting:
            return PlainTextResponse("Requests are running or waiting", 400)
        return PlainTextResponse("Cache flushed")

    async def model_info(self) -> Response:
        """Say which weights are loaded."""
        engine = self._engine
        info = {"model_path": str(engine.model_path), "weight_version": engine.scheduler.version}
        return JSONResponse({**info, "is_generation": True, "model_type": "qwen2"})

    async def server_info(self) -> Response:
        """Say how the engine is set up and how full it is."""
        settings, scheduler = self._engine.settings, self._engine.scheduler
        state = {"running": len(scheduler.running), "waiting": len(scheduler.waiting), "paused": scheduler.paused}
        limits = {"max_running_requests": settings.max_running_requests, "random_seed": settings.random_seed}
        return JSONResponse({**limits, "internal_states": [state]})

    async def health(self) -> Response:
        """Say that the process answers."""
        return Response()

    async def ready(self) -> Response:
        """Say whether a request would be served at once."""
        scheduler = self._engine.scheduler
        return Response(status_code=503 if scheduler.paused or scheduler.weights is None else 200)


def create_app(engine: Engine) -> FastAPI:
    """Return the HTTP app around an engine. Whoever serves it also runs `engine.run()` on the same loop."""
    app = FastAPI(openapi_url=None)
    app.add_exception_handler(RequestValidationError, _invalid)
    api = Api(engine)
    pausing = ("pause_generation", "continue_generation", "abort_request", "slow_down")
    for path in ("generate", "update_weights_from_disk", *pausing):
        app.add_api_route(f"/{path}", getattr(api, path), methods=["POST"])
    for path in ("model_info", "server_info", "health", "ready"):
        app.add_api_route(f"/{path}", getattr(api, path), methods=["GET"])
    app.add_api_route("/flush_cache", api.flush_cache, methods=["GET", "POST"])
    return app


def _refuse(message: str, status: int = 400) -> Response:
    return JSONResponse({"error": {"message": message}}, status)


async def _abort_when_gone(request: Request, engine: Engine, rids: frozenset[str]) -> None:
    await request.receive()  # the body is read already, so the next message is the end of the connection
    engine.scheduler.abort(rids)


async def _invalid(_request: Request, error: Exception) -> Response:
    message = str(error.errors() if isinstance(error, RequestValidationError) else error)
    return JSONResponse({"object": "error", "message": message, "error": {"message": message}}, 400)


async def serve(settings: Settings) -> None:
    """Serve until told to end. A decode loop that dies takes the process with it: no engine only looks healthy."""
    engine = Engine(settings)
    listener = _listen(settings)
    config = uvicorn.Config(
        create_app(engine), log_level="warning", access_log=False, timeout_graceful_shutdown=_LAST_WORDS_S
    )
    server = uvicorn.Server(config)
    async with asyncio.TaskGroup() as tasks:
        decoding = tasks.create_task(engine.run())
        watching = tasks.create_task(_end_with_parent(settings.parent_pid, server))
        await server.serve(sockets=[listener])
        decoding.cancel()
        watching.cancel()


def _listen(settings: Settings) -> socket.socket:
    """Bind, then tell the port: a client that reads it may connect at once."""
    listener = socket.create_server((settings.host, settings.port))
    # Accepted sockets inherit it. Without, every answer waits 40 ms for a delayed acknowledgement (measured).
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if settings.port_file is not None:
        draft = settings.port_file.with_suffix(".tmp")
        draft.write_text(json.dumps({"port": listener.getsockname()[1]}))
        draft.replace(settings.port_file)
    return listener


async def _end_with_parent(parent_pid: int | None, server: uvicorn.Server) -> None:
    if parent_pid is None:
        return
    while os.getppid() == parent_pid:  # noqa: ASYNC110  nothing tells a process that its parent has died
        await asyncio.sleep(_ORPHAN_CHECK_S)
    server.should_exit = True


def parse(argv: list[str] | None = None) -> Settings:
    """Read the command line; flags that SGLang has carry SGLang's names."""
    parser = argparse.ArgumentParser(prog="hexcloud.adapters.engines.embedded", description=__doc__)
    parser.add_argument("--model-path", required=True, help="folder with config.json, and weights if any; -: on stdin")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=0, help="0: any free one")
    parser.add_argument("--port-file", type=Path, help='where to write {"port": N} once it listens')
    parser.add_argument("--max-running-requests", type=int, default=64)
    parser.add_argument("--context-length", type=int, help="default: what the model takes")
    parser.add_argument("--max-samples-per-s", type=float, help="emulated speed; default: none")
    parser.add_argument("--mean-tokens-per-sample", type=float, default=1.0, help="turns that speed into tokens/s")
    parser.add_argument("--random-seed", type=int, default=0)
    parser.add_argument("--parent-pid", type=int, help="end when this process is no longer the parent")
    args = parser.parse_args(argv)
    # By now everything is imported: whoever has yet to fetch the weights starts us first and tells us later.
    model_path = sys.stdin.readline().strip() if args.model_path == "-" else args.model_path
    if not model_path:
        parser.error("--model-path - was given and stdin ended without a path")
    if args.max_samples_per_s is not None and args.max_samples_per_s * args.mean_tokens_per_sample <= 0:
        parser.error("--max-samples-per-s and --mean-tokens-per-sample must be positive")
    capped = args.max_samples_per_s is not None
    return Settings(
        model_path=Path(model_path),
        host=args.host,
        port=args.port,
        port_file=args.port_file,
        max_running_requests=args.max_running_requests,
        context_length=args.context_length,
        tokens_per_s=args.max_samples_per_s * args.mean_tokens_per_sample if capped else None,
        random_seed=args.random_seed,
        parent_pid=args.parent_pid,
    )


def main() -> None:
    """Run one engine."""
    torch.set_num_threads(1)  # a node is one of several on a machine; more threads gain 7 % at batch 64
    asyncio.run(serve(parse()))


if __name__ == "__main__":
    main()
