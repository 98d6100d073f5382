"""Mini-GPT: a real GPT whose parts are named by signals; sharding_config.yaml says where they run.

`python examples/tuning_demo/model.py` prints its stages and its number of parameters.
"""

import argparse
import re
import sysconfig
from collections.abc import Iterator
from pathlib import Path

import numpy as np

import gt
from gt import nn
from gt.nn import functional
from gt.pipeline import SCHEDULES, Schedule

config = {
    "num_layers": 8,  # 32 layers make the "512 M" model of 506 million parameters
    "hidden_size": 1024,
    "num_heads": 16,
    "intermediate_size": 4096,
    "vocab_size": 50257,
}
CONTEXT = 1024  # the longest sequence
TEXT_BYTES = 2_000_000
STAGE = re.compile(r"pp_stage(\d+)")


def matrix(rows: int, columns: int) -> nn.Parameter:
    """A weight [rows, columns] for `x @ weight`, normally distributed."""
    return nn.Parameter(nn.init.normal_(gt.empty(rows, columns), std=0.02))


def stage_count() -> int:
    """Number of stages that the configuration names: pp_stage0, pp_stage1, ...; 1 without it."""
    named = {int(match[1]) for name in gt.get_config() if (match := STAGE.fullmatch(name))}
    count = 0
    while count in named:
        count += 1
    return max(count, 1)


