"""Meshes, layouts and collectives, for one program that speaks for all workers.

A tensor is its whole value wherever its shards are. A collective changes where they are, never what
the value is; everything here can be left out of a program, and the numbers stay the same.
"""

import importlib
from typing import TYPE_CHECKING

from gt.distributed.collective import (
    ReduceOp,
    all_gather,
    all_reduce,
    all_to_all,
    broadcast,
    gather,
    reduce_scatter,
    scatter,
    send,
)
from gt.distributed.explanation import Explanation
from gt.distributed.layout import Layout, Partial, Placement, Replicate, Shard
from gt.distributed.mesh import DeviceMesh, ProcessGroup, init_device_mesh, new_group
from gt.distributed.methods import DTensor, distribute
from gt.distributed.work import Work
from gt.distributed.world import (
    barrier,
    destroy_process_group,
    get_rank,
    get_world_size,
    init_process_group,
    is_available,
    is_initialized,
)

if TYPE_CHECKING:
    from gt.distributed import nn, optim

__all__ = [
    "DTensor",
    "DeviceMesh",
    "Explanation",
    "Layout",
    "Partial",
    "Placement",
    "ProcessGroup",
    "ReduceOp",
    "Replicate",
    "Shard",
    "Work",
    "all_gather",
    "all_reduce",
    "all_to_all",
    "barrier",
    "broadcast",
    "destroy_process_group",
    "distribute",
    "gather",
    "get_rank",
    "get_world_size",
    "init_device_mesh",
    "init_process_group",
    "is_available",
    "is_initialized",
    "new_group",
    "nn",
    "optim",
    "reduce_scatter",
    "scatter",
    "send",
]

_LAZY = {"nn", "optim"}


def __getattr__(name: str) -> object:
    """Loads `nn` and `optim` at their first use; for a missing name, raises an error
    that says so.
    """
    if name in _LAZY:
        return importlib.import_module(f"gt.distributed.{name}")
    from gt.compat.missing import attribute_error  # loads at the first miss

    raise attribute_error(__name__, name)


def __dir__() -> list[str]:
    """Lists the public names; imports for the module's own use are left out."""
    return __all__
