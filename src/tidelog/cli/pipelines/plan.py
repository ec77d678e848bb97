"""`tidelog pipeline plan`: a reassignment plan from samples of load.

The verb reads the cluster and writes files; `tidelog reassign` executes them.
"""

from __future__ import annotations

import re
from typing import Annotated, Final

import typer

from tidelog.cli.documents import prints
from tidelog.cli.help import CommandGroup
from tidelog.cli.output import say
from tidelog.cli.pipelines.running import absolute, progress
from tidelog.cli.pipelines.showing import REPORT_DOCUMENT, ReportOptions
from tidelog.cli.target import BootstrapOption, OptionalDirectoryOption, choose_target
from tidelog.cli.times import duration_ms

_SIZE: Final = re.compile(r"(\d+(?:\.\d+)?)\s*([KMGT]?)(?:i?B)?(?:/s)?", re.IGNORECASE)
_POWERS: Final = {"": 0, "K": 1, "M": 2, "G": 3, "T": 4}


SamplesOption = Annotated[
    str | None, typer.Option(help="Directory of samples, or a Parquet table.", show_default=False)
]
SampleOption = Annotated[
    str | None,
    typer.Option(help="Take samples until they span this time: 60s, 2h, 7d.", show_default=False),
]
PercentileOption = Annotated[
    float, typer.Option(min=0, max=100, help="Percentile of a partition's rate.")
]
ToleranceOption = Annotated[
    float, typer.Option(min=0, max=100, help="Percent from its share that a broker may be.")
]
DrainOption = Annotated[
    list[int] | None, typer.Option(help="A broker that is to hold nothing.", show_default=False)
]
ReplicasOption = Annotated[
    list[str] | None,
    typer.Option(
        help="Replicas of a topic: flights=3; 3 alone: of every topic that is not internal.",
        show_default=False,
    ),
]
OutOption = Annotated[
    str | None, typer.Option(help="New directory for the plan's files.", show_default=False)
]


def add_to(app: CommandGroup) -> None:
    """Add the verb to `tidelog pipeline`."""
    app.command(epilog="Example: tidelog pipeline plan --drain 3 --sample 60s --out moves")(plan)


@prints(REPORT_DOCUMENT)
def plan(
    how: ReportOptions,
    samples: SamplesOption = None,
    sample: SampleOption = None,
    every: Annotated[str, typer.Option(help="Time between samples.")] = "10s",
    percentile: PercentileOption = 95.0,
    tolerance: ToleranceOption = 10.0,
    drain: DrainOption = None,
    replication_factor: ReplicasOption = None,
    racks: Annotated[bool, typer.Option("--racks/--no-racks", help="Spread over racks.")] = True,
    bandwidth: Annotated[
        str, typer.Option(help="Bytes per second of a broker for moves.")
    ] = "50MiB",
    batch: Annotated[str, typer.Option(help="Length of a batch.")] = "10m",
    time_limit: Annotated[float, typer.Option(min=1, help="Seconds for the solver.")] = 60.0,
    out: OutOption = None,
    bootstrap: BootstrapOption = None,
    directory: OptionalDirectoryOption = None,
) -> None:
    """Plan moves that balance racks, disks, network and leaders with the fewest bytes.

    Nothing is moved: tidelog reassign execute runs the batches of --out one after the other.
    """
    factors = dict(_factor(word) for word in replication_factor or ())
    sample_s = None if sample is None else duration_ms(sample) / 1000
    every_s, batch_s = duration_ms(every) / 1000, duration_ms(batch) / 1000
    bytes_per_s = size_bytes(bandwidth)
    target = choose_target(bootstrap, directory)
    with how.session("tidelog plan") as spark:
        from tidelog.spark.pipelines.plan.planner import PlanOptions, check_target, write_plan
        from tidelog.spark.pipelines.plan.planner import plan as make_plan

        options = PlanOptions(
            bootstrap=target.bootstrap,
            samples=None if samples is None else absolute(samples),
            sample_s=sample_s,
            every_s=every_s,
            percentile=percentile,
            tolerance=tolerance / 100,
            drain=frozenset(drain or ()),
            replication_factors=factors,
            with_racks=racks,
            bandwidth=bytes_per_s,
            batch_s=batch_s,
            time_limit_s=time_limit,
        )
        if out is not None:
            check_target(out)
        with progress("taking samples") as show_progress:
            made = make_plan(spark, options, show_progress)
        written = write_plan(made, out) if out is not None and made.moves else []
    how.show(made.report)
    if written:
        say(f"{len(written)} files in {out}; begin with: tidelog reassign execute {written[0]}")


def size_bytes(text: str) -> float:
    """Return the bytes of `50MiB`, `1GiB/s` or a number; raise a usage error for other text."""
    match = _SIZE.fullmatch(text.strip())
    if match is None:
        raise typer.BadParameter(f"{text!r} is no size: 50MiB, 1GiB or a number expected")
    return float(match[1]) * 1024.0 ** _POWERS[match[2].upper()]


def _factor(word: str) -> tuple[str | None, int]:
    topic, _, number = word.rpartition("=")
    if not number.isdecimal() or (not topic and "=" in word):
        raise typer.BadParameter(
            f"{word!r} is no number of replicas: flights=3, or 3 for all topics, expected"
        )
    return topic or None, int(number)
