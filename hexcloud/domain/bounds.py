"""Bounds of what messages say. Whoever reads one counts on with its numbers, so none may be larger than sums can hold.

Each is far above what is ever rightly said: it keeps mistakes and lies out, and decides nothing.
"""

from typing import Annotated

from pydantic import Field

Count = Annotated[int, Field(ge=0, le=2**53)]
"""How many: up to here each whole number is a float of its own."""
Number = Annotated[int, Field(ge=-1, lt=2**31)]
"""Which version, epoch or attempt; -1: none yet."""
Slots = Annotated[int, Field(ge=0, le=2**20)]
"""Samples at once."""
Int32 = Annotated[int, Field(ge=-(2**31), lt=2**31)]
"""As wide as a token or its version is on the wire (raw.py); what it is worth is for admission to say."""
Seconds = Annotated[float, Field(ge=0, le=1e12)]
"""A span or, since the epoch, a moment."""
Measured = Annotated[float, Field(ge=0, le=1e9)]
"""A speed in GB/s or a latency in ms."""
Line = Annotated[str, Field(max_length=512)]
"""A name, an address, a digest."""
Text = Annotated[str, Field(max_length=16384)]
"""Why something failed; a certificate."""
