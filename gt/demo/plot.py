"""The picture of the demo: both training runs."""

from __future__ import annotations

from pathlib import Path

from gt.demo import chargpt, digits


def draw(scans: digits.Result, text: chargpt.Result, path: Path) -> None:
    """Write the loss curves to a PNG file."""
    import matplotlib as mpl

    mpl.use("Agg")  # a file only; no window
    from matplotlib import pyplot as plt

    figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4), constrained_layout=True)
    left.plot(scans.losses, linewidth=0.8)
    left.set(
        title=f"digits on two workers: {scans.accuracy:.1%} of {scans.held_out} held-out scans",
        xlabel="step",
        ylabel="cross entropy",
        yscale="log",
    )
    title = "character GPT"
    if text.torch is not None:
        right.plot(text.torch.losses, linewidth=4, alpha=0.35, label="PyTorch")
        title += f": curves differ by at most {text.difference:.1e}"
    right.plot(text.ours.losses, linewidth=1, label="GT")
    right.set(
        title=title,
        xlabel="step",
        ylabel="cross entropy per character",
    )
    right.legend()
    figure.savefig(path, dpi=110)
    plt.close(figure)
