"""Rows with complex numbers: PyTorch's operator in place of the row, by the generic row.

The client calls it (crates/python/src/client/emission/complex.rs) when a row without the column
`complex` is used with complex numbers.
"""

from collections.abc import Mapping

import numpy as np

from gt import _core
from gt._core import Tensor
from gt.errors import InvalidType, NotSupported
from gt.tensors import dtypes
from gt.tensors.aten import binding, schemas
from gt.tensors.aten.call import Returned, call

# Names of operands and attributes in PyTorch's schema, where a row has others.
_OTHER_NAMES: dict[str, dict[str, str]] = {"pow": {"other": "exponent"}}


def call_row(name: str, aten: str, named: Mapping[str, object]) -> Returned:
    """Calls PyTorch's operator for a row that has complex operands, a complex number or dtype.

    Args:
        name: name of the row.
        aten: PyTorch's overload with the meaning of the row.
        named: operands and attributes by the row's names.

    Raises:
        NotSupported: PyTorch has no such operator that an instruction may name.
    """
    operator = aten.partition(".")[0]
    if operator not in schemas.known():
        raise NotSupported(f"{name}: not implemented for complex numbers")
    words = _OTHER_NAMES.get(name, {})
    arguments = {words.get(word, word): value for word, value in named.items() if value is not None}
    if named.get("keepdim") is False and "dim" not in arguments:
        del arguments["keepdim"]  # the overload for all dimensions does not have it
    first = next(iter(named), None)
    number = None if first is None else arguments.get(first)
    if first is not None and isinstance(number, bool | int | float | complex):
        tensors = [value for value in arguments.values() if isinstance(value, Tensor)]
        arguments[first] = _tensor_of(number, tensors)
    try:
        return call(operator, (), arguments)
    except InvalidType as error:
        if _is_bound(operator, arguments):
            raise  # PyTorch's own error
        raise NotSupported(f"{name}: not implemented for complex numbers ({error})") from None


def _is_bound(operator: str, given: Mapping[str, object]) -> bool:
    try:
        binding.bind(operator, (), given)
    except InvalidType:
        return False
    return True


def _tensor_of(number: complex, tensors: list[Tensor]) -> Tensor:
    """A number as a tensor, of the dtype in which it computes with these tensors."""
    dtype = dtypes.of_number(number)
    for x in tensors:
        dtype = dtypes.result_type(x, number)
    data = np.asarray(number, dtype=dtype.name).tobytes()
    return _core.from_bytes(data, (), dtype)
