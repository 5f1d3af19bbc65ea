import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedModel, Qwen2Config, Qwen2ForCausalLM

from hexcloud.adapters.engines.client import EngineClient
from hexcloud.adapters.engines.model_folder import ModelFacts, read_model_facts
from hexcloud.adapters.engines.sglang import Device, Launch, SglangServer
from hexcloud.adapters.engines.sglang_home import find_sglang
from hexcloud.domain.errors import ConfigError
from hexcloud.domain.generation import FinishKind
from tests.adapters.engines.contract import LONG, SGLANG, STEP_S, Answer, Subject, ask


def weighs(folder: Path) -> bool:
    return any(folder.glob("*.safetensors"))


ModelMaker = Callable[..., PreTrainedModel]
KINDS = {"qwen2": (Qwen2Config, Qwen2ForCausalLM), "llama": (LlamaConfig, LlamaForCausalLM)}
EngineStarter = Callable[..., EngineClient]


@pytest.fixture(scope="session")
def make_model() -> ModelMaker:
    """Make a tiny random model. Weights are drawn wide (0.2): at the usual 0.02 every token is equally likely."""

    def make(seed: int, tied: bool = True, kv_heads: int = 2, kind: str = "qwen2") -> PreTrainedModel:
        torch.manual_seed(seed)
        config_type, model_type = KINDS[kind]
        config = config_type(
            vocab_size=21,
            hidden_size=32,
            intermediate_size=64,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=kv_heads,
            max_position_embeddings=64,
            tie_word_embeddings=tied,
            pad_token_id=0,
            bos_token_id=1,
            eos_token_id=2,
        )
        model: PreTrainedModel = model_type(config)  # type: ignore[no-untyped-call]
        for parameter in model.parameters():
            torch.nn.init.normal_(parameter, std=0.2)
        return model

    return make


@pytest.fixture(scope="session")
def save_model() -> Callable[[PreTrainedModel, Path], Path]:
    def save(model: PreTrainedModel, directory: Path) -> Path:
        directory.mkdir(parents=True, exist_ok=True)
        model.config.architectures = [type(model).__name__]
        model.config.to_json_file(directory / "config.json")
        tied = model.config.tie_word_embeddings
        state = {name: t for name, t in model.state_dict().items() if not (tied and name == "lm_head.weight")}
        save_file(state, directory / "model.safetensors")
        return directory

    return save


@pytest.fixture(scope="session")
def models(
    make_model: ModelMaker,
    save_model: Callable[[PreTrainedModel, Path], Path],
    tmp_path_factory: pytest.TempPathFactory,
) -> dict[str, dict[int, object]]:
    """Two versions of one model, 1 and 2: `theirs` as transformers has them, `paths` as folders."""
    theirs = {version: make_model(seed=version) for version in (1, 2)}
    paths = {version: str(save_model(model, tmp_path_factory.mktemp("model"))) for version, model in theirs.items()}
    return {"theirs": {**theirs}, "paths": {**paths}}


@pytest.fixture(scope="session")
def start_engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EngineStarter]:
    """Start real engine processes; all are ended with the session."""
    processes: list[subprocess.Popen[bytes]] = []
    clients: list[EngineClient] = []

    def start(model_path: Path, *flags: str) -> EngineClient:
        port_file = tmp_path_factory.mktemp("engine") / "port.json"
        argv = [sys.executable, "-m", "hexcloud.adapters.engines.embedded", "--model-path", str(model_path)]
        process = subprocess.Popen([*argv, "--port-file", str(port_file), *flags])
        processes.append(process)
        deadline = time.monotonic() + 240
        while not port_file.exists():
            assert process.poll() is None, "the engine ended before it listened"
            assert time.monotonic() < deadline, "the engine does not come up"
            time.sleep(0.05)
        facts = read_model_facts(Path(model_path)) if weighs(model_path) else ModelFacts(vocab=21)
        client = EngineClient(f"http://127.0.0.1:{json.loads(port_file.read_text())['port']}", facts)
        clients.append(client)
        return client

    yield start
    for client in clients:
        client.close()
    for process in processes:
        process.terminate()
    for process in processes:
        process.wait(timeout=60)


@pytest.fixture(scope="session")
def start_sglang(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[Path], EngineClient]]:
    """Start real SGLang servers on this machine's CPU; all are ended with the session."""
    servers: list[SglangServer] = []
    clients: list[EngineClient] = []

    def start(model: Path) -> EngineClient:
        try:
            home = find_sglang(os.environ)
            home.require_cpu()
        except ConfigError as error:
            pytest.skip(str(error))
        log = tmp_path_factory.mktemp("sglang") / "log"
        launch = Launch(home.python, model, version=1, device=Device.CPU, slots=16, seed=7, log=log)
        servers.append(SglangServer(launch, os.environ))
        clients.append(servers[-1].client())
        return clients[-1]

    yield start
    for client in clients:
        client.close()
    for server in servers:
        server.end()


@pytest.fixture(scope="session", params=("embedded", SGLANG))
def stage(request: pytest.FixtureRequest, models: dict[str, dict[int, object]]) -> Subject:
    path = Path(str(models["paths"][1]))
    if request.param == "embedded":
        client = request.getfixturevalue("start_engine")(path, "--max-running-requests", "16")
    else:
        client = request.getfixturevalue("start_sglang")(path)
    return Subject(client, models["theirs"], models["paths"], request.param)  # type: ignore[arg-type]


@pytest.fixture
def subject(stage: Subject) -> Iterator[Subject]:
    """The engine at rest, at full speed, with version 1."""
    if stage.client.info().version != 1:
        stage.client.update_weights_from_disk(stage.paths[1], 1)
    yield stage
    stage.slow_down(0)


@pytest.fixture
def flying(subject: Subject) -> Iterator[Answer]:
    """The answer to come of one long request, `flying`, that has made some tokens."""
    subject.slow_down(STEP_S)
    with ThreadPoolExecutor(1) as pool:
        future = pool.submit(subject.client.generate, (ask("flying", max_new_tokens=LONG),))
        deadline = time.monotonic() + 20
        while not subject.running:
            assert time.monotonic() < deadline, "the request does not run"
            time.sleep(0.02)
        time.sleep(8 * STEP_S)
        yield future
        subject.client.resume()
        subject.client.abort_all()
        assert future.result(timeout=30)[0].finish in FinishKind
