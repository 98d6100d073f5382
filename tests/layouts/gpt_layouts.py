"""A character GPT trained under one layout; prints its losses and the bytes that moved as JSON.

`python tests/layouts/gpt_layouts.py NAME --config FILE [--steps N] [--dtype float32|float64]`; NAME
is one of LAYOUTS, whose YAML is written to FILE.
"""

import argparse
import inspect
import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import yaml

import gt
from gt import nn
from gt.nn import functional

LAYERS, WIDTH, HEADS, CONTEXT, BATCH = 4, 24, 4, 12, 6
MOVES = (
    "moved_bytes", "all_reduces", "reduce_scatters", "all_gathers", "all_to_alls", "transfers",
)  # fmt: skip


@dataclass(frozen=True)
class Placed:
    """Number of workers, entries of the configuration file, and layout of a batch as text."""

    workers: int = 1
    scopes: Mapping[str, Any] = field(default_factory=dict)
    batch: str | None = None


def tensor_parallel(workers: list[int], **mesh: Any) -> dict[str, Any]:
    """Column and row parallel matrices in every stage."""
    placed: dict[str, Any] = {}
    for stage in range(LAYERS):
        column: dict[str, Any] = (
            {"axis": 1} if not mesh else {"placements": ["replicate", "shard(1)"]}
        )
        row: dict[str, Any] = {"axis": 0} if not mesh else {"placements": ["replicate", "shard(0)"]}
        placed[f"stage{stage}"] = {"workers": workers, **mesh}
        placed[f"stage{stage}_column"] = {"shard": {**column, "workers": workers, **mesh}}
        placed[f"stage{stage}_row"] = {"shard": {**row, "workers": workers, **mesh}}
    return placed


def line(workers: int) -> str:
    """The workers as a layout's text names them."""
    return f"[{','.join(map(str, range(workers)))}]"


LAYOUTS = {
    "one": Placed(),
    **{f"dp{n}": Placed(n, batch=f"shard(0)@{line(n)}") for n in (2, 3, 4)},
    **{f"tp{n}": Placed(n, tensor_parallel(list(range(n)))) for n in (2, 3, 4)},
    "dp2tp2": Placed(
        4,
        tensor_parallel([0, 1, 2, 3], mesh={"dp": 2, "tp": 2}),
        "shard(0),replicate@[[0,1],[2,3]]",
    ),
    "sequence2": Placed(2, batch="shard(1)@[0,1]"),
    "fsdp2": Placed(2, {"parameters": {"**": "shard(0)"}}, "shard(0)@[0,1]"),
    "fsdp4": Placed(4, {"parameters": {"**": "shard(0)"}}, "shard(0)@[0,1,2,3]"),
    "pipeline2": Placed(2, {f"stage{k}": {"workers": [k // 2]} for k in range(LAYERS)}),
    "pipeline4": Placed(4, {f"stage{k}": {"workers": [k]} for k in range(LAYERS)}),
}


class Block(nn.Module):
    """Attention and an MLP, each behind a norm, in the scope of one stage."""

    def __init__(self, stage: int) -> None:
        super().__init__()
        self.stage = f"stage{stage}"
        with gt.signal.context(self.stage):
            self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
            self.dropout = nn.Dropout(0.1)
            with gt.signal.context(f"{self.stage}_column"):
                self.query, self.key = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)
                self.value, self.up = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, 4 * WIDTH)
            with gt.signal.context(f"{self.stage}_row"):
                self.out, self.down = nn.Linear(WIDTH, WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def heads(self, x: gt.Tensor) -> gt.Tensor:
        """[b, t, d] -> [b, h, t, k]."""
        return x.reshape(x.shape[0], x.shape[1], HEADS, -1).transpose(1, 2)

    def forward(self, x: gt.Tensor) -> gt.Tensor:
        with gt.signal.context(self.stage):
            y = self.norm1(x)
            with gt.signal.context(f"{self.stage}_column"):
                q, k, v = (
                    self.heads(self.query(y)),
                    self.heads(self.key(y)),
                    self.heads(self.value(y)),
                )
            y = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
            y = y.transpose(1, 2).reshape(*x.shape)
            with gt.signal.context(f"{self.stage}_row"):
                y = self.out(y)
            x = x + self.dropout(y)
            y = self.norm2(x)
            with gt.signal.context(f"{self.stage}_column"):
                y = functional.gelu(self.up(y))
            with gt.signal.context(f"{self.stage}_row"):
                y = self.down(y)
            return x + self.dropout(y)


class Gpt(nn.Module):
    """Embeddings in the first stage, the head in the last."""

    def __init__(self, vocabulary: int) -> None:
        super().__init__()
        with gt.signal.context("stage0"):
            self.tokens, self.places = nn.Embedding(vocabulary, WIDTH), nn.Embedding(CONTEXT, WIDTH)
        self.blocks = nn.ModuleList([Block(stage) for stage in range(LAYERS)])
        with gt.signal.context(f"stage{LAYERS - 1}"):
            self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, vocabulary, bias=False)

    def forward(self, indices: gt.Tensor) -> gt.Tensor:
        with gt.signal.context("stage0"):
            x = self.tokens(indices) + self.places(gt.arange(indices.shape[1]))
        for block in self.blocks:
            x = block(x)
        with gt.signal.context(f"stage{LAYERS - 1}"):
            return self.head(self.norm(x))


def batches(steps: int) -> tuple[np.ndarray, int]:
    """Characters of a module of the standard library, and how many different ones there are."""
    text = inspect.getsource(argparse).encode()
    letters, codes = np.unique(np.frombuffer(text, np.uint8), return_inverse=True)
    starts = np.random.default_rng(0).integers(0, len(codes) - CONTEXT - 1, (steps, BATCH))
    return codes[starts[..., None] + np.arange(CONTEXT + 1)].astype(np.int64), len(letters)


def train(name: str, steps: int, dtype: str) -> dict[str, Any]:
    """The losses of `steps` steps under that layout."""
    placed = LAYOUTS[name]
    gt.gpu_workers(placed.workers)
    gt.set_default_dtype(getattr(gt, dtype))
    gt.manual_seed(7)
    data, letters = batches(steps)
    model = Gpt(letters)
    optimizer = gt.optim.AdamW(model.parameters(), lr=3e-3)

    def given(array: np.ndarray) -> gt.Tensor:
        tensor = gt.tensor(array)
        return gt._core.distribute(tensor, layout=placed.batch) if placed.batch else tensor

    losses, counted = [], []
    for batch in data:
        logits = model(given(batch[:, :-1]))
        loss = functional.cross_entropy(
            logits.reshape(-1, letters), given(batch[:, 1:]).reshape(-1)
        )
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        counted.append(gt.debug.stats() if len(losses) in (1, steps) else {})
    return {"losses": losses, "a_step": a_step(counted[0], counted[-1], steps - 1)}


def a_step(first: Mapping[str, int], last: Mapping[str, int], steps: int) -> dict[str, int]:
    """Bytes and collectives of one step, once the model has its layout."""
    return {name: round((last[name] - first[name]) / max(steps, 1)) for name in MOVES}


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("layout", choices=LAYOUTS)
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--dtype", choices=("float32", "float64"), default="float64")
    parser.add_argument(
        "--config", type=Path, required=True, help="where the layout's YAML is written"
    )
    words = parser.parse_args()
    words.config.write_text(yaml.safe_dump(dict(LAYOUTS[words.layout].scopes)))
    gt.load_config(words.config)
    json.dump(train(words.layout, words.steps, words.dtype), sys.stdout)


if __name__ == "__main__":
    main()
