"""The sampler of PyTorch's programs with a process for each worker; GT has one program."""

import math
from collections.abc import Iterator, Sized

from gt.compat import misses
from gt.compat.random import randperm
from gt.tensors.draws import Generator
from gt.utils.data.dataset import numbers
from gt.utils.data.sampler import Sampler

__all__ = ["DistributedSampler"]


class DistributedSampler(Sampler[int]):
    """The indices of one replica of several: every `num_replicas`-th, beginning at `rank`.

    Without arguments there is **one** replica, unlike in PyTorch: one program speaks for all
    workers and reads all of the data (`gt.distribute` or a layout cuts the batch).

    Args:
        dataset: a dataset with a length.
        num_replicas: how many programs share the dataset.
        rank: which of them this one is.
        shuffle: in an order drawn from `seed` and the epoch, GT's own; else in the dataset's.
        seed: the same in every replica.
        drop_last: drop what does not fill a round of the replicas, rather than repeat the first.

    Raises:
        ValueError: `rank` is not below `num_replicas`.
    """

    def __init__(
        self,
        dataset: Sized,
        num_replicas: int | None = None,
        rank: int | None = None,
        shuffle: bool = True,
        seed: int = 0,
        drop_last: bool = False,
    ) -> None:
        self.dataset = dataset
        self.num_replicas = 1 if num_replicas is None else num_replicas
        self.rank = 0 if rank is None else rank
        if not 0 <= self.rank < self.num_replicas:
            raise ValueError(
                f"Invalid rank {rank}, rank should be in the interval [0, {self.num_replicas - 1}]"
            )
        self.epoch = 0
        self.drop_last = drop_last
        self.shuffle = shuffle
        self.seed = seed
        rounds = len(dataset) / self.num_replicas
        self.num_samples = math.floor(rounds) if drop_last else math.ceil(rounds)
        self.total_size = self.num_samples * self.num_replicas

    def __iter__(self) -> Iterator[int]:
        order = list(range(len(self.dataset)))
        if self.shuffle:
            generator = Generator().manual_seed(self.seed + self.epoch)
            order = numbers(randperm(len(order), generator=generator))
        if order:
            order *= math.ceil(self.total_size / len(order))
        return iter(order[self.rank : self.total_size : self.num_replicas])

    def __len__(self) -> int:
        return self.num_samples

    def set_epoch(self, epoch: int) -> None:
        """Set the number that, with the seed, determines the order: a new one each epoch."""
        self.epoch = epoch


__getattr__ = misses.hook(__name__)
