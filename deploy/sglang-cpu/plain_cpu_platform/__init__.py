"""Lets SGLang run on a plain CPU: torch's own kernels, no CUDA graphs, no pinned memory.

SGLang finds it by its entry point in the group `sglang.srt.platforms` and uses it when SGLANG_PLATFORM=plain_cpu.
"""


def activate() -> str:
    """Name the class of the platform; SGLang imports it when it is ready to."""
    return "plain_cpu_platform.platform.PlainCpuPlatform"
