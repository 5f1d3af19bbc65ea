"""The embedded engine, real but for its process: served over HTTP on loopback from a thread of the test's own."""

import asyncio
import shutil
import threading
import time
from functools import cache
from pathlib import Path

import torch
import uvicorn

from hexcloud.adapters.engines.client import EngineClient
from hexcloud.adapters.engines.embedded import create_app
from hexcloud.adapters.engines.embedded_engine import Engine, Settings
from hexcloud.adapters.engines.model_folder import read_model_facts
from hexcloud.domain.errors import EngineError
from hexcloud.runtime.tasks import EOS_ID, TASKS
from hexcloud.runtime.trainer_model import build_model, config_of
from hexcloud.runtime.weights import write_weights

START_S = 30.0


class ThreadedEngine:
    """Started with weights, ended by `close`. `token_s`: seconds added to every token."""

    def __init__(self, directory: Path, version: int, token_s: float) -> None:
        self._engine = Engine(Settings(model_path=directory))
        self._engine.step_sleep_s = token_s
        app = create_app(self._engine)
        config = uvicorn.Config(
            app, port=0, log_level="error", access_log=False, ws="none", timeout_graceful_shutdown=1
        )
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()), daemon=True)
        self._thread.start()
        self.client = EngineClient(f"http://127.0.0.1:{self._port()}", read_model_facts(directory))
        self.client.update_weights_from_disk(str(directory), version)

    def close(self) -> None:
        self._server.should_exit = True
        self._thread.join(START_S)
        self.client.close()

    async def _serve(self) -> None:
        decoding = asyncio.create_task(self._engine.run())
        await self._server.serve()
        decoding.cancel()

    def _port(self) -> int:
        gives_up_at = time.monotonic() + START_S
        while time.monotonic() < gives_up_at:
            if self._server.started:
                return int(self._server.servers[0].sockets[0].getsockname()[1])
            time.sleep(0.005)
        raise EngineError("the engine's thread does not listen")


class TalkativePolicy:
    """A policy that never ends by itself: every sample has all the tokens it may have.

    Its layers add nothing, and every token's embedding says the same in its first place, from which the head makes a
    logit for eos that is far below the others. Made before the test's clock runs: torch and transformers take seconds.
    """

    def __init__(self) -> None:
        model = build_model(TASKS["sort_digits"], seed=0)
        model.config.tie_word_embeddings = False
        self._config = config_of(model)
        self._state = {name: tensor.detach().clone() for name, tensor in model.state_dict().items()}
        for name, tensor in self._state.items():
            if name.endswith(("o_proj.weight", "down_proj.weight")):
                tensor.zero_()
        embedding = self._state["model.embed_tokens.weight"]
        embedding.normal_()
        embedding[:, 0] = 3.0
        head = self._state["lm_head.weight"] = torch.randn_like(embedding) * 0.1
        head[EOS_ID] = 0.0
        head[EOS_ID, 0] = -30.0

    def write(self, path: Path, version: int) -> bytes:
        """Write a version into a file, as the trainer does, and return the file's content."""
        self._state["model.norm.weight"][1] = 1.0 + version / 1000
        folder = path.with_suffix(".folder")
        write_weights(folder, self._state, self._config).path.rename(path)
        shutil.rmtree(folder)
        return path.read_bytes()


@cache
def talkative_policy() -> TalkativePolicy:
    """Return the one of this session."""
    return TalkativePolicy()
