"""Answers to a library's questions about a namespace, as the standard defines them."""

import gt
from gt._core import dtype
from gt.compat.array_api.dtypes import isdtype
from gt.tensors.devices import device as Device

NAMES = ("bool", "int8", "int16", "int32", "int64", "uint8", "float32", "float64")
COMPLEX = ("complex64", "complex128")


class Info:
    """The result of `__array_namespace_info__()`."""

    def capabilities(self) -> dict[str, object]:
        """Boolean indices and data-dependent shapes are supported; 8 dimensions are the limit."""
        return {"boolean indexing": True, "data-dependent shapes": True, "max dimensions": 8}

    def default_device(self) -> Device:
        """The device of every tensor, as far as programs see."""
        return Device("gt")

    def devices(self) -> list[Device]:
        """One device: the dispatcher decides where values live."""
        return [self.default_device()]

    def default_dtypes(self, *, device: object = None) -> dict[str, dtype]:
        """Dtypes of Python numbers."""
        del device
        wide = gt.get_default_dtype() == gt.float64
        dtypes = {
            "real floating": gt.get_default_dtype(),
            "integral": gt.int64,
            "indexing": gt.int64,
        }
        name = "complex128" if wide else "complex64"
        if hasattr(gt, name):
            dtypes["complex floating"] = getattr(gt, name)
        return dtypes

    def dtypes(
        self, *, device: object = None, kind: str | tuple[str, ...] | None = None
    ) -> dict[str, dtype]:
        """Dtypes by their names, all of them or those of a kind."""
        del device
        dtypes_by_name = {
            name: getattr(gt, name) for name in (*NAMES, *COMPLEX) if hasattr(gt, name)
        }
        return {
            name: each
            for name, each in dtypes_by_name.items()
            if kind is None or isdtype(each, kind)
        }


def __array_namespace_info__() -> Info:  # noqa: N807 - the standard's name
    """Facts about the namespace: dtypes, devices, limits."""
    return Info()
