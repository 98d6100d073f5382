"""`gt.utils.tensorboard.SummaryWriter`: PyTorch's writer, which accepts GT's tensors.

It needs torch and tensorboard in the client's environment; `import gt` needs neither.
"""

import functools
from collections.abc import Callable
from typing import Any

from gt.compat import torch_imports

if torch_imports.is_installed():
    raise ImportError(
        "gt.utils.tensorboard writes with PyTorch's own SummaryWriter, and `import torch` is "
        "answered by GT here; `gt run` without --native runs the program with PyTorch's own"
    )
try:
    from torch.utils import tensorboard as _theirs
except ImportError as error:
    raise ImportError(
        f"gt.utils.tensorboard writes with PyTorch's own SummaryWriter ({error}): install torch "
        "and tensorboard"
    ) from error

from gt._core import Tensor
from gt.tensors.interop import to_torch

__all__ = ["SummaryWriter"]


class SummaryWriter(_theirs.SummaryWriter):
    """PyTorch's writer: every `add_…` takes GT's tensors where PyTorch's takes its own.

    Args:
        log_dir: and further arguments: as for `torch.utils.tensorboard.SummaryWriter`.

    Raises:
        NotImplementedError: `add_graph`, which draws a model that PyTorch has traced.
    """

    def add_graph(self, *args: object, **kwargs: object) -> None:
        """Refused: it draws a traced model, and GT does not trace."""
        raise NotImplementedError("SummaryWriter.add_graph: GT traces no model that it could draw")


def _converting(method: Callable[..., object]) -> Callable[..., object]:
    @functools.wraps(method)
    def converting(self: SummaryWriter, *args: object, **kwargs: object) -> object:
        return method(self, *_converted(list(args)), **_converted(kwargs))

    return converting


for _name, _method in vars(_theirs.SummaryWriter).items():
    if _name.startswith("add_") and _name not in vars(SummaryWriter):
        setattr(SummaryWriter, _name, _converting(_method))


def _converted(value: Any) -> Any:  # noqa: ANN401 - what a method of the writer takes
    """`value` with PyTorch's tensors in place of GT's; reads them."""
    if isinstance(value, Tensor):
        return to_torch(value.detach())
    if isinstance(value, list):
        return [_converted(item) for item in value]
    if isinstance(value, tuple) and not hasattr(value, "_fields"):
        return tuple(_converted(item) for item in value)
    if isinstance(value, dict):
        return {key: _converted(item) for key, item in value.items()}
    return value


def __dir__() -> list[str]:
    """Lists the public names; imports for the module's own use are left out."""
    return __all__
