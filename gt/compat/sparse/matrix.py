"""`SparseTensor`: a tensor in coordinate format: indices, values and a shape. Its operators are
index operators on these, so that gradients flow to the values.

Unsupported operators raise an error that suggests `to_dense()`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import gt
from gt._core import Tensor
from gt.composite.common import wrap
from gt.errors import DtypeError, InvalidUse, NotSupported, ShapeError
from gt.tensors.dtypes import Layout, sparse_coo
from gt.tensors.size import Size

__all__ = ["SparseTensor"]

Number: TypeAlias = bool | int | float


class SparseTensor:
    """A sparse tensor in coordinate format. `gt.sparse_coo_tensor` and `Tensor.to_sparse` make it.

    Products with dense matrices, transposes, sums, coalescing, the sum of two, products with a
    number or elementwise with a dense tensor; everything else raises NotSupported. It is no
    `gt.Tensor`.

    Args:
        indices: int64 [sparse dimensions, n], a column an element.
        values: [n, dense dimensions ...], to which gradients go.
        shape: sizes, of the sparse dimensions first.
        is_coalesced: the columns are in order, and no two of them are equal.
    """

    is_sparse = True
    is_sparse_csr = False
    is_cuda = False

    def __init__(
        self, indices: Tensor, values: Tensor, shape: Sequence[int], *, is_coalesced: bool = False
    ) -> None:
        self._columns, self._elements = indices, values
        self._shape = tuple(shape)
        self._in_order = is_coalesced or values.shape[0] < 2

    # ---- what it is ----

    @property
    def layout(self) -> Layout:
        """Always `gt.sparse_coo`."""
        return sparse_coo

    @property
    def shape(self) -> Size:
        """The sizes."""
        return Size(self._shape)

    @property
    def dtype(self) -> gt.dtype:
        """Dtype of the values."""
        return self._elements.dtype

    @property
    def device(self) -> object:
        """`gt`, as for every tensor."""
        return self._elements.device

    @property
    def ndim(self) -> int:
        """Number of dimensions."""
        return len(self._shape)

    @property
    def requires_grad(self) -> bool:
        """True if the values require a gradient."""
        return self._elements.requires_grad

    @property
    def is_leaf(self) -> bool:
        """True if the values are a leaf."""
        return self._elements.is_leaf

    @property
    def grad(self) -> SparseTensor | None:
        """The gradient of the values, where they are a leaf, in a tensor with the same indices."""
        gradient = self._elements.grad
        return None if gradient is None else self._like(gradient)

    def size(self, dim: int | None = None) -> Any:  # noqa: ANN401 - sizes, or one of them
        """The sizes, or that of one dimension."""
        return self.shape if dim is None else self._shape[wrap(dim, self.ndim)]

    def dim(self) -> int:
        """Number of dimensions."""
        return self.ndim

    def numel(self) -> int:
        """Number of elements in a dense tensor of this shape."""
        return math.prod(self._shape)

    def sparse_dim(self) -> int:
        """Number of dimensions that the indices have."""
        return self._columns.shape[0]

    def dense_dim(self) -> int:
        """Number of dimensions of one value."""
        return self._elements.ndim - 1

    def is_coalesced(self) -> bool:
        """True if the indices are in order and none occurs twice."""
        return self._in_order

    def is_floating_point(self) -> bool:
        """True if the values are floats."""
        return self.dtype.is_floating_point

    def indices(self) -> Tensor:
        """int64 [sparse dimensions, n] of a coalesced tensor.

        Raises:
            RuntimeError: it is not coalesced.
        """
        self._check_coalesced("indices")
        return self._columns

    def values(self) -> Tensor:
        """[n, dense dimensions ...] of a coalesced tensor.

        Raises:
            RuntimeError: it is not coalesced.
        """
        self._check_coalesced("values")
        return self._elements

    def _indices(self) -> Tensor:
        return self._columns

    def _values(self) -> Tensor:
        return self._elements

    def _nnz(self) -> int:
        return self._elements.shape[0]

    def _check_coalesced(self, what: str) -> None:
        if not self._in_order:
            raise InvalidUse(
                f"Cannot get {what} on an uncoalesced tensor, please call .coalesce() first"
            )

    def __len__(self) -> int:
        return self._shape[0]

    def __repr__(self) -> str:
        return (
            f"tensor(indices={self._columns!r},\n       values={self._elements!r},\n"
            f"       size={self._shape}, nnz={self._nnz()}, layout=gt.sparse_coo)"
        )

    # ---- other forms ----

    def coalesce(self) -> SparseTensor:
        """Indices in order, with the values of equal indices added up; their number is
        read once.
        """
        if self._in_order:
            return self
        places, inverse = gt.unique(self._places(), return_inverse=True)
        zeros = gt.zeros(places.shape[0], *self._elements.shape[1:], dtype=self.dtype)
        values = zeros.index_add(0, inverse, self._elements)
        rows = []
        for size in reversed(self._shape[1 : self.sparse_dim()]):
            rows.append(places % max(size, 1))
            places = places.div(max(size, 1), rounding_mode="floor")
        columns = gt.stack([places, *reversed(rows)])
        return SparseTensor(columns, values, self._shape, is_coalesced=True)

    def to_dense(self) -> Tensor:
        """The dense tensor, with zeros where there is no element."""
        zeros = gt.zeros(self._places_end(), *self._elements.shape[1:], dtype=self.dtype)
        return zeros.index_add(0, self._places(), self._elements).reshape(self._shape)

    def to_sparse(self) -> SparseTensor:
        """Returns self."""
        return self

    def to(self, *args: object, **named: object) -> SparseTensor:
        """The tensor with values of another dtype; devices are ignored."""
        return self._like(self._elements.to(*args, **named))  # type: ignore[arg-type]

    def float(self) -> SparseTensor:
        """The tensor with values of float32."""
        return self.to(gt.float32)

    def double(self) -> SparseTensor:
        """The tensor with values of float64."""
        return self.to(gt.float64)

    def cpu(self) -> SparseTensor:
        """Returns self unchanged; the dispatcher decides placement."""
        return self

    def cuda(self, device: object = None) -> SparseTensor:  # noqa: ARG002 - accepted
        """Returns self unchanged; the dispatcher decides placement."""
        return self

    def detach(self) -> SparseTensor:
        """The tensor without gradient history."""
        return self._like(self._elements.detach())

    def clone(self) -> SparseTensor:
        """The tensor with copied values."""
        return self._like(self._elements.clone())

    def requires_grad_(self, requires_grad: bool = True) -> SparseTensor:
        """Sets whether the values require a gradient."""
        self._elements.requires_grad_(requires_grad)
        return self

    def transpose(self, dim0: int, dim1: int) -> SparseTensor:
        """The tensor with two sparse dimensions exchanged.

        Raises:
            RuntimeError: one of them is dense.
        """
        order = list(range(self.ndim))
        first, second = wrap(dim0, self.ndim), wrap(dim1, self.ndim)
        if max(first, second) >= self.sparse_dim():
            raise ShapeError(
                "sparse transpose: transposed dimensions must be sparse Got sparse_dim: "
                f"{self.sparse_dim()}, d0: {first}, d1: {second}"
            )
        order[first], order[second] = order[second], order[first]
        shape = [self._shape[place] for place in order]
        if first == second:
            return self
        columns = gt.stack([self._columns[place] for place in order[: self.sparse_dim()]])
        return SparseTensor(columns, self._elements, shape)

    def t(self) -> SparseTensor:
        """The transpose of a matrix.

        Raises:
            RuntimeError: more than two dimensions, or dense ones.
        """
        if self.sparse_dim() > 2 or self.dense_dim():
            raise ShapeError(
                "t() expects a tensor with <= 2 sparse and 0 dense dimensions, but got "
                f"{self.sparse_dim()} sparse and {self.dense_dim()} dense dimensions"
            )
        return self.transpose(0, self.ndim - 1)

    @property
    def T(self) -> SparseTensor:  # noqa: N802 - PyTorch's name
        """The transpose of a matrix."""
        return self.t()

    def _places_end(self) -> int:
        """Number of elements in a dense tensor of the sparse dimensions."""
        return math.prod(self._shape[: self.sparse_dim()])

    def _places(self) -> Tensor:
        """[n]: row-major index of each element among the sparse dimensions; for an element outside
        in some dimension, an index outside, so that reading it fails.
        """
        places = gt.zeros(self._nnz(), dtype=gt.int64)
        outside = gt.zeros(self._nnz(), dtype=gt.bool)
        for dim, size in enumerate(self._shape[: self.sparse_dim()]):
            column = self._columns[dim]
            places = places * size + column
            outside = outside | (column < 0) | (column >= size)
        return places.masked_fill(outside, self._places_end())

    def _like(self, values: Tensor) -> SparseTensor:
        return SparseTensor(self._columns, values, self._shape, is_coalesced=self._in_order)

    # ---- operators ----

    def mm(self, mat2: Tensor | SparseTensor) -> Tensor:
        """The product of a sparse matrix and a dense matrix or vector, dense.

        [m, k] @ [k, n] -> [m, n], [m, k] @ [k] -> [m]. Rows of the dense one are taken, scaled and
        added; a gradient goes to the values and to the dense one.

        Raises:
            RuntimeError: shapes or dtypes that do not fit.
            NotImplementedError: two sparse matrices, or more dimensions.
        """
        if isinstance(mat2, SparseTensor):
            raise _refusal("mm", "of two sparse matrices")
        if self.ndim != 2 or self.dense_dim() or mat2.ndim not in (1, 2):
            raise _refusal("mm", f"of {self.ndim} and {mat2.ndim} dimensions")
        if self.dtype != mat2.dtype:
            raise DtypeError(
                f"expected scalar type {_title(self.dtype)} but found {_title(mat2.dtype)}"
            )
        (m, k), row_count = self._shape, mat2.shape[0]
        if row_count != k and mat2.ndim == 1:
            raise ShapeError("mv: expected self.size(-1) == vec.size(-1)")
        if row_count != k:
            raise ShapeError(
                f"addmm: Argument #3 (dense): Expected dim 0 size {k}, got {row_count}"
            )
        rows, columns = self._columns[0], self._columns[1]
        weights = self._elements if mat2.ndim == 1 else self._elements.unsqueeze(-1)
        terms = mat2.index_select(0, columns) * weights  # -> [nnz, n]
        return gt.zeros(m, *mat2.shape[1:], dtype=self.dtype).index_add(0, rows, terms)

    def mv(self, vec: Tensor) -> Tensor:
        """The product of a sparse matrix and a dense vector."""
        return self.mm(vec)

    def matmul(self, other: Tensor) -> Tensor:
        """`self @ other`."""
        return self.mm(other)

    __matmul__ = mm

    def __rmatmul__(self, other: object) -> Tensor:
        if not isinstance(other, Tensor):
            return NotImplemented
        if other.ndim != 2:
            raise _refusal("mm", f"of {other.ndim} and {self.ndim} dimensions")
        return self.t().mm(other.t()).t()

    def sum(self, dim: int | Sequence[int] | None = None) -> Any:  # noqa: ANN401 - of either kind
        """The sum of all elements, dense, or over dimensions, sparse (dense where none is left)."""
        if dim is None:
            return self._elements.sum()
        over = {wrap(d, self.ndim) for d in ((dim,) if isinstance(dim, int) else dim)}
        sparse = self.sparse_dim()
        within = [d - sparse + 1 for d in over if d >= sparse]  # dimensions of the values
        values = self._elements.sum(within) if within else self._elements
        remaining = [d for d in range(sparse) if d not in over]
        if not remaining:
            return values.sum(0)
        shape = [size for d, size in enumerate(self._shape) if d not in over]
        if len(remaining) == sparse:
            return SparseTensor(self._columns, values, shape, is_coalesced=self._in_order)
        columns = gt.stack([self._columns[d] for d in remaining])
        return SparseTensor(columns, values, shape).coalesce()

    def mul(self, other: Number | Tensor | SparseTensor) -> SparseTensor:
        """Elementwise product with a number or a dense tensor of the same shape (or of one
        element).
        """
        if isinstance(other, SparseTensor):
            raise _refusal("mul", "of two sparse tensors")
        if isinstance(other, Tensor) and other.ndim:
            if other.shape != self.shape:
                raise _refusal("mul", f"of shapes {list(self.shape)} and {list(other.shape)}")
            rows = other.reshape(self._places_end(), *self._elements.shape[1:])
            other = rows.index_select(0, self._places())
        return self._like(self._elements * other)

    __mul__ = __rmul__ = mul

    def div(self, other: Number | Tensor | SparseTensor) -> SparseTensor:
        """Quotient by a number, or by a dense tensor of one element."""
        if isinstance(other, SparseTensor) or (isinstance(other, Tensor) and other.ndim):
            raise _refusal("div", "by what has several elements")
        return self._like(self._elements / other)

    __truediv__ = div

    def neg(self) -> SparseTensor:
        """The tensor with every value negated."""
        return self._like(-self._elements)

    __neg__ = neg

    def add(self, other: SparseTensor | Tensor, *, alpha: Number = 1) -> SparseTensor:
        """The sum of two sparse tensors: the elements of both, coalesced if they are.

        Raises:
            RuntimeError: other sizes, or a dense operand: `dense + sparse` is dense.
        """
        if not isinstance(other, SparseTensor):
            raise InvalidUse("add(sparse, dense) is not supported. Use add(dense, sparse) instead.")
        if self.shape != other.shape:
            raise ShapeError(
                "add: expected sizes of 'self' and 'other' to match, but "
                f"{list(self.shape)} != {list(other.shape)}"
            )
        result = other._beside(self, alpha)  # noqa: SLF001 - of this class
        is_in_order = self.is_coalesced() and other.is_coalesced()
        return result.coalesce() if is_in_order else result

    def _beside(self, first: SparseTensor, alpha: Number) -> SparseTensor:
        """The elements of another tensor, and those of this one times a number."""
        values = self._elements if alpha == 1 else self._elements * alpha
        columns = gt.cat([first._indices(), self._columns], 1)
        values = gt.cat([first._values(), values])
        return SparseTensor(columns, values, self._shape)

    __add__ = add

    def sub(self, other: SparseTensor) -> SparseTensor:
        """The difference of two sparse tensors."""
        return self.add(other, alpha=-1)

    __sub__ = sub

    def __radd__(self, other: object) -> Tensor:
        if not isinstance(other, Tensor):
            return NotImplemented
        return other + self.to_dense()

    def __getattr__(self, name: str) -> Callable[..., object]:
        if name.startswith("_") or not hasattr(Tensor, name):
            raise AttributeError(f"'SparseTensor' object has no attribute {name!r}")

        def refused(*args: object, **named: object) -> object:
            del args, named
            raise _refusal(name, "of a sparse tensor")

        return refused


def _refusal(name: str, what: str) -> NotSupported:
    """The error for an operator that sparse tensors do not have."""
    return NotSupported(
        f"{name} {what} is not supported: GT has products of sparse with dense matrices, "
        "transpose, sum, coalesce, and sums and multiples of sparse tensors; x.to_dense() has "
        "every operator"
    )


def _title(dtype: gt.dtype) -> str:
    """A dtype's name in PyTorch's errors."""
    names = {"float32": "Float", "float64": "Double", "float16": "Half", "bfloat16": "BFloat16"}
    names |= {"int64": "Long", "int32": "Int", "int16": "Short", "int8": "Char", "uint8": "Byte"}
    name = repr(dtype).removeprefix("gt.")
    return names.get(name, name.capitalize())


def _operator(name: str) -> Callable[..., object]:
    def refused(self: SparseTensor, *args: object) -> object:
        del self, args
        raise _refusal(name, "of a sparse tensor")

    return refused


for _name in ("to_sparse_csr", "to_sparse_csc", "to_sparse_bsr", "to_sparse_bsc"):
    setattr(SparseTensor, _name, _operator(_name))
for _name in ("getitem", "setitem", "pow", "lt", "le", "gt", "ge", "bool", "iter", "float", "int"):
    setattr(SparseTensor, f"__{_name}__", _operator(f"__{_name}__"))
