"""Operators on sparse tensors of the device `mux`, by those of `gt.sparse.SparseTensor`.

An operator that is not here, and is no composition of others, is refused with its schema.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

import gt
from gt import _core
from gt._core import Tensor
from gt.compat.sparse import of_dense
from gt.compat.sparse.matrix import SparseTensor
from gt.errors import ShapeError
from gt.torch import elsewhere, operands
from gt.torch.elements import DEVICE_TYPE, dtype_of
from gt.torch.functions import Overload, overload_name
from gt.torch.sparse_made import empty, to_sparse
from gt.torch.sparse_tensor import SparseMuxTensor, of_entries, on_host
from gt.torch.tensor import MuxTensor, of_value

Operand = Any  # a SparseTensor, a Tensor of GT's, a number
_METADATA = ("sparse_dim", "dense_dim", "_nnz", "is_coalesced")
# Operators whose result is zero at zero, applied to the values of a coalesced tensor.
_OF_ZERO_ZERO = (
    "abs", "asin", "asinh", "atan", "atanh", "ceil", "deg2rad", "erf", "erfinv", "expm1", "floor",
    "frac", "isinf", "isnan", "isneginf", "isposinf", "log1p", "nan_to_num", "neg", "rad2deg",
    "relu", "round", "sgn", "sign", "signbit", "sin", "sinh", "sqrt", "tan", "tanh", "trunc",
)  # fmt: skip
# Those of them that are linear, so that equal indices need not be added first.
_LINEAR = ("neg", "deg2rad", "rad2deg")


def install() -> None:
    """Makes sparse tensors of the device run these operators."""
    SparseMuxTensor.run_sparse = run


def run(operator: Overload, args: Sequence[object], kwargs: Mapping[str, object]) -> object:
    """Runs an operator of which at least one operand is a sparse tensor of `mux`.

    Raises:
        NotImplementedError: there is none for sparse tensors.
    """
    name = overload_name(operator)
    whole = WHOLE.get(name)
    if whole is not None:
        return whole(*args, **kwargs)
    function = FUNCTIONS.get(name)
    if function is not None:
        words = {word: x for word, x in kwargs.items() if word not in operands.PLACES}
        named = {word: _operand(x) for word, x in words.items()}
        return _result(function(*[_operand(x) for x in args], **named))
    if name.startswith("_foreach_"):
        return _each(name, args, kwargs)
    if operator.has_kernel_for_dispatch_key(torch._C.DispatchKey.CompositeImplicitAutograd):  # noqa: SLF001 - its only name
        return operator.decompose(*args, **kwargs)
    raise refusal(operator)


def _each(name: str, args: Sequence[object], kwargs: Mapping[str, object]) -> object:
    """An operator over lists of tensors, as its operator for each of them."""
    title = name.removeprefix("_foreach_").partition(".")[0]
    method: Callable[..., object] = getattr(torch.Tensor, title)
    first = args[0]
    assert isinstance(first, list | tuple)
    columns = [x if isinstance(x, list | tuple) else [x] * len(first) for x in args]
    results = [method(*row, **kwargs) for row in zip(*columns, strict=True)]
    return None if title.endswith("_") else results


def refusal(operator: Overload) -> NotImplementedError:
    """An operator's answer to sparse tensors that it does not take."""
    return NotImplementedError(
        f"{operator._schema} is not implemented for sparse tensors of the device {DEVICE_TYPE}: "  # noqa: SLF001
        "run it on x.to_dense(), or on a copy on the host, x.cpu()"
    )


def _operand(x: object) -> Operand:
    if isinstance(x, list | tuple):
        return [_operand(entry) for entry in x]
    return x.entries if isinstance(x, SparseMuxTensor) else operands.operand(x)


def _result(x: object) -> object:
    if isinstance(x, SparseTensor):
        return of_entries(x)
    return of_value(x) if isinstance(x, Tensor) else x


# ---- new tensors ----


