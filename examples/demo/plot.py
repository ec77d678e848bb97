"""The plot of a demo: acknowledged records per second, ISR sizes, the kills and restarts.

Two panels over the seconds since the first record. Lines of partitions are set apart a little, so
that equal ISR sizes do not hide each other. Knows nothing of clusters.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from examples.demo.observing import Sample

_BUCKET_S: Final = 0.25


@dataclass(frozen=True, slots=True)
class Moment:
    """An act on the cluster; `at` on the monotonic clock."""

    at: float
    text: str
    is_kill: bool


def draw(
    path: str,
    began_at: float,
    acknowledged_at: Sequence[float],
    samples: Sequence[Sample],
    moments: Sequence[Moment],
    replicas: int,
    held: Sequence[tuple[float, float]] = (),
) -> None:
    """Write the picture as PNG; `held` are times at which the scenario held the producer back."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot

    figure, (rates, isr) = pyplot.subplots(
        2, 1, figsize=(11, 6.5), sharex=True, height_ratios=(3, 2), layout="constrained"
    )
    times, heights = _rates(began_at, acknowledged_at)
    rates.fill_between(times, heights, step="post", alpha=0.35, color="tab:blue")
    rates.step(times, heights, where="post", color="tab:blue")
    shown = [(start, end) for start, end in held if end - start >= _BUCKET_S / 2]
    for number, (start, end) in enumerate(shown):
        label = "the scenario holds the producer back" if number == 0 else None
        rates.axvspan(start - began_at, end - began_at, color="0.85", hatch="//", label=label)
    if shown:
        rates.legend(loc="upper left", fontsize="small")
    rates.set_ylabel("acknowledged records/s")
    rates.set_title("336,776 flights through a leader's and a controller's SIGKILL")
    seen = [sample.at - began_at for sample in samples]
    for partition in range(len(samples[0].isr_sizes) if samples else 0):
        sizes = [sample.isr_sizes[partition] + 0.04 * partition for sample in samples]
        isr.step(seen, sizes, where="post", linewidth=1.2, label=f"partition {partition}")
    isr.set_ylabel("in-sync replicas")
    isr.set_yticks(range(replicas + 1))
    isr.set_xlabel("seconds since the first record")
    isr.legend(loc="lower right", ncols=3, fontsize="small")
    for moment in moments:
        color = "tab:red" if moment.is_kill else "tab:green"
        for axes in (rates, isr):
            axes.axvline(moment.at - began_at, color=color, linestyle="--", linewidth=1)
        rates.annotate(
            moment.text,
            (moment.at - began_at, 0.98),
            xycoords=("data", "axes fraction"),
            rotation=90,
            ha="right",
            va="top",
            fontsize="small",
            color=color,
        )
    figure.savefig(path, dpi=110)
    pyplot.close(figure)


def _rates(began_at: float, acknowledged_at: Sequence[float]) -> tuple[list[float], list[float]]:
    done = [each - began_at for each in acknowledged_at if each]
    buckets = [0] * (int(max(done, default=0.0) / _BUCKET_S) + 2)
    for each in done:
        buckets[int(each / _BUCKET_S)] += 1
    times = [number * _BUCKET_S for number in range(len(buckets))]
    return times, [count / _BUCKET_S for count in buckets]
