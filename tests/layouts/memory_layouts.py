"""Makes large cut tensors in every way, or trains a model, and prints as JSON who held how much.

`python tests/layouts/memory_layouts.py create MEGABYTES` tells for each way to make a cut tensor of
that size the largest number of bytes that any worker has held so far, and by how much the processes
(workers, and this one with the dispatcher) have grown. `train LAYOUT --config FILE` tells what each
worker held at most while an MLP was trained. No comparing in here.
"""

import argparse
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import yaml

import gt
from gt import nn

sys.path.append(str(Path(__file__).resolve().parent.parent / "cluster"))

from worker_processes import worker_processes

WORKERS, COLUMNS = 4, 1024
LAYERS, WIDTH, BATCH, STEPS = 8, 1024, 16, 3
LAYOUTS: dict[str, tuple[int, dict[str, object]]] = {
    "one": (1, {}),
    **{f"replicated{n}": (n, {"parameters": {"**": "replicate"}}) for n in (2, 4)},
    **{f"fsdp{n}": (n, {"parameters": {"**": "shard(0)"}}) for n in (2, 4)},
}

Make = Callable[[], gt.Tensor]


def functions(rows: int) -> dict[str, Callable[[], gt.Tensor]]:
    """Each creation function with rows x COLUMNS float32."""
    return {
        "zeros": lambda: gt.zeros(rows, COLUMNS),
        "ones": lambda: gt.ones(rows, COLUMNS),
        "empty": lambda: gt.empty(rows, COLUMNS),
        "full": lambda: gt.full((rows, COLUMNS), 2.5),
        "rand": lambda: gt.rand(rows, COLUMNS),
        "randn": lambda: gt.randn(rows, COLUMNS),
        "arange": lambda: gt.arange(rows * COLUMNS, dtype=gt.float32),
    }


def ways(rows: int) -> Iterator[tuple[str, float, Make]]:
    """Each way to make a tensor that is cut: its name, and the largest share of a worker."""
    mesh, even = gt.DeviceMesh(WORKERS), 1 / WORKERS
    for name, make in functions(rows).items():

        def in_scope(make: Make = make) -> gt.Tensor:
            with gt.signal.context("cut"):
                return make()

        yield f"{name} in a scope", even, in_scope
        yield f"distribute({name})", even, lambda make=make: gt.distribute(make(), dim=0)
    for layer in (
        lambda: nn.ColumnLinear(COLUMNS, rows, False, mesh=mesh),
        lambda: nn.RowLinear(rows, COLUMNS, False, mesh=mesh),
        lambda: nn.VocabParallelEmbedding(rows, COLUMNS, mesh=mesh),
    ):
        yield layer().__class__.__name__, even, lambda layer=layer: layer().weight
    for rule in ("colpar", "shard(1)"):
        yield (
            f"parallelize by {rule}",
            even,
            lambda rule=rule: gt.parallelize(linear(rows), {"**": rule})[0].weight,
        )
    yield "a rule of a file", even, lambda: called(linear(rows))
    third = rows // 3
    ranges = [(0, third), (third, 2 * third), (2 * third, rows - 1), (rows - 1, rows)]
    uneven = gt.Layout(mesh, (rows, COLUMNS), placements=[gt.Shard(0, ranges=ranges)])
    yield "uneven ranges", 0.34, lambda: gt.distribute(gt.zeros(rows, COLUMNS), uneven)
    yield (
        "a padding row is written",  # what was there, and what is there now
        2 * even,
        lambda: nn.VocabParallelEmbedding(rows, COLUMNS, padding_idx=1, mesh=mesh).weight,
    )
    yield (
        "zeros_like of another",
        2 * even,
        lambda: gt.zeros_like(gt.distribute(gt.empty(rows, COLUMNS), dim=0)),
    )
    blocks = gt.Layout(mesh, (rows, COLUMNS), placements=[gt.Shard(0, blocks=4)])
    # Last, for the allocator keeps what it has had in smaller ranges.
    for make in (gt.zeros, gt.randn):
        name = f"distribute({make.__name__}) in blocks"  # random blocks are joined: the share twice
        yield (
            name,
            even * (2 if make is gt.randn else 1),
            lambda make=make: gt.distribute(make(rows, COLUMNS), blocks),
        )