def zeros_like(
    x: SparseMuxTensor,
    *,
    dtype: torch.dtype | None = None,
    layout: torch.layout | None = None,
    device: object = None,
    **_: object,
) -> torch.Tensor:
    """`aten::zeros_like` and `empty_like` of a sparse tensor: without entries."""
    kind = dtype or x.dtype
    if not elsewhere.is_here(device) or layout not in (None, torch.sparse_coo):
        where: Any = x.device if device is None else device
        return torch.zeros(x.shape, dtype=kind, layout=layout or x.layout, device=where)
    return of_entries(empty(x.entries.sparse_dim(), x.shape, dtype_of(kind)))


def to_copy(
    x: SparseMuxTensor,
    *,
    dtype: torch.dtype | None = None,
    layout: torch.layout | None = None,
    device: object = None,
    **_: object,
) -> torch.Tensor:
    """`aten::_to_copy` of a sparse tensor."""
    if layout not in (None, torch.sparse_coo):
        elsewhere.to_copy((x,), {"layout": layout})  # which raises
    if not elsewhere.is_here(device):
        return on_host(x).to(device=device, dtype=dtype)  # type: ignore[call-overload,no-any-return]
    copied = x.entries.clone()
    return of_entries(copied if dtype is None else copied.to(dtype_of(dtype)))


def copy_(target: torch.Tensor, source: torch.Tensor, non_blocking: bool = False) -> torch.Tensor:
    """`aten::copy_` between sparse tensors, of any device.

    Raises:
        RuntimeError: one of them is dense.
    """
    del non_blocking
    if not (target.is_sparse and source.is_sparse):
        raise RuntimeError(
            "copy_() between dense and sparse Tensors is not implemented! Found "
            f"self type = {target.type()} and src type = {source.type()}"
        )
    if not isinstance(target, SparseMuxTensor):
        assert isinstance(source, SparseMuxTensor)
        return target.copy_(on_host(source))
    moved = source if isinstance(source, SparseMuxTensor) else source.to(target.device)
    assert isinstance(moved, SparseMuxTensor)
    target.entries = moved.entries.to(target.entries.dtype).clone()
    return target


# ---- operators ----


def _dense_of(x: Operand) -> Tensor:
    dense: Tensor = x.to_dense() if isinstance(x, SparseTensor) else x
    return dense


def _to_dense(
    self: SparseTensor, dtype: _core.dtype | None = None, masked_grad: bool | None = None
) -> Tensor:
    del masked_grad
    if dtype is not None:
        raise RuntimeError("dtype argument is not supported by sparse_to_dense")
    return self.to_dense()


def sparse_mask(self: Operand, mask: SparseTensor) -> SparseTensor:
    """The elements of `self` at the mask's indices."""
    if tuple(self.shape) != tuple(mask.shape):
        raise ShapeError(
            "sparse_mask(): operands have incompatible sizes; self has size "
            f"{list(self.shape)} but mask has size {list(mask.shape)}"
        )
    values = mask._values()  # noqa: SLF001 - PyTorch's name
    rows = _dense_of(self).reshape(mask._places_end(), *values.shape[1:])  # noqa: SLF001
    taken = rows.index_select(0, mask._places())  # noqa: SLF001 - of this package
    return mask._like(taken)  # noqa: SLF001


def add(self: Operand, other: Operand, *, alpha: Any = 1) -> Operand:  # noqa: ANN401 - a number
    """The sum of two sparse tensors, or of a dense and a sparse one."""
    if isinstance(self, SparseTensor):
        return self.add(other, alpha=alpha)
    scaled = other if alpha == 1 else other.mul(alpha)
    return self + scaled.to_dense()


def add_(target: MuxTensor, other: MuxTensor, *, alpha: Any = 1) -> torch.Tensor:  # noqa: ANN401
    """`aten::add_.Tensor` with a sparse operand: a dense target gets the elements by index."""
    if isinstance(target, SparseMuxTensor):
        target.entries = add(target.entries, _operand(other), alpha=alpha).to(target.entries.dtype)
        return target
    assert isinstance(other, SparseMuxTensor)
    entries = other.entries
    if tuple(target.shape) != tuple(other.shape):
        raise ShapeError(
            f"add: expected 'self' and 'other' to have same size, but self has size "
            f"{list(target.shape)} while other has size {list(other.shape)} (FYI: dense-sparse "
            "addition does not currently support broadcasting)"
        )
    values = entries._values()  # noqa: SLF001 - PyTorch's name
    rows = target.value.reshape(entries._places_end(), *values.shape[1:])  # noqa: SLF001
    source = values.to(target.value.dtype)
    added = rows.index_add(0, entries._places(), source, alpha=alpha)  # noqa: SLF001
    target.value.copy_(added.reshape(target.value.shape))
    return target


