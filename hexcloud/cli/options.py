"""Options and arguments that several commands share, spelt once."""

from pathlib import Path
from typing import Annotated

import typer

from hexcloud.cli.spec import NO_TRACE

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, and nothing else, on stdout.")]
Model = Annotated[str | None, typer.Option("--model", help="Model of the catalog.", show_default="Qwen2.5-7B")]
Target = Annotated[
    str | None,
    typer.Option(
        "--target-throughput", help="Trained tok/s such as 20k, or '5 steps/min', or '3 samples/s'.", show_default="20k"
    ),
]
MaxUsdPerHour = Annotated[float | None, typer.Option("--max-usd-per-hour", help="Cap on the plan's price, USD/h.")]
PolicyName = Annotated[
    str | None, typer.Option("--policy", help="A policy's name, or a YAML file.", show_default="cheapest")
]
Clouds = Annotated[
    list[str] | None, typer.Option("--cloud", help="Rent from this cloud only; may be repeated.", show_default="all")
]
FleetFile = Annotated[
    Path | None, typer.Option("--fleet", help="Plan for the machines of this YAML file instead of the market's.")
]
Why = Annotated[
    str | None,
    typer.Option("--why", help="Say why this GPU, offer or instance type (* is any text) is not in the plan."),
]
Explain = Annotated[
    bool, typer.Option("--explain", help="Say which rules hold the plan where it is, and what each costs.")
]
FrontierFile = Annotated[
    Path | None, typer.Option("--frontier", help="Draw cost against throughput into this PNG file.")
]
HtmlFile = Annotated[Path | None, typer.Option("--html", help="Write a report with all of that into this HTML file.")]
RunFile = Annotated[Path | None, typer.Option("--run", help="A run.yaml; other options win over it.")]
RunName = Annotated[
    str | None, typer.Argument(metavar="RUN", help="Id, its beginning, or name of a run.", show_default="the newest")
]
StartFile = Annotated[Path | None, typer.Argument(metavar="RUN.yaml", help="The run; options win over it.")]
Steps = Annotated[int | None, typer.Option("--steps", help="Training steps.", show_default="400")]
Budget = Annotated[float | None, typer.Option("--budget", help="USD for the whole run, teardown included.")]
Output = Annotated[
    Path | None, typer.Option("--output", help="Folder for the final model.", show_default="in the run's folder")
]
TraceName = Annotated[
    str | None,
    typer.Option(
        "--trace", help=f"Trace: a name, a CSV file, RECORDING[@START][=OFFERS], or {NO_TRACE}.", show_default="demo"
    ),
]
Provider = Annotated[
    str | None,
    typer.Option("--provider", help="Who rents: local emulates, skypilot rents real machines.", show_default="local"),
]
StoreUrl = Annotated[
    str | None, typer.Option("--store", help="Bucket in which real machines meet: s3://BUCKET/PREFIX or gs://...")
]
PassEnv = Annotated[
    list[str] | None,
    typer.Option("--pass-env", help="Variable of this environment that the machines need too; may be repeated."),
]
TaskName = Annotated[
    str | None,
    typer.Option(
        "--task",
        help="What the policy learns: sort_digits, reasoning_gym:NAME, jsonl:FILE or hf:DATASET[:SPLIT].",
        show_default="sort_digits",
    ),
]
Weights = Annotated[
    str | None,
    typer.Option("--weights", help="Hugging Face folder of the model to train.", show_default="the task's own policy"),
]
Engine = Annotated[
    str | None,
    typer.Option("--engine", help="What generates: embedded, or sglang, the real server.", show_default="embedded"),
]
AllRuns = Annotated[
    bool, typer.Option("--all-runs", help="End the machines of every run, found by their tags on every account.")
]
UnknownToo = Annotated[
    bool, typer.Option("--unknown-too", help="With --all-runs: machines of runs that this computer does not know, too.")
]
Name = Annotated[str | None, typer.Option("--name", help="Name of the run.", show_default="main")]
Resume = Annotated[
    str | None,
    typer.Option(
        "--resume", metavar="RUN", help="Go on with this run from its last checkpoint; --steps and --budget change it."
    ),
]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask before spending.")]
Detach = Annotated[bool, typer.Option("--detach", help="Leave the run to a process in the background.")]
