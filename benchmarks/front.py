"""`python benchmarks/front.py`: what an operator of a PyTorch program costs on the device `mux`.

Best of several rounds, in microseconds of the client's processor; steps in elapsed time. GT_FRONT
says whether operators are called in C++ (`on`) or in Python (`off`).
"""

import copy
import time
from collections.abc import Callable

import torch
from torch import nn
from torch.nn import functional as F

import gt
import gt.torch
from gt.torch.fast import start

ROUNDS = 7
CALLS = 2000
STEPS = 12


def microseconds(function: Callable[[], object], calls: int = CALLS) -> float:
    """Microseconds of one call."""
    best = float("inf")
    for _ in range(ROUNDS):
        start = time.process_time()
        for _ in range(calls):
            function()
        best = min(best, (time.process_time() - start) / calls)
        gt.synchronize()
    return best * 1e6


class Block(nn.Module):
    """A transformer's block."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        b, t, d = x.shape
        parts = self.qkv(self.first(x)).split(d, dim=2)
        q, k, v = (x.view(b, t, self.heads, d // self.heads).transpose(1, 2) for x in parts)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).contiguous().view(b, t, d))
        return x + self.down(F.gelu(self.up(self.second(x))))


def milliseconds_of_step(model: nn.Module, device: str) -> tuple[float, float]:
    """Elapsed and processor time of an AdamW training step that reads the loss, in milliseconds.

    Each is the best of several rounds.
    """
    model = copy.deepcopy(model).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    x = torch.ones(8, 32, 64, device=device)
    elapsed, busy = [], []
    for _ in range(STEPS):
        start, processor = time.perf_counter(), time.process_time()
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        loss.item()
        elapsed.append(time.perf_counter() - start)
        busy.append(time.process_time() - processor)
    return min(elapsed) * 1e3, min(busy) * 1e3


def main() -> None:
    torch.set_num_threads(1)
    x, y = torch.ones(4, 4, device="mux"), torch.ones(4, 4, device="mux")
    w, bias = torch.ones(4, 4, device="mux", requires_grad=True), torch.ones(4, device="mux")
    print("operators are called", start.description())
    rows: dict[str, Callable[[], object]] = {
        "x + y": lambda: x + y,
        "x + w, recorded": lambda: x + w,
        "x.relu()": x.relu,
        "x @ y": lambda: x @ y,
        "x.view(16)": lambda: x.view(16),
        "x.add_(1.0)": lambda: x.add_(1.0),
        "softmax": lambda: x.softmax(-1),
        "layer_norm": lambda: F.layer_norm(x, (4,), bias, bias),
        "linear (t, addmm)": lambda: F.linear(x, y, bias),
    }
    for name, function in rows.items():
        print(f"{name:20} {microseconds(function):6.1f} us")
    model = nn.Sequential(Block(64, 4), Block(64, 4), Block(64, 4))
    rounds = [[milliseconds_of_step(model, x) for x in ("cpu", "mux")] for _ in range(ROUNDS)]
    local, remote, busy = (
        min(value) for value in zip(*((a[0], b[0], b[1]) for a, b in rounds), strict=True)
    )
    print(
        f"step of three blocks of a GPT {remote:.1f} ms, {busy:.1f} of them the client's, "
        f"local {local:.1f}: {remote / local:.2f} x"
    )


if __name__ == "__main__":
    main()