def sub(self: Operand, other: Operand, *, alpha: Any = 1) -> Operand:  # noqa: ANN401
    """The difference."""
    return add(self, other, alpha=-alpha)


def mul(self: Operand, other: Operand) -> Operand:
    """The product with a number, a dense tensor or a sparse one."""
    if not isinstance(self, SparseTensor):
        self, other = other, self
    if isinstance(other, SparseTensor):
        product = _of_both(self.coalesce(), other)
        is_in_order = self.is_coalesced() and other.is_coalesced()
        parts = product._indices(), product._values()  # noqa: SLF001 - PyTorch's names
        return SparseTensor(*parts, self.shape, is_coalesced=is_in_order)
    return self.mul(other)


def _of_both(first: SparseTensor, second: SparseTensor) -> SparseTensor:
    """The product of the elements at indices that both tensors have; their number is read."""
    places = first._places()  # noqa: SLF001 - of this package
    is_there = gt.zeros(first._places_end(), dtype=_core.bool)  # noqa: SLF001
    is_there[second._places()] = True  # noqa: SLF001
    common = is_there[places].nonzero().flatten()
    product = first.mul(second.to_dense())
    columns, values = first._indices()[:, common], product._values()[common]  # noqa: SLF001
    return SparseTensor(columns, values, first.shape, is_coalesced=True)


def _values_only(name: str) -> Callable[..., SparseTensor]:
    function: Callable[..., Tensor] = getattr(Tensor, name)

    def applied(self: SparseTensor, *args: Any, **named: Any) -> SparseTensor:  # noqa: ANN401
        entries = self if name in _LINEAR else self.coalesce()
        return entries._like(function(entries._values(), *args, **named))  # noqa: SLF001

    return applied


def pow_(self: SparseTensor, exponent: float) -> SparseTensor:
    """Powers of the values."""
    if exponent == 0:
        raise RuntimeError(
            "pow: cannot raise to zeroth power on sparse tensor; it would make the "
            "result tensor dense"
        )
    entries = self.coalesce()
    return entries._like(entries._values() ** exponent)  # noqa: SLF001


def _sum(
    self: SparseTensor,
    dim: int | Sequence[int] | None = None,
    keepdim: bool = False,
    *,
    dtype: _core.dtype | None = None,
) -> Operand:
    dims = [*range(self.ndim)] if dim is None or dim == [] else dim
    dims = sorted({d % self.ndim for d in ([dims] if isinstance(dims, int) else dims)})
    kind = dtype
    if kind is None and not (self.dtype.is_floating_point or self.dtype.is_complex):
        kind = _core.int64
    result = (self if kind is None else self.to(kind)).sum(dims)
    if isinstance(result, SparseTensor):
        result = result.coalesce()
    for d in dims if keepdim else ():
        result = unsqueeze(result, d) if isinstance(result, SparseTensor) else result.unsqueeze(d)
    return result


def sum_backward(grad: Operand, self: SparseTensor, dim: Sequence[int]) -> SparseTensor:
    """The gradient of the elements of a tensor that was summed over dimensions."""
    dense = _dense_of(grad)
    for d in sorted(d % self.ndim for d in dim):
        dense = dense.unsqueeze(d)
    return sparse_mask(dense.expand(tuple(self.shape)), self.coalesce())


def vector_norm(
    self: SparseTensor,
    ord: float | None = 2.0,
    dim: Sequence[int] | None = None,
    keepdim: bool = False,
    *,
    dtype: _core.dtype | None = None,
) -> Tensor:
    """The norm of all elements: missing ones are zeros."""
    order = 2.0 if ord is None else ord
    is_whole = not dim or len(dim) == self.ndim
    if not is_whole or keepdim or order <= 0:
        raise refusal(torch.ops.aten.linalg_vector_norm.default)
    entries = self.coalesce() if dtype is None else self.coalesce().to(dtype)
    values: Tensor = entries._values()  # noqa: SLF001 - PyTorch's name
    return values.norm(order)


