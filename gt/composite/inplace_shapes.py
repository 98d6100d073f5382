"""Methods that change a tensor's shape or graph in place, but not its values.

The tensor becomes a view of its former self, so that tensors that share its memory still do.
"""

import functools

from gt import _core
from gt._core import Tensor
from gt.composite.common import Method, Number
from gt.errors import InvalidUse, ShapeError

# Views that PyTorch also has in place.
VIEWS = ("as_strided", "squeeze", "swapaxes", "swapdims", "t", "transpose", "unsqueeze")


def transposed(self: Tensor) -> Tensor:
    """A matrix with rows and columns swapped; a vector or a number unchanged."""
    if self.ndim > 2:
        raise ShapeError(f"t_() expects a tensor with <= 2 dimensions, but self is {self.ndim}D")
    return self.t()


def becomes(name: str) -> Method:
    """The method that turns a tensor into the view `name` of itself."""
    take = transposed if name == "t" else getattr(Tensor, name)

    def method(self: Tensor, *args: object, **kwargs: object) -> Tensor:
        _core.change_shape(self, take(_core.view_source(self), *args, **kwargs))
        return self

    functools.update_wrapper(method, take)  # its signature
    method.__name__ = method.__qualname__ = f"{name}_"
    method.__doc__ = f"`self` becomes `self.{name}(…)`, in the same memory."
    return method


def detach_(self: Tensor) -> Tensor:
    """Remove `self` from its graph: it becomes a leaf that requires no gradient.

    Raises:
        RuntimeError: the tensor is a view.
    """
    if self._is_view():
        raise InvalidUse(
            "Can't detach views in-place. Use detach() instead. If you are using "
            "DistributedDataParallel (DDP) for training, and gradient_as_bucket_view is set as "
            "True, gradients are views of DDP buckets, and hence detach_() cannot be called on "
            "these gradients. To fix this error, please refer to the Optimizer.zero_grad() "
            "function in torch/optim/optimizer.py as the solution."
        )
    if self.is_leaf:
        return self.requires_grad_(False)
    _core.become_view(self, _core.value_before(self).detach())
    return self


def fill_diagonal_(self: Tensor, fill_value: Number, wrap: bool = False) -> Tensor:
    """Set the main diagonal to `fill_value`; with `wrap` a tall matrix has one in each block.

    Raises:
        RuntimeError: there are fewer than two dimensions, or more than two of unequal sizes.
    """
    if self.ndim < 2:
        raise ShapeError("dimensions must larger than 1")
    if self.ndim > 2:
        if len(set(self.shape)) > 1:
            raise ShapeError("all dimensions of input must be of equal length")
        index = _core.call("arange", start=0, end=self.shape[0], step=1, dtype=_core.int64)
        return self.index_put_((index,) * self.ndim, self.new_full((), fill_value))
    rows, columns = self.shape
    step = columns + 1 if wrap else rows
    for first in range(0, rows, max(step, 1)):
        self[first:].diagonal().fill_(fill_value)
    return self


METHODS: dict[str, Method] = {"detach_": detach_, "fill_diagonal_": fill_diagonal_}


def methods() -> dict[str, Method]:
    """The methods that this file attaches to the class, once the views are there."""
    return {f"{name}_": becomes(name) for name in VIEWS} | METHODS
