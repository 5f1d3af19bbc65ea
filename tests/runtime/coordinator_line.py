"""A client of a coordinator that is really served, in short."""

import hashlib
from dataclasses import dataclass
from pathlib import Path

import httpx

from hexcloud.domain.messages import LeaseGrant
from hexcloud.runtime.coordinator import Coordinator

HEAD, A, B = "run.trainer-0.0", "run.rollout-0.0", "run.rollout-1.0"
TOKENS = {"head": "token-head", "a": "token-a", "b": "token-b", "controller": "token-controller"}
WEIGHTS = bytes(range(256)) * 1000


@dataclass
class Line:
    """A client of the served coordinator, and the coordinator itself."""

    client: httpx.AsyncClient
    coordinator: Coordinator
    run_dir: Path

    async def get(self, path: str, who: str = "a") -> httpx.Response:
        return await self.client.get(path, headers={"Authorization": f"Bearer {TOKENS.get(who, who)}"})

    async def post(self, path: str, body: dict[str, object], who: str = "a") -> httpx.Response:
        return await self.client.post(path, json=body, headers={"Authorization": f"Bearer {TOKENS.get(who, who)}"})

    async def register(self, who: str = "a", node_id: str = A, role: str = "rollout") -> httpx.Response:
        body: dict[str, object] = {"node_id": node_id, "role": role, "slots": 8, "address": "127.0.0.1:1"}
        return await self.post("/register", body, who)

    async def publish(self, version: int, who: str = "head") -> httpx.Response:
        path = self.run_dir / f"{version}.safetensors"
        path.write_bytes(WEIGHTS)
        body: dict[str, object] = {
            "epoch": 0,
            "version": version,
            "path": str(path),
            "sha256": hashlib.sha256(WEIGHTS).hexdigest(),
            "size": len(WEIGHTS),
        }
        return await self.post("/publish", body, who)

    async def leases(self, want: int, version: int = 0) -> LeaseGrant:
        body: dict[str, object] = {"node_id": A, "epoch": 0, "version": version, "want": want}
        return LeaseGrant.model_validate_json((await self.post("/leases", body)).content)

    async def submit(self, grant: LeaseGrant, **lie: object) -> httpx.Response:
        samples = [
            {
                "lease": lease.id,
                "attempt": lease.attempt,
                "group": lease.group,
                "index": lease.index,
                "epoch": lease.epoch,
                "prompt_ids": lease.prompt_ids,
                "tokens": [7, 2],
                "logprobs": [-0.1, -0.2],
                "versions": [lease.version] * 2,
                "reward": float(lease.index),
                **lie,
            }
            for lease in grant.leases
        ]
        return await self.post("/samples", {"node_id": A, "samples": samples})