def mm(self: Operand, mat2: Operand) -> Operand:
    """The product of two matrices."""
    if isinstance(self, SparseTensor):
        if isinstance(mat2, SparseTensor):
            return of_dense(self.mm(mat2.to_dense()))
        return self.mm(mat2)
    return self @ mat2


def addmm(
    self: Operand,
    mat1: Operand,
    mat2: Operand,
    *,
    beta: Any = 1,  # noqa: ANN401 - a number
    alpha: Any = 1,  # noqa: ANN401
) -> Tensor:
    """beta * self + alpha * mat1 @ mat2."""
    product = mm(mat1, mat2)
    if alpha != 1:
        product = product * alpha
    if beta == 0:
        return _dense_of(product)
    summed: Tensor = _dense_of(self) * beta + _dense_of(product)
    return summed


def _transpose(self: SparseTensor, dim0: int, dim1: int) -> SparseTensor:
    return self.transpose(dim0, dim1)


def permute(self: SparseTensor, dims: Sequence[int]) -> SparseTensor:
    """The tensor with its sparse dimensions in another order."""
    order = [d + self.ndim if d < 0 else d for d in dims]
    count = self.sparse_dim()
    if order[count:] != list(range(count, self.ndim)):
        raise refusal(torch.ops.aten.permute.default)
    columns = gt.stack([self._indices()[d] for d in order[:count]])
    return SparseTensor(columns, self._values(), [self.shape[d] for d in order])


def unsqueeze(self: SparseTensor, dim: int) -> SparseTensor:
    """The tensor with one more sparse dimension."""
    place = dim + self.ndim + 1 if dim < 0 else dim
    if place > self.sparse_dim():
        raise refusal(torch.ops.aten.unsqueeze.default)
    columns = self._indices()
    zeros = gt.zeros(1, columns.shape[1], dtype=_core.int64)
    columns = gt.cat([columns[:place], zeros, columns[place:]])
    shape = [*self.shape[:place], 1, *self.shape[place:]]
    return SparseTensor(columns, self._values(), shape, is_coalesced=self.is_coalesced())


def cat(tensors: Sequence[Operand], dim: int = 0) -> SparseTensor:
    """Sparse tensors one after the other."""
    first = tensors[0]
    place = dim + first.ndim if dim < 0 else dim
    if not all(isinstance(x, SparseTensor) for x in tensors) or place >= first.sparse_dim():
        raise refusal(torch.ops.aten.cat.default)
    columns, size = [], 0
    for x in tensors:
        step = [0] * x.sparse_dim()
        step[place] = size
        columns.append(x._indices() + gt.tensor(step).unsqueeze(-1))  # noqa: SLF001
        size += x.shape[place]
    shape = [*first.shape]
    shape[place] = size
    values = gt.cat([x._values() for x in tensors])  # noqa: SLF001
    return SparseTensor(gt.cat(columns, 1), values, shape)


def stack(tensors: Sequence[Operand], dim: int = 0) -> SparseTensor:
    """Sparse tensors one after the other along a new sparse dimension."""
    if not all(isinstance(x, SparseTensor) for x in tensors):
        raise refusal(torch.ops.aten.stack.default)
    place = dim + tensors[0].ndim + 1 if dim < 0 else dim
    return cat([unsqueeze(x, place) for x in tensors], place)


def index_select(self: SparseTensor, dim: int, index: Tensor) -> SparseTensor:
    """Rows of the tensor along one dimension, by way of a dense one."""
    return of_dense(self.to_dense().index_select(dim, index), self.sparse_dim())


def select(self: SparseTensor, dim: int, index: int) -> Operand:
    """One row: its number of elements is read."""
    place = dim + self.ndim if dim < 0 else dim
    row = self.to_dense().select(place, index)
    left = self.sparse_dim() - (place < self.sparse_dim())
    return of_dense(row, left) if left else row


