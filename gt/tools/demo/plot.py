"""The picture of the demo: both training runs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from gt.tools.demo import chargpt, digits

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MEAN_SHARE = 20  # the running mean is over a 20th of the steps
PALE, STRONG, OTHER = "#90caf9", "#0d47a1", "#ff9800"


def draw(scans: digits.Result, text: chargpt.Result, path: Path) -> None:
    """Write the loss curves to a PNG file."""
    import matplotlib as mpl

    mpl.use("Agg")  # a file only; no window
    from matplotlib import pyplot as plt

    figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4), constrained_layout=True)
    _curve(left, scans.losses, "")
    left.set(
        title=f"{scans.accuracy:.1%} of {scans.held_out} held-out digits right, on two workers",
        xlabel="step",
        ylabel="cross entropy",
        yscale="log",
    )
    if text.torch is None:
        title = f"a GPT learns: loss {text.ours.losses[0]:.2f} to {text.ours.losses[-1]:.2f}"
    else:
        title = f"GT's losses are PyTorch's: they differ by at most {text.difference:.1e}"
        right.plot(text.torch.losses, linewidth=5, alpha=0.35, color=OTHER, label="PyTorch")
    _curve(right, text.ours.losses, "GT, " if text.torch else "")
    right.set(title=title, xlabel="step", ylabel="cross entropy per character")
    for axes in (left, right):
        axes.legend()
    figure.savefig(path, dpi=110)
    plt.close(figure)


def _curve(axes: Axes, losses: Sequence[float], name: str) -> None:
    """The raw values, pale, and their running mean over them."""
    steps = max(1, len(losses) // MEAN_SHARE)
    axes.plot(losses, linewidth=0.6, color=PALE, label=f"{name}each step")
    axes.plot(
        running_mean(losses, steps),
        linewidth=1.8,
        color=STRONG,
        label=f"{name}mean of {steps} steps",
    )


def running_mean(values: Sequence[float], count: int) -> list[float]:
    """At each place the mean of `count` values around it; of those that there are at the ends."""
    sums = np.cumsum([0.0, *values])
    places = np.arange(len(values))
    starts = np.maximum(places - count // 2, 0)
    ends = np.minimum(places - count // 2 + count, len(values))
    means: list[float] = ((sums[ends] - sums[starts]) / (ends - starts)).tolist()
    return means
