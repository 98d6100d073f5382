"""PyTorch's wrappers for data parallelism: the program's one batch is cut over the workers.

GT's program drives all workers, so a wrapper neither copies the module nor sums gradients: it cuts
the batch, and everything else follows from that. The numbers are those of the module alone.
"""

# ruff: noqa: ARG002 - PyTorch's arguments that mean nothing here

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from gt import _core
from gt._core import Tensor
from gt.distributed.methods import distribute
from gt.distributed.world import get_world_size
from gt.errors import InvalidType
from gt.nn.module import Module

__all__ = ["DataParallel", "DistributedDataParallel"]


class DataParallel(Module):
    """Calls `module` on a batch that is cut along `dim` over all workers.

    Tensors among the arguments, also in lists, tuples and dicts, are cut; those without the
    dimension, or with a smaller batch than the number of workers, stay whole. With one worker the
    module is called directly. Results keep their layout: a read gives the whole.

    Args:
        module: any module; it is `self.module`, so the names in a state dictionary begin with
            `module.`, as PyTorch's do.
        device_ids: accepted without effect: the workers have the devices.
        output_device: accepted without effect: results can be read anywhere.
        dim: the dimension of the batch.

    Raises:
        TypeError: `module` is not a Module.
    """

    def __init__(
        self, module: object, device_ids: object = None, output_device: object = None, dim: int = 0
    ) -> None:
        super().__init__()
        if not isinstance(module, Module):
            kind = type(module).__name__
            raise InvalidType(f"{type(self).__name__}: expected a Module, got {kind}")
        self.module = module
        self.dim = dim

    def forward(self, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - the module's
        """The module's result for the cut arguments."""
        if get_world_size() == 1:
            return self.module(*args, **kwargs)
        return self.module(*self._cut(args), **self._cut(kwargs))

    def _cut(self, value: Any) -> Any:  # noqa: ANN401 - whatever the module takes
        if isinstance(value, Tensor):
            count = len(_core.workers())
            fits = -value.ndim <= self.dim < value.ndim and value.shape[self.dim] >= count
            return distribute(value, dim=self.dim) if fits else value
        if isinstance(value, tuple) and hasattr(value, "_fields"):
            return type(value)(*map(self._cut, value))
        if isinstance(value, (list, tuple)):
            return type(value)(map(self._cut, value))
        if isinstance(value, Mapping):
            return {key: self._cut(item) for key, item in value.items()}
        return value


class DistributedDataParallel(DataParallel):
    """DataParallel under PyTorch's other name: this program's batch is the batch of all workers.

    A script that cuts its data by rank gets all of it here: `get_rank()` is 0, and a
    `DistributedSampler` without arguments has one replica.

    Args:
        module: any module.
        device_ids: accepted without effect, like the arguments behind `dim`: gradients are summed
            in buckets when they are needed.
        output_device: accepted without effect.
        dim: the dimension of the batch.
    """

    def __init__(
        self,
        module: Module,
        device_ids: object = None,
        output_device: object = None,
        dim: int = 0,
        broadcast_buffers: bool | None = None,
        init_sync: bool = True,
        process_group: object = None,
        bucket_cap_mb: float | None = None,
        find_unused_parameters: bool = False,
        check_reduction: bool = False,
        gradient_as_bucket_view: bool = False,
        static_graph: bool = False,
    ) -> None:
        super().__init__(module, device_ids, output_device, dim)

    @contextmanager
    def no_sync(self) -> Iterator[None]:
        """Does nothing: gradients are summed when they are read, so there is no sum to defer."""
        yield
