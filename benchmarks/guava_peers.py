"""The models of Guava's benchmark, and PyTorch's side of it: processes that train over Gloo.

A process is started once, keeps its model, and trains for the requested numbers of steps.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch import multiprocessing, nn
from torch.distributed.pipelining import PipelineStage, Schedule1F1B

RATE, DECAY, LIMIT = 3e-4, 0.01, 1.0
WAIT_SECONDS = 60.0

Pair = tuple[np.ndarray, np.ndarray]  # inputs [b, t] and targets [b, t]
Step = Callable[[Sequence[Pair]], torch.Tensor]  # batches of a step -> this process's loss


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """A model and its batches.

    Args:
        width: of the model.
        heads: of attention.
        layers: blocks; a multiple of the stages of a pipeline.
        inner: width inside a block.
        vocabulary: number of tokens.
        length: tokens of a sample.
        batch: samples of a worker's batch, or of a micro-batch.
        micro_batches: of a step of a pipeline.
    """

    width: int = 256
    heads: int = 8
    layers: int = 4
    inner: int = 1024
    vocabulary: int = 1000
    length: int = 64
    batch: int = 8
    micro_batches: int = 8


def model_of(lib: ModuleType, sizes: Sizes) -> Any:
    """Tokens [b, t] to scores [b, t, v], by the modules of `gt` or `torch`."""
    made = lib.nn
    blocks = [
        made.TransformerEncoderLayer(
            sizes.width, sizes.heads, dim_feedforward=sizes.inner, dropout=0.0, batch_first=True
        )
        for _ in range(sizes.layers)
    ]
    return made.Sequential(
        made.Embedding(sizes.vocabulary, sizes.width),
        *blocks,
        made.Linear(sizes.width, sizes.vocabulary),
    )


def twin(lib: ModuleType, sizes: Sizes) -> Any:
    """The model with the initial weights of every process."""
    torch.manual_seed(0)
    model = model_of(torch, sizes)
    if lib is torch:
        return model
    other = model_of(lib, sizes)
    weights = {name: lib.tensor(one.numpy()) for name, one in model.state_dict().items()}
    other.load_state_dict(weights)
    return other


def batches_of(sizes: Sizes, count: int, seed: int) -> list[Pair]:
    """Text in `count` batches, in which each token determines the next."""
    draw = np.random.default_rng(seed)
    starts = draw.integers(0, sizes.vocabulary, (count, sizes.batch, 1))
    text = (starts + 5 * np.arange(sizes.length + 1)) % sizes.vocabulary  # [n, b, t + 1]
    return [(rows[:, :-1].copy(), rows[:, 1:].copy()) for rows in text]


class TorchProcesses:
    """Processes of torch.distributed that train one model together, one thread each.

    Args:
        way: `data` by DistributedDataParallel, `pipeline` by Schedule1F1B.
        count: number of processes.
        sizes: of the model and its batches.
    """

    def __init__(self, way: str, count: int, sizes: Sizes) -> None:
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload([__name__])  # torch is imported once for all of them
        self._folder = tempfile.TemporaryDirectory()
        store = str(Path(self._folder.name) / "store")
        self._ends, self._processes = [], []
        for rank in range(count):
            ours, theirs = context.Pipe()
            arguments = (way, rank, count, sizes, store, theirs)
            self._processes.append(context.Process(target=member, args=arguments))
            self._ends.append(ours)
        for process in self._processes:
            process.start()

    def round(self, steps: int, seed: int) -> tuple[float, list[float]]:
        """Train on batches of a seed; returns the slowest process's step time, and losses."""
        for end in self._ends:
            end.send((steps, seed))
        answers = [end.recv() for end in self._ends]
        return max(seconds for seconds, _ in answers) / steps, answers[-1][1]

    def end(self) -> None:
        for end in self._ends:
            end.send(None)
        for process in self._processes:
            process.join(WAIT_SECONDS)
        self._folder.cleanup()


def member(way: str, rank: int, count: int, sizes: Sizes, store: str, commands: Connection) -> None:
    """One process: trains the requested numbers of steps, until it gets None."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo", store=dist.FileStore(store, count), rank=rank, world_size=count)
    step, taken = (_data_parallel if way == "data" else _stage)(rank, count, sizes)
    while (command := commands.recv()) is not None:
        steps, seed = command
        batches = batches_of(sizes, steps * taken, seed)
        dist.barrier()
        start = time.perf_counter()
        losses = [step(batches[at : at + taken]) for at in range(0, len(batches), taken)]
        read = torch.stack(losses)
        seconds = time.perf_counter() - start
        if way == "data":
            dist.all_reduce(read)  # each process had its part of the batch
            read /= count
        commands.send((seconds, read.tolist()))
    dist.destroy_process_group()


def loss_of(scores: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    """Cross-entropy of scores [b, t, v] and tokens [b, t]."""
    return nn.functional.cross_entropy(scores.flatten(0, -2), target.flatten())


def _data_parallel(rank: int, count: int, sizes: Sizes) -> tuple[Step, int]:
    """A step of DistributedDataParallel, and its number of batches, one a process."""
    model = nn.parallel.DistributedDataParallel(twin(torch, sizes))
    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE, weight_decay=DECAY)

    def step(batches: Sequence[Pair]) -> torch.Tensor:
        x, y = map(torch.from_numpy, batches[rank])
        loss = loss_of(model(x), y)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), LIMIT)
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    return step, count


def _stage(rank: int, count: int, sizes: Sizes) -> tuple[Step, int]:
    """A step of one of `count` stages, and its number of batches, one a micro-batch."""
    first, *blocks, last = twin(torch, sizes)
    own = blocks[rank * sizes.layers // count : (rank + 1) * sizes.layers // count]
    parts = [*([first] if rank == 0 else []), *own, *([last] if rank == count - 1 else [])]
    model = nn.Sequential(*parts)
    stage = PipelineStage(model, rank, count, torch.device("cpu"))
    schedule = Schedule1F1B(stage, sizes.micro_batches, loss_fn=loss_of)
    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE, weight_decay=DECAY)

    def step(batches: Sequence[Pair]) -> torch.Tensor:
        x, y = (torch.from_numpy(np.concatenate(parts)) for parts in zip(*batches, strict=True))
        losses: list[torch.Tensor] = []
        inputs = (x,) if rank == 0 else ()
        if rank == count - 1:
            schedule.step(*inputs, target=y, losses=losses)
        else:
            schedule.step(*inputs)
        _clip(model)
        optimizer.step()
        optimizer.zero_grad()
        return torch.stack(losses).mean().detach() if losses else torch.zeros(())

    return step, sizes.micro_batches


def _clip(model: nn.Module) -> None:
    """Clip the gradients of all stages together."""
    parameters = list(model.parameters())
    norm = nn.utils.get_total_norm([one.grad for one in parameters])
    square = norm.square()
    dist.all_reduce(square)
    nn.utils.clip_grads_with_norm_(parameters, LIMIT, square.sqrt())
