"""A small character-level GPT, written once for two libraries: give it `gt` or `torch`."""

from __future__ import annotations

import math
from dataclasses import dataclass
from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gt import Tensor
    from gt.nn import Module


@dataclass(frozen=True)
class Sizes:
    """Sizes of the model."""

    vocabulary: int  # v, different characters
    context: int = 64  # t, characters that it sees at most
    width: int = 64  # d
    heads: int = 4  # h
    layers: int = 2


def char_gpt(lib: ModuleType, sizes: Sizes) -> Module:
    """Characters [b, t] to scores of the next one [b, t, v], in the library that is given."""
    nn = lib.nn
    head_width = sizes.width // sizes.heads  # k

    class Attention(nn.Module):  # type: ignore[name-defined,misc]
        def __init__(self) -> None:
            super().__init__()
            self.qkv = nn.Linear(sizes.width, 3 * sizes.width)
            self.out = nn.Linear(sizes.width, sizes.width)
            future = lib.ones(sizes.context, sizes.context, dtype=lib.bool).triu(1)
            self.register_buffer("future", future, persistent=False)

        def forward(self, x: Tensor) -> Tensor:
            b, t, d = x.shape
            q, k, v = (
                part.reshape(b, t, sizes.heads, head_width).transpose(1, 2)  # [b, h, t, k]
                for part in self.qkv(x).split(d, dim=-1)  # [b, t, 3d] -> three of [b, t, d]
            )
            scores = q @ k.transpose(-2, -1) / math.sqrt(head_width)  # [b, h, t, t]
            weights = scores.masked_fill(self.future[:t, :t], -math.inf).softmax(-1)
            joined = (weights @ v).transpose(1, 2).reshape(b, t, d)  # [b, h, t, k] -> [b, t, d]
            attended: Tensor = self.out(joined)
            return attended

    class Block(nn.Module):  # type: ignore[name-defined,misc]
        def __init__(self) -> None:
            super().__init__()
            self.before_attention = nn.LayerNorm(sizes.width)
            self.attention = Attention()
            self.before_net = nn.LayerNorm(sizes.width)
            self.net = nn.Sequential(
                nn.Linear(sizes.width, 4 * sizes.width),
                nn.GELU(),
                nn.Linear(4 * sizes.width, sizes.width),
            )

        def forward(self, x: Tensor) -> Tensor:
            x = x + self.attention(self.before_attention(x))
            out: Tensor = x + self.net(self.before_net(x))
            return out

    class CharGPT(nn.Module):  # type: ignore[name-defined,misc]
        def __init__(self) -> None:
            super().__init__()
            self.characters = nn.Embedding(sizes.vocabulary, sizes.width)
            self.places = nn.Embedding(sizes.context, sizes.width)
            self.blocks = nn.Sequential(*(Block() for _ in range(sizes.layers)))
            self.norm = nn.LayerNorm(sizes.width)
            self.head = nn.Linear(sizes.width, sizes.vocabulary)

        def forward(self, text: Tensor) -> Tensor:
            places = lib.arange(text.shape[1])
            x = self.characters(text) + self.places(places)  # [b, t] -> [b, t, d]
            scores: Tensor = self.head(self.norm(self.blocks(x)))  # [b, t, v]
            return scores

    model: Module = CharGPT()
    return model
