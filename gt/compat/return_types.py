"""`gt.return_types`: named tuples for operators with several results.

As in PyTorch each is made from one sequence and has no `_fields`: `type(result)(values)`. The
computation of the results is elsewhere.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Iterable
from typing import TYPE_CHECKING, ClassVar, TypeVar

from gt.errors import InvalidType

if TYPE_CHECKING:
    from gt._core import Tensor

T = TypeVar("T", bound="Results")

_VALUES = ("values", "indices")
# PyTorch's types, except those for `out=`.
FIELDS = {
    "aminmax": ("min", "max"),
    "cummax": _VALUES,
    "cummin": _VALUES,
    "frexp": ("mantissa", "exponent"),
    "geqrf": ("a", "tau"),
    "histogram": ("hist", "bin_edges"),
    "histogramdd": ("hist", "bin_edges"),
    "kthvalue": _VALUES,
    "linalg_cholesky_ex": ("L", "info"),
    "linalg_eig": ("eigenvalues", "eigenvectors"),
    "linalg_eigh": ("eigenvalues", "eigenvectors"),
    "linalg_inv_ex": ("inverse", "info"),
    "linalg_ldl_factor": ("LD", "pivots"),
    "linalg_ldl_factor_ex": ("LD", "pivots", "info"),
    "linalg_lstsq": ("solution", "residuals", "rank", "singular_values"),
    "linalg_lu": ("P", "L", "U"),
    "linalg_lu_factor": ("LU", "pivots"),
    "linalg_lu_factor_ex": ("LU", "pivots", "info"),
    "linalg_polar": ("U", "H"),
    "linalg_qr": ("Q", "R"),
    "linalg_slogdet": ("sign", "logabsdet"),
    "linalg_solve_ex": ("result", "info"),
    "linalg_svd": ("U", "S", "Vh"),
    "lu_unpack": ("P", "L", "U"),
    "max": _VALUES,
    "median": _VALUES,
    "min": _VALUES,
    "mode": _VALUES,
    "nanmedian": _VALUES,
    "slogdet": ("sign", "logabsdet"),
    "sort": _VALUES,
    "svd": ("U", "S", "V"),
    "topk": _VALUES,
    "triangular_solve": ("solution", "cloned_coefficient"),
}


class Results(tuple["Tensor", ...]):
    """Several results of one operator, by index and by name.

    Args:
        sequence: as many results as there are names.
        dict: accepted without effect; there is no other field that it could fill.

    Raises:
        TypeError: it is no sequence, or has another length.
    """

    __slots__ = ()
    __match_args__: ClassVar[tuple[str, ...]] = ()
    n_fields: ClassVar[int] = 0
    n_sequence_fields: ClassVar[int] = 0
    n_unnamed_fields: ClassVar[int] = 0

    def __new__(cls: type[T], sequence: Iterable[Tensor], dict: object = None) -> T:  # noqa: ARG004
        if not isinstance(sequence, Iterable):
            raise InvalidType("constructor requires a sequence")
        results = super().__new__(cls, sequence)
        if len(results) != cls.n_fields:
            raise InvalidType(
                f"gt.return_types.{cls.__name__}() takes a {cls.n_fields}-sequence "
                f"({len(results)}-sequence given)"
            )
        return results

    def __repr__(self) -> str:
        named = zip(self.__match_args__, self, strict=True)
        fields = ",\n".join(f"{name}={value!r}" for name, value in named)
        return f"gt.return_types.{type(self).__name__}(\n{fields})"


class ValuesIndices(Results):
    """Values and their indices along a dimension."""

    __slots__ = ()
    values: Tensor
    indices: Tensor


@functools.cache
def of(name: str, fields: tuple[str, ...]) -> type[Results]:
    """The named tuple class that the operator `name` returns."""
    base = ValuesIndices if fields == _VALUES else Results
    namespace: dict[str, object] = {
        "__slots__": (),
        "__module__": __name__,
        "__doc__": f"What `{name}` returns: {', '.join(f'`{field}`' for field in fields)}.",
        "__match_args__": fields,
        "n_fields": len(fields),
        "n_sequence_fields": len(fields),
    }
    for place, field in enumerate(fields):
        namespace[field] = property(operator.itemgetter(place))
    return type(name, (base,), namespace)


def values_indices(name: str, results: Iterable[Tensor]) -> ValuesIndices:
    """The values and indices that the operator `name` returns."""
    kind = of(name, _VALUES)
    assert issubclass(kind, ValuesIndices), name
    return kind(results)


def __getattr__(name: str) -> object:
    """Makes each type at its first use, so that `import gt` is fast."""
    if name in FIELDS:
        return of(name, FIELDS[name])
    if name == "__path__":  # an import asks for it
        raise AttributeError(name)
    from gt.compat.missing import attribute_error

    raise attribute_error(__name__, name)


def __dir__() -> list[str]:
    """Lists the public names; imports for the module's own use are left out."""
    return sorted(FIELDS)
