"""PyTorch's wrappers for data parallelism: the program's one batch is cut over the workers.

GT's program speaks for all workers, so a wrapper neither copies the module nor sums gradients: it
says where the batch goes, and the rest follows. The numbers are those of the module alone.
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
    """`module` on a batch that is cut along `dim` over all workers.

    Tensors among the arguments, in lists, tuples and dicts too, are cut; those that have fewer
    dimensions, or that are not cut evenly but smaller than the number of workers, stay whole. With
    one worker the module is called as it is. Results keep their layout: what is read is whole.

    Args:
        module: any module; it is `self.module`, so the names in a state dictionary begin with
            `module.`, as PyTorch's do.
        device_ids: accepted: the workers have the devices.
        output_device: accepted: results are read from wherever they are.
        dim: the dimension of the batch.

    Raises:
        TypeError: `module` is no Module.
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
    """DataParallel by PyTorch's other name: the batch of this program is the batch of all workers.

    A script that cuts its data by rank gets all of it here: `get_rank()` is 0, and a
    `DistributedSampler` without arguments has one replica.

    Args:
        module: any module.
        device_ids: accepted, like the arguments after `dim`: gradients are summed when they are
            needed, in buckets.
        output_device: accepted.
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
        """Gradients are summed where they are read, so there is nothing to put off."""
        yield