def linear(rows: int) -> nn.Sequential:
    return nn.Sequential(nn.Linear(COLUMNS, rows, bias=False))


def called(model: nn.Sequential) -> gt.Tensor:
    """The weight of a model whose rule holds from its first call on."""
    model(gt.ones(1, COLUMNS))
    return model[0].weight


def resident_peak(process: int | str) -> int:
    """Bytes of a process in memory, at most so far."""
    lines = Path(f"/proc/{process}/status").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith("VmHWM"))


def held_most() -> list[int]:
    """Bytes of values that each worker has held at most so far."""
    return [worker["bytes_peak"] for worker in gt.debug.get_worker_stats()]


def create(megabytes: int) -> dict[str, object]:
    """Memory of each way of creation, in the order in which they ran."""
    gt.gpu_workers(WORKERS)
    gt.register_config(
        "cut", gt.SignalConfig(shard=gt.ShardConfig(axis=0, workers=list(range(WORKERS))))
    )
    for make in functions(WORKERS).values():  # what has to be loaded is loaded
        gt.distribute(make(), dim=0).sum().item()
    processes = ["self", *worker_processes()]
    before = [resident_peak(process) for process in processes]
    figures = {}
    rows = (megabytes << 20) // (4 * COLUMNS)
    for name, share, make in ways(rows):
        tensor = make()
        tensor.sum().item()
        figures[name] = {"share": share, "held": max(held_most())}
        del tensor
    grown = [
        resident_peak(process) - start for process, start in zip(processes, before, strict=True)
    ]
    return {"bytes": megabytes << 20, "ways": figures, "client": grown[0], "workers": grown[1:]}


class Mlp(nn.Module):
    """LAYERS square matrices."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(WIDTH, WIDTH) for _ in range(LAYERS)])

    def forward(self, x: gt.Tensor) -> gt.Tensor:
        for layer in self.layers:
            x = layer(x).relu()
        return x


def train(name: str) -> dict[str, object]:
    """Peak memory of each worker."""
    workers, _ = LAYOUTS[name]
    gt.gpu_workers(workers)
    gt.manual_seed(0)
    model = Mlp()
    optimizer = gt.optim.AdamW(model.parameters(), lr=1e-3)
    losses = []
    for _ in range(STEPS):
        x = gt.distribute(gt.randn(BATCH, WIDTH), dim=0)
        loss = (model(x) - 1).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    sizes = [parameter.numel() * 4 for parameter in model.parameters()]
    bytes_by_worker = [worker["bytes"] for worker in gt.debug.get_worker_stats()]
    return {
        "losses": losses,
        "parameters": sum(sizes),
        "largest": max(sizes),
        "held": bytes_by_worker,
        "peak": held_most(),
        "moved": gt.debug.stats()["moved_bytes"],
    }


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parts = parser.add_subparsers(dest="part", required=True)
    creation = parts.add_parser("create")
    creation.add_argument("megabytes", type=int)
    training = parts.add_parser("train")
    training.add_argument("layout", choices=LAYOUTS)
    for part in (creation, training):
        part.add_argument("--config", type=Path, required=True, help="where the YAML is written")
    words = parser.parse_args()
    scopes = LAYOUTS[words.layout][1] if words.part == "train" else {}
    if words.part == "create":
        scopes = {"parameters": {"0.weight": "colpar"}}
    words.config.write_text(yaml.safe_dump(scopes))
    gt.load_config(words.config)
    json.dump(train(words.layout) if words.part == "train" else create(words.megabytes), sys.stdout)


if __name__ == "__main__":
    main()
