"""PushReceiver: the engine's side of weights that are pushed into it. SGLang only."""

from collections.abc import Iterator
from contextlib import contextmanager

from hexcloud.adapters.engines.client import EngineClient
from hexcloud.adapters.engines.line import EngineRefusedError
from hexcloud.domain.errors import EngineError
from hexcloud.domain.generation import PauseMode
from hexcloud.domain.weight_push import TensorSpec, UpdateGroup

JOIN_S = 120.0
_UNKNOWN = 404


class PushReceiver:
    """Calls block until the sender has done its part, so the sender makes them on other threads.

    A push that fails midway leaves an engine of half old and half new weights: it stays paused and must be replaced.
    """

    def __init__(self, engine: EngineClient, ranks: int = 1, mode: PauseMode = PauseMode.RETRACT) -> None:
        """`ranks`: the engine's tensor-parallel degree. `mode`: what becomes of requests that run meanwhile."""
        self.ranks = ranks
        self._engine = engine
        self._mode = mode

    def join(self, group: UpdateGroup, rank_offset: int) -> None:
        """Enter a group with ranks from `rank_offset` on; returns when all have entered. Raises EngineError."""
        body = {
            "master_address": group.address,
            "master_port": group.port,
            "rank_offset": rank_offset,
            "world_size": group.world_size,
            "group_name": group.name,
            "backend": group.backend,
        }
        self._engine.line.tell("/init_weights_update_group", body, JOIN_S)

    def leave(self, group: str) -> None:
        """Leave a group. Raises EngineError."""
        self._engine.line.tell("/destroy_weights_update_group", {"group_name": group})

    def receive(self, group: str, tensors: tuple[TensorSpec, ...], version: int) -> None:
        """Take the broadcasts of these tensors, in this order, as a version of the weights. Raises EngineError."""
        body = {
            "names": [tensor.name for tensor in tensors],
            "dtypes": [tensor.dtype for tensor in tensors],
            "shapes": [list(tensor.shape) for tensor in tensors],
            "group_name": group,
            "weight_version": str(version),
            "flush_cache": self._flushes,
        }
        with self._session():
            self._engine.line.tell("/update_weights_from_distributed", body)

    def take(self, payloads: tuple[str, ...], version: int) -> None:
        """Take tensors of this same machine, one payload per rank, as a version of the weights. Raises EngineError.

        A payload is base64 of a pickled list of (name, tensor).
        """
        body = {
            "serialized_named_tensors": list(payloads),
            "weight_version": str(version),
            "flush_cache": self._flushes,
        }
        with self._session():
            self._engine.line.tell("/update_weights_from_tensor", body)

    @property
    def _flushes(self) -> bool:
        return self._mode is not PauseMode.IN_PLACE

    @contextmanager
    def _session(self) -> Iterator[None]:
        """Pause, open a session where the engine has such (SGLang >= 0.5.21), close it, go on."""
        self._engine.pause(self._mode)
        has_sessions = self._begin()
        try:
            yield
        except EngineError as error:
            if has_sessions:
                self._engine.line.tell("/end_weight_update", {})
            raise EngineError(
                f"the engine's weights may be half old, half new, and it stays paused: {error}"
            ) from error
        if has_sessions:
            self._engine.line.tell("/end_weight_update", {})
        self._engine.resume()

    def _begin(self) -> bool:
        try:
            self._engine.line.tell("/begin_weight_update", {})
        except EngineRefusedError as error:
            if error.status == _UNKNOWN:
                return False
            self._engine.resume()  # nothing has changed
            raise
        return True
