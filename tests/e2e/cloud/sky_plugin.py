"""SkyPilot's server asks two public resolvers whether there is a network; here it asks the emulated cloud instead."""

from sky.backends import backend_utils
from sky.server.plugins import BasePlugin, ExtensionContext


class Reachable(BasePlugin):
    """Loaded by `~/.sky/plugins.yaml` into the API server and its workers."""

    def __init__(self, url: str) -> None:
        self._url = url

    def install(self, extension_context: ExtensionContext) -> None:
        backend_utils._TEST_IP_LIST = [self._url]