class Attention(nn.Module):
    """Causal attention; QKV is column parallel and cut on heads, the output row parallel.

    Args:
        hidden: Width.
        heads: Number of heads.
        stage: The name of the pipeline stage.
    """

    def __init__(self, hidden: int, heads: int, stage: str) -> None:
        super().__init__()
        self.heads, self.stage = heads, stage
        with gt.signal.context(f"{stage}_colpar"):
            # The q, k and v of a head are adjacent: sharding the columns gives workers whole heads.
            self.qkv_weight = matrix(hidden, 3 * hidden)
        with gt.signal.context(f"{stage}_rowpar"):
            self.out_weight = matrix(hidden, hidden)

    def forward(self, x: gt.Tensor) -> gt.Tensor:
        batch, length, hidden = x.shape
        with gt.signal.context(f"{self.stage}_colpar"):
            qkv = x @ self.qkv_weight  # [b, t, d] -> [b, t, 3d], cut on heads
        qkv = qkv.reshape(batch, length, self.heads, 3, hidden // self.heads)
        q, k, v = qkv.permute(3, 0, 2, 1, 4).unbind(0)  # [b, h, t, k] each
        y = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        y = y.transpose(1, 2).reshape(batch, length, hidden)  # [b, h, t, k] -> [b, t, d]
        with gt.signal.context(f"{self.stage}_rowpar"):
            return y @ self.out_weight


class Mlp(nn.Module):
    """Up, GELU, down: column parallel, then row parallel."""

    def __init__(self, hidden: int, intermediate: int, stage: str) -> None:
        super().__init__()
        self.stage = stage
        with gt.signal.context(f"{stage}_colpar"):
            self.up_weight = matrix(hidden, intermediate)
        with gt.signal.context(f"{stage}_rowpar"):
            self.down_weight = matrix(intermediate, hidden)

    def forward(self, x: gt.Tensor) -> gt.Tensor:
        with gt.signal.context(f"{self.stage}_colpar"):
            x = x @ self.up_weight
        x = functional.gelu(x)
        with gt.signal.context(f"{self.stage}_rowpar"):
            return x @ self.down_weight


class Block(nn.Module):
    """One layer: attention and MLP, each after a norm and with a residual connection."""

    def __init__(self, sizes: dict[str, int], stage: str) -> None:
        super().__init__()
        hidden = sizes["hidden_size"]
        self.norm1, self.norm2 = nn.LayerNorm(hidden), nn.LayerNorm(hidden)
        self.attention = Attention(hidden, sizes["num_heads"], stage)
        self.mlp = Mlp(hidden, sizes["intermediate_size"], stage)

    def forward(self, x: gt.Tensor) -> gt.Tensor:
        x = x + self.attention(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class MiniGPT(nn.Module):
    """Embeddings, layers spread evenly over the stages, head.

    Embedding and head have scopes of their own, `pp_embedding` and `pp_head`. Without an entry in
    the configuration they are on the workers of the first and the last stage.

    Args:
        sizes: As `config`.
        schedule: Gives the stages of each rank and their workers; one stage a rank if not given.
        ranks: Number of stages in the configuration; as many as it names if not given.
    """

    def __init__(
        self,
        sizes: dict[str, int],
        schedule: Schedule = SCHEDULES["1f1b"],
        ranks: int | None = None,
    ) -> None:
        super().__init__()
        ranks = ranks or stage_count()
        self.stages = schedule.stages(ranks)
        self.scopes = [f"pp_stage{schedule.rank(stage, ranks)}" for stage in range(self.stages)]
        layers, hidden, vocab = sizes["num_layers"], sizes["hidden_size"], sizes["vocab_size"]
        if layers < self.stages:
            raise ValueError(f"{layers} layers cannot be spread over {self.stages} stages")
        first, last = self.scopes[0], self.scopes[-1]
        with gt.signal.context(first):
            with gt.signal.context("pp_embedding"):
                self.tokens = matrix(vocab, hidden)
            with gt.signal.context(f"{first}_positions"):
                # Whole on every worker: sharded evenly by rows, a short sequence would be on the
                # first only.
                self.positions = matrix(CONTEXT, hidden)
        self.blocks = nn.ModuleList()
        for scope, count in zip(self.scopes, self.layers_of_stages(layers), strict=True):
            with gt.signal.context(scope):
                self.blocks.extend(Block(sizes, scope) for _ in range(count))
        with gt.signal.context(last):
            self.norm = nn.LayerNorm(hidden)
            with gt.signal.context(f"{last}_colpar"), gt.signal.context("pp_head"):
                self.head = matrix(hidden, vocab)

    def layers_of_stages(self, layers: int) -> list[int]:
        """Number of layers in each stage; the first stages have one more where needed."""
        return [
            layers // self.stages + (stage < layers % self.stages) for stage in range(self.stages)
        ]

    def embed(self, tokens: gt.Tensor) -> gt.Tensor:
        """Rows [b, t, d] of `tokens` [b, t]."""
        with gt.signal.context(self.scopes[0]), gt.signal.context("pp_embedding"):
            return functional.embedding(tokens, self.tokens)  # [b, t] -> [b, t, d]

    def stage(self, stage: int, x: gt.Tensor) -> gt.Tensor:
        """A stage of x [b, t, d]: its layers; positions in the first, a norm in the last."""
        counts = self.layers_of_stages(len(self.blocks))
        if stage > 0:
            # The boundary: the next use of x is on the next stage's workers.
            with gt.signal.context(f"stage{stage - 1}_to_stage{stage}"):
                x = x  # noqa: PLW0127 - emits nothing: the move belongs to its first use there
        with gt.signal.context(self.scopes[stage]):
            if stage == 0:
                x = x + self.positions[: x.shape[1]]
            first = sum(counts[:stage])
            for block in self.blocks[first : first + counts[stage]]:
                x = block(x)
            return self.norm(x) if stage == self.stages - 1 else x

    def scores(self, x: gt.Tensor) -> gt.Tensor:
        """Scores [b, t, v] of the last stage's x [b, t, d], the vocabulary cut."""
        last = self.scopes[-1]
        with (
            gt.signal.context(last),
            gt.signal.context(f"{last}_colpar"),
            gt.signal.context("pp_head"),
        ):
            return x @ self.head  # [b, t, d] -> [b, t, v]

    def forward(self, tokens: gt.Tensor) -> gt.Tensor:
        """Scores [b, t, v] of the token that follows each of `tokens` [b, t]."""
        x = self.embed(tokens)
        for stage in range(self.stages):
            x = self.stage(stage, x)
        return self.scores(x)

    def loss_of(self, x: gt.Tensor, targets: gt.Tensor) -> gt.Tensor:
        """Mean cross-entropy of `targets` [b, t] for the last stage's x [b, t, d]."""
        scores = self.scores(x)
        with gt.signal.context(self.scopes[-1]), gt.signal.context("pp_head"):
            return functional.cross_entropy(scores.flatten(0, 1), targets.flatten())

    def loss(self, tokens: gt.Tensor, targets: gt.Tensor) -> gt.Tensor:
        """Mean cross-entropy of `targets` [b, t], computed where the scores are."""
        x = self.embed(tokens)
        for stage in range(self.stages):
            x = self.stage(stage, x)
        return self.loss_of(x, targets)

    def describe(self) -> str:
        """Stages and the number of parameters, one line."""
        count = sum(parameter.numel() for parameter in self.parameters())
        layers = self.layers_of_stages(len(self.blocks))
        return f"Mini-GPT: {count:,} parameters; layers of each stage: {layers}"


def batches(sizes: dict[str, int], *, batch: int, length: int, steps: int) -> Iterator[np.ndarray]:
    """Windows [b, t + 1] of the standard library's source, a byte a token; deterministic."""
    text = b"".join(
        path.read_bytes() for path in sorted(Path(sysconfig.get_path("stdlib")).glob("*.py"))
    )[:TEXT_BYTES]
    tokens = np.minimum(np.frombuffer(text, np.uint8).astype(np.int64), sizes["vocab_size"] - 1)
    generator = np.random.default_rng(0)
    for _ in range(steps):
        starts = generator.integers(0, len(tokens) - length - 1, size=(batch, 1))
        yield tokens[starts + np.arange(length + 1)]


def add_sizes(parser: argparse.ArgumentParser) -> None:
    """Options that override the sizes of `config`."""
    for name, default in config.items():
        parser.add_argument(f"--{name.replace('_', '-')}", type=int, default=default, metavar="N")


def sizes_of(arguments: argparse.Namespace) -> dict[str, int]:
    """Sizes from the options of add_sizes()."""
    return {name: getattr(arguments, name) for name in config}


if __name__ == "__main__":
    given = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add_sizes(given)
    print(MiniGPT(sizes_of(given.parse_args())).describe())
    gt.disconnect()  # nobody waits for the values
