"""A small GPT-2 whose attention and MLPs are cut over all workers, as Megatron-LM cuts them.

    mpirun -np 2 python examples/gpt2_tp_test.py      two workers, one a rank
    GT_WORKERS=2 python examples/gpt2_tp_test.py      the same without mpirun

Rank 0 is the program, the dispatcher and worker 0, each other rank a worker: the loop runs once.
The losses do not depend on how many workers there are.
"""

import argparse
import math

import numpy as np

import gt
import gt.nn.functional as F
from gt import dnn, nn
from gt.distributed import ProcessGroup

BATCH, SEQUENCE, HIDDEN, HEADS, LAYERS, VOCABULARY = 4, 16, 32, 4, 2, 64


class Attention(nn.Module):
    def __init__(self, mesh: gt.DeviceMesh, pg: ProcessGroup) -> None:
        super().__init__()
        # One layer each for queries, keys and values: a cut of each is a cut of the heads.
        sizes = (mesh, pg, BATCH, SEQUENCE, HIDDEN, HIDDEN)
        self.query, self.key, self.value = (dnn.DColumnLinear(*sizes) for _ in range(3))
        self.out = dnn.DRowLinear(*sizes)

    def heads(self, x: gt.Tensor) -> gt.Tensor:
        return x.reshape(*x.shape[:2], HEADS, -1).transpose(1, 2)  # [b, t, d] -> [b, h, t, k]

    def forward(self, x: gt.Tensor) -> gt.Tensor:
        q, k, v = (self.heads(layer(x)) for layer in (self.query, self.key, self.value))
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(mixed.transpose(1, 2).reshape(x.shape))  # [b, h, t, k] -> [b, t, d]


class Block(nn.Module):
    def __init__(self, mesh: gt.DeviceMesh, pg: ProcessGroup) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(HIDDEN), nn.LayerNorm(HIDDEN)
        self.attention = Attention(mesh, pg)
        self.up = dnn.DColumnLinear(mesh, pg, BATCH, SEQUENCE, HIDDEN, 4 * HIDDEN)
        self.down = dnn.DRowLinear(mesh, pg, BATCH, SEQUENCE, 4 * HIDDEN, HIDDEN)

    def forward(self, x: gt.Tensor) -> gt.Tensor:
        x = x + self.attention(self.norm1(x))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class GPT2(nn.Module):
    def __init__(self, mesh: gt.DeviceMesh, pg: ProcessGroup) -> None:
        super().__init__()
        self.tokens = nn.Embedding(VOCABULARY, HIDDEN)
        self.places = nn.Embedding(SEQUENCE, HIDDEN)
        self.blocks = nn.ModuleList(Block(mesh, pg) for _ in range(LAYERS))
        self.norm = nn.LayerNorm(HIDDEN)
        self.head = dnn.DColumnLinear(mesh, pg, BATCH, SEQUENCE, HIDDEN, VOCABULARY)

    def forward(self, x: gt.Tensor) -> gt.Tensor:
        x = self.tokens(x) + self.places(gt.arange(x.shape[1]))  # [b, t] -> [b, t, d]
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))  # [b, t, d] -> [b, t, n], n cut over the workers


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=20)
    arguments = parser.parse_args()
    gt.distributed.init_process_group("mpi")  # ranks above 0 are workers from here on
    world_size = gt.distributed.get_world_size()
    print(f"{world_size} workers")
    mesh = gt.DeviceMesh((world_size,), list(range(world_size)))
    gt.manual_seed(0)
    model = GPT2(mesh, mesh.get_process_group(0))
    optimizer = gt.optim.AdamW(model.parameters(), lr=3e-3)
    # Each token is the one before it and one more: to be learnt in a few steps.
    starts = np.random.default_rng(0).integers(0, VOCABULARY, (BATCH, 1))
    text = gt.tensor((starts + np.arange(SEQUENCE + 1)) % VOCABULARY)
    for step in range(arguments.steps):
        optimizer.zero_grad()
        logits = model(text[:, :-1])
        loss = nn.parallel_cross_entropy(logits, text[:, 1:])
        loss.backward()
        optimizer.step()
        print(f"step {step} loss {loss.item():.4f}")
    print(f"head {model.head.weight.layout}, a guess costs {math.log(VOCABULARY):.4f}")


if __name__ == "__main__":
    main()
