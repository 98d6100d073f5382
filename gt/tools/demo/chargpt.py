"""The small GPT on real text, trained in GT and, where it is installed, in PyTorch: same weights,
same batches.

The text is the source of the running interpreter's standard library: always there, nothing shipped.
"""

from __future__ import annotations

import importlib.util
import sysconfig
import time
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

import numpy as np
import numpy.typing as npt

import gt
from gt.nn import Module
from gt.tools.demo.model import Sizes, char_gpt

Codes = npt.NDArray[np.int64]

STEPS = 200
BATCH = 16  # windows of text a step
TEXT_CHARACTERS_MAX = 1_000_000  # more would not be seen in 200 steps
LIMITS = {"float32": 1e-5, "float64": 1e-9}  # looser ones would not notice a missing weight decay


@dataclass(frozen=True)
class Text:
    """A text as numbers."""

    alphabet: str  # character i stands at place i
    codes: Codes  # [length]

    def decode(self, codes: Codes) -> str:
        """The characters of some numbers."""
        return "".join(self.alphabet[code] for code in codes)


@dataclass(frozen=True)
class Curve:
    """A training run."""

    losses: list[float]  # of each step
    seconds: float


@dataclass(frozen=True)
class Result:
    """GT's training run and PyTorch's, and what the first one's model writes."""

    ours: Curve
    torch: Curve | None  # where PyTorch is not installed
    dtype: str
    sample: str

    @property
    def difference(self) -> float:
        """The largest relative difference of the two curves; 0 where there is one."""
        if self.torch is None:
            return 0.0
        ours, theirs = np.array(self.ours.losses), np.array(self.torch.losses)
        return float(np.max(np.abs(ours - theirs) / np.abs(theirs)))

    @property
    def limit(self) -> float:
        """Largest difference that passes."""
        return LIMITS[self.dtype]


def load_text() -> Text:
    """The standard library's modules in the order of their names; what is not ASCII becomes '?'."""
    folder = Path(sysconfig.get_path("stdlib"))
    text = ""
    for path in sorted(folder.glob("*.py")):
        text += path.read_text(encoding="ascii", errors="replace").replace("\ufffd", "?")
        if len(text) >= TEXT_CHARACTERS_MAX:
            break
    text = text[:TEXT_CHARACTERS_MAX]
    alphabet = "".join(sorted(set(text)))
    places = {character: place for place, character in enumerate(alphabet)}
    return Text(alphabet, np.array([places[character] for character in text], np.int64))


def batches(text: Text, sizes: Sizes, *, steps: int, seed: int) -> Codes:
    """Random windows [steps, b, t + 1]: t characters and their successors, shifted by one."""
    generator = np.random.default_rng(seed)
    length = sizes.context + 1
    starts = generator.integers(0, len(text.codes) - length, size=(steps, BATCH, 1))
    windows: Codes = text.codes[starts + np.arange(length)]
    return windows


def compare(
    *, seed: int, steps: int = STEPS, dtype: str = "float32", show_progress: bool = True
) -> Result:
    """Train in GT and in PyTorch, from the same weights on the same batches."""
    text = load_text()
    sizes = Sizes(len(text.alphabet))
    windows = batches(text, sizes, steps=steps, seed=seed)
    gt.manual_seed(seed)
    model = char_gpt(gt, sizes).to(getattr(gt, dtype))
    beside = _beside(model, sizes, dtype) if importlib.util.find_spec("torch") else None
    ours = train(gt, model, windows, show_progress=show_progress)
    theirs = beside and train(*beside, windows, show_progress=show_progress)
    sample = write(model, text, sizes, seed=seed)
    return Result(ours, theirs, dtype, sample)


def _beside(model: Module, sizes: Sizes, dtype: str) -> tuple[ModuleType, Module]:
    """PyTorch, and the same model in it."""
    import torch

    twin = char_gpt(torch, sizes).to(getattr(torch, dtype))
    weights = {name: torch.tensor(w.numpy()) for name, w in model.state_dict().items()}
    twin.load_state_dict(weights)
    return torch, twin


def train(lib: ModuleType, model: Module, windows: Codes, *, show_progress: bool) -> Curve:
    """Train a model; the lines are the same for both libraries."""
    from tqdm import tqdm

    optimizer = lib.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=0.1)
    losses = []
    start = time.perf_counter()
    for window in tqdm(windows, desc=f"GPT, {lib.__name__}", disable=not show_progress):
        seen, following = lib.tensor(window[:, :-1]), lib.tensor(window[:, 1:])  # [b, t] each
        scores = model(seen)  # [b, t, v]
        loss = lib.nn.functional.cross_entropy(scores.flatten(0, 1), following.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    curve = [loss.item() for loss in losses]
    return Curve(curve, time.perf_counter() - start)


def write(model: Module, text: Text, sizes: Sizes, *, seed: int, characters: int = 300) -> str:
    """Let the model write on from a line break, one drawn character after the other."""
    generator = np.random.default_rng(seed)
    codes = [text.alphabet.index("\n")]
    with gt.no_grad():
        for _ in range(characters):
            scores = model(gt.tensor([codes[-sizes.context :]]))[0, -1]  # [v]
            shares = scores.double().softmax(-1).numpy()
            codes.append(int(generator.choice(len(shares), p=shares / shares.sum())))
    return text.decode(np.array(codes[1:]))
