"""Division of a run's workers: tensor-parallel groups, stages, data-parallel rows."""

from __future__ import annotations

import dataclasses

from gt.errors import ConfigError
from gt.guava.config import DistributedConfig

__all__ = ["Split", "split"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Split:
    """Workers, stage by stage; inside a stage row by row, each of which takes a part of a batch.

    Args:
        stages: number of parts of the layers.
        data: number of parts of a batch.
        tensor: number of workers that share each matrix.
        micro_batches: number per step.
    """

    stages: int
    data: int
    tensor: int
    micro_batches: int

    def workers_of(self, stage: int) -> list[int]:
        """The workers of a stage, row by row: [data, tensor]."""
        size = self.data * self.tensor
        return list(range(stage * size, (stage + 1) * size))

    def batches_a_step(self) -> int:
        """Number of the loader's batches in one step."""
        return self.data * self.micro_batches

    def __str__(self) -> str:
        workers = self.stages * self.data * self.tensor
        parts = [f"data {self.data}", f"stages {self.stages}", f"tensor {self.tensor}"]
        counted = "1 worker" if workers == 1 else f"{workers} workers"
        return f"{counted}: {' x '.join(parts)}, micro-batches {self.micro_batches}"


def split(config: DistributedConfig) -> Split:
    """Tensor-parallel groups first; the rest becomes stages, or else data-parallel rows.

    Raises:
        ConfigError: workers are left over; the message gives the numbers.
    """
    workers = config.num_workers
    tensor = config.tensor_parallel_size if config.tensor_parallel else 1
    if workers % tensor:
        raise ConfigError(
            f"num_workers={workers} and tensor_parallel_size={tensor}: "
            f"{workers} workers make no whole number of groups of {tensor}, "
            f"{workers % tensor} would be left over",
            f"change one of them, or call config.adapt_to_gpus({workers})",
        )
    rest = workers // tensor
    stages = rest if config.model_parallel or config.pipeline_parallel else 1
    data = rest // stages
    if data > 1 and not config.data_parallel:
        raise ConfigError(
            f"num_workers={workers}: tensor {tensor} x stages {stages} takes {tensor * stages}, "
            f"{workers - tensor * stages} would be left over",
            f"set data_parallel=True, or num_workers={tensor * stages}",
        )
    return Split(
        stages=stages,
        data=data,
        tensor=tensor,
        micro_batches=config.micro_batches if config.pipeline_parallel else 1,
    )
