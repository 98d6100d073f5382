"""PyTorch's sparse tensor around one of GT's: `SparseMuxTensor`, of the layout `sparse_coo`.

Autograd sees a sparse tensor of the device `mux`; operators on it are in `sparse`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

import torch

from gt import _core
from gt.compat.sparse.matrix import SparseTensor
from gt.tensors import interop
from gt.torch.elements import DEVICE_TYPE, TORCH_DTYPES
from gt.torch.tensor import MuxTensor

_make = torch.Tensor._make_wrapper_subclass  # noqa: SLF001 - PyTorch's constructor for subclasses


class SparseMuxTensor(MuxTensor):
    """A sparse tensor of the device `mux`: PyTorch's face of a `gt.sparse.SparseTensor`."""

    entries: SparseTensor
    run_sparse: ClassVar[Callable[..., object]]  # `sparse.install` sets it

    @classmethod
    def __torch_dispatch__(  # type: ignore[override] # PyTorch's is of any arguments
        cls,
        func: Any,  # noqa: ANN401 - PyTorch has no public type of an overload
        types: Sequence[type],
        args: Sequence[object] = (),
        kwargs: Mapping[str, object] | None = None,
    ) -> object:
        return SparseMuxTensor.run_sparse(func, args, kwargs or {})

    @property
    def value(self) -> _core.Tensor:  # type: ignore[override] # a sparse tensor has none
        """Raises: there is no dense value."""
        raise NotImplementedError(
            f"a sparse tensor of the device {DEVICE_TYPE} has no dense value: use x.to_dense()"
        )

    def new(self, *args: Any, **kwargs: Any) -> torch.Tensor:  # type: ignore[override] # noqa: ANN401 - PyTorch's has overloads
        """PyTorch's oldest constructor: indices, values and sizes, or sizes alone."""
        kwargs.setdefault("device", self.device)
        if not args or isinstance(args[0], int):
            args = (args or (0,),)
        result: torch.Tensor = torch.sparse_coo_tensor(
            *args, dtype=self.dtype, check_invariants=False, **kwargs
        )
        return result

    def tolist(self) -> Any:  # noqa: ANN401 - as PyTorch's error says
        """Raises, as for every sparse tensor."""
        return on_host(self).tolist()

    def __deepcopy__(self, memo: dict[int, Any]) -> torch.Tensor:
        if not self.is_leaf:
            raise RuntimeError(
                "Only Tensors created explicitly by the user (graph leaves) support the deepcopy "
                "protocol at the moment."
            )
        if id(self) not in memo:
            memo[id(self)] = of_entries(self.entries.clone()).requires_grad_(self.requires_grad)
        copied: torch.Tensor = memo[id(self)]
        return copied

    def __reduce_ex__(self, protocol: object) -> tuple[Callable[..., object], tuple[object, ...]]:
        """Pickles a copy on the host; loading asks for its device (`map_location`)."""
        parts = (self._indices(), self._values(), self.size(), self.is_coalesced())
        return torch._utils._rebuild_sparse_tensor, (self.layout, parts)  # noqa: SLF001

    def __repr__(self, *, tensor_contents: Any = None) -> str:  # type: ignore[override] # noqa: ANN401
        del tensor_contents
        shown = repr(on_host(self))
        place = f"device='{self.device}', "
        return shown.replace("size=", f"{place}size=") if "size=" in shown else shown


def of_entries(entries: SparseTensor) -> SparseMuxTensor:
    """PyTorch's tensor of the entries, which share their memory."""
    result = _make(
        SparseMuxTensor,
        tuple(entries.shape),
        dtype=TORCH_DTYPES[entries.dtype],
        device=MuxTensor.home,
        layout=torch.sparse_coo,
    )
    result.entries = entries
    return result


def on_host(tensor: SparseMuxTensor) -> torch.Tensor:
    """A copy on the host."""
    entries = tensor.entries
    with torch.utils._python_dispatch._disable_current_modes():  # noqa: SLF001 - `gt run` has one
        result: torch.Tensor = torch.sparse_coo_tensor(
            interop.to_torch(entries._indices()),  # noqa: SLF001 - PyTorch's names
            interop.to_torch(entries._values()),  # noqa: SLF001
            tuple(entries.shape),
            is_coalesced=entries.is_coalesced(),
            check_invariants=False,
        )
    return result