def _in_place(function: Callable[..., Operand]) -> Callable[..., torch.Tensor]:
    """An operator that writes its result into its sparse operand."""

    def run(target: torch.Tensor, *args: object, **kwargs: object) -> torch.Tensor:
        if not isinstance(target, SparseMuxTensor):
            raise NotImplementedError(
                "a dense tensor is not written by a sparse one: use x.to_dense()"
            )
        result = function(target.entries, *[_operand(x) for x in args], **kwargs)
        target.entries = result.to(target.entries.dtype)
        return target

    return run


def _zero(self: SparseTensor) -> SparseTensor:
    return empty(self.sparse_dim(), self.shape, self.dtype)


def coalesced_(x: SparseMuxTensor, coalesced: bool) -> torch.Tensor:
    """`aten::_coalesced_`: the caller knows that indices are in order, or are not."""
    entries = x.entries
    parts = entries._indices(), entries._values()  # noqa: SLF001 - PyTorch's names
    x.entries = SparseTensor(*parts, entries.shape, is_coalesced=coalesced)
    return x


def _method(name: str) -> Callable[..., Operand]:
    function: Callable[..., Operand] = getattr(SparseTensor, name)
    return function


def _metadata(name: str) -> Callable[[SparseMuxTensor], object]:
    method = getattr(SparseTensor, name)
    return lambda x: method(x.entries)


def _clone(self: SparseTensor, **_: object) -> SparseTensor:
    return self.clone()


def shared(x: SparseMuxTensor) -> torch.Tensor:
    """`aten::detach` and `alias`: another tensor of the same entries."""
    return of_entries(x.entries)


WHOLE: dict[str, Callable[..., object]] = {
    **{name: _metadata(name) for name in _METADATA},
    "_coalesced_": coalesced_,
    "_to_copy": to_copy,
    "_to_sparse": to_sparse,
    "_to_sparse.sparse_dim": to_sparse,
    "add_.Tensor": add_,
    "alias": shared,
    "copy_": copy_,
    "detach": shared,
    "empty_like": zeros_like,
    "lift_fresh": shared,
    "zeros_like": zeros_like,
    "zero_": _in_place(_zero),
    "mul_.Tensor": _in_place(mul),
    "mul_.Scalar": _in_place(mul),
    "div_.Tensor": _in_place(SparseTensor.div),
    "div_.Scalar": _in_place(SparseTensor.div),
    "sub_.Tensor": _in_place(sub),
    "neg_": _in_place(SparseTensor.neg),
    "sqrt_": _in_place(_values_only("sqrt")),
}
FUNCTIONS: dict[str, Callable[..., Operand]] = {
    **{name: _values_only(name) for name in _OF_ZERO_ZERO},
    "_coalesce": _method("coalesce"),
    "_indices": _method("_indices"),
    "_sparse_addmm": addmm,
    "_sparse_mm": mm,
    "_sparse_sparse_matmul": mm,
    "_sparse_sum": _sum,
    "_sparse_sum.dim": _sum,
    "_sparse_sum.dim_dtype": _sum,
    "_sparse_sum.dtype": _sum,
    "_sparse_sum_backward": sum_backward,
    "_to_dense": _to_dense,
    "_values": _method("_values"),
    "add.Tensor": add,
    "addmm": addmm,
    "cat": cat,
    "clone": _clone,
    "coalesce": _method("coalesce"),
    "div.Scalar": _method("div"),
    "div.Tensor": _method("div"),
    "index_select": index_select,
    "indices": _method("indices"),
    "linalg_vector_norm": vector_norm,
    "mm": mm,
    "mul.Scalar": mul,
    "mul.Tensor": mul,
    "mv": mm,
    "native_norm": vector_norm,
    "norm.Scalar": vector_norm,
    "norm.ScalarOpt_dim": vector_norm,
    "permute": permute,
    "pow.Tensor_Scalar": pow_,
    "select.int": select,
    "sparse_mask": sparse_mask,
    "stack": stack,
    "sub.Tensor": sub,
    "sum": _sum,
    "sum.dim_IntList": _sum,
    "t": _method("t"),
    "transpose.int": _transpose,
    "unsqueeze": unsqueeze,
    "values": _method("values"),
}
