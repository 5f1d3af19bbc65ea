"""`hexcloud catalog export`: SkyPilot's catalog written from what we believe."""

import time
from pathlib import Path
from typing import Annotated

import typer

from hexcloud.cli.options import AsJson, Clouds
from hexcloud.cli.output import print_json, say


def export(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Where to, such as ~/.sky/catalogs/v8.")],
    cloud: Clouds = None,
    as_json: AsJson = False,
) -> None:
    """Write SkyPilot's catalog files, so that it sees the prices that plans are made from.

    Machines without GPUs in files that are already there stay. Offers whose capacity is in doubt are not written.
    """
    from hexcloud import wiring
    from hexcloud.adapters.markets.skypilot_writer import write_skypilot_catalog

    market = wiring.believed_market(tuple(cloud or ())).market(time.time())
    written = write_skypilot_catalog(folder.expanduser(), market)
    if as_json:
        print_json({"folder": str(folder), "files": list(written.files), "left_out": list(written.left_out)})
        return
    for file in written.files:
        typer.echo(folder / file)
    if written.left_out:
        say(
            f"{len(written.left_out)} offers left out: no zone of their region is known, and SkyPilot asks zone by "
            "zone, or its catalog has another currency there"
        )
