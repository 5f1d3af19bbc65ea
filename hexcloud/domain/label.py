"""Labels: how a name is spelled in the tags of a machine, so that all clouds take it and it reads back."""

import re

NODE_TAG = "hexcloud-node"
"""The tag that says which node a machine is: slot and attempt, as a label."""
_PLAIN = re.compile(r"[a-z0-9-]")


def label(text: str) -> str:
    """Spell a text in a-z, 0-9 and `-`, anything else byte by byte as `_` and two hex digits."""
    return "".join(chr(byte) if _PLAIN.match(chr(byte)) else f"_{byte:02x}" for byte in text.encode())
