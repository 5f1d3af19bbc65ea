"""The platform that SGLang's own extension point asks for (sglang 0.5.22 and 0.5.23)."""

from sglang.srt.platforms.cpu import CpuDeviceMixin
from sglang.srt.platforms.device_mixin import PlatformEnum
from sglang.srt.platforms.interface import SRTPlatform


class PlainCpuPlatform(CpuDeviceMixin, SRTPlatform):
    """A CPU without SGLang's own CPU kernels, which no package index has."""

    _enum = PlatformEnum.OOT
    device_name = "cpu"
    device_type = "cpu"

    def get_default_attention_backend(self) -> str:
        """Attend with torch's scaled_dot_product_attention."""
        return "torch_native"

    def get_dispatch_key_name(self) -> str:
        """Take the implementation of each layer that is plain torch."""
        return "native"

    def is_pin_memory_available(self, device: object = None) -> bool:
        """Pinned memory is for copies to a GPU."""
        return False
