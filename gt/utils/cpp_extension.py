"""`gt.utils.cpp_extension`: imports work; extensions in C++ over PyTorch's tensors are refused."""

# ruff: noqa: N802, ARG001, ARG002, ARG003 - PyTorch's names and arguments

import shutil
from collections.abc import Sequence
from typing import Any, NoReturn

from gt.compat import misses
from gt.errors import NotSupported

__all__ = [
    "CUDA_HOME",
    "ROCM_HOME",
    "BuildExtension",
    "CUDAExtension",
    "CppExtension",
    "include_paths",
    "is_ninja_available",
    "library_paths",
    "load",
    "load_inline",
    "verify_ninja_availability",
]

CUDA_HOME: str | None = None
ROCM_HOME: str | None = None
Options = Any


def _refused(name: str) -> NotSupported:
    return NotSupported(
        f"{name}: an extension is compiled against PyTorch's C++ tensors, and a program of GT has "
        "none: its values live in the workers. Write the function with gt's operators, as a "
        "gt.autograd.Function if it has a gradient of its own"
    )


def load(name: str, sources: str | Sequence[str], *args: Options, **options: Options) -> NoReturn:
    """Refuse to compile and load an extension.

    Args:
        name: Of the extension; it and all others are accepted, as PyTorch's.
        sources: Files.
        args: PyTorch's further arguments.
        options: The same by name.

    Raises:
        NotSupported: Always.
    """
    raise _refused(f"load({name!r})")


def load_inline(
    name: str, cpp_sources: str | Sequence[str], *args: Options, **options: Options
) -> NoReturn:
    """Refuse to compile and load an extension whose source is text.

    Args:
        name: Of the extension; it and all others are accepted, as PyTorch's.
        cpp_sources: Text.
        args: PyTorch's further arguments.
        options: The same by name.

    Raises:
        NotSupported: Always.
    """
    raise _refused(f"load_inline({name!r})")


def CppExtension(name: str, sources: Sequence[str], *args: Options, **kwargs: Options) -> NoReturn:
    """Refuse to describe an extension for setuptools."""
    raise _refused(f"CppExtension({name!r})")


def CUDAExtension(name: str, sources: Sequence[str], *args: Options, **kwargs: Options) -> NoReturn:
    """Refuse to describe an extension for setuptools."""
    raise _refused(f"CUDAExtension({name!r})")


class BuildExtension:
    """PyTorch's setuptools command; creating one is refused."""

    def __init__(self, *args: Options, **kwargs: Options) -> None:
        raise _refused("BuildExtension")

    @classmethod
    def with_options(cls, **options: Options) -> type["BuildExtension"]:
        """The class itself."""
        return cls


def include_paths(device_type: str = "cpu", torch_include_dirs: bool = True) -> list[str]:
    """No folders: GT has no headers of tensors."""
    return []


def library_paths(
    device_type: str = "cpu", torch_include_dirs: bool = True, cross_target_platform: object = None
) -> list[str]:
    """No folders: GT has no library of tensors."""
    return []


def is_ninja_available() -> bool:
    """True if the program `ninja` is installed."""
    return shutil.which("ninja") is not None


def verify_ninja_availability() -> None:
    """Return if the program `ninja` is installed.

    Raises:
        RuntimeError: It is not installed.
    """
    if not is_ninja_available():
        raise NotSupported("Ninja is required to load C++ extensions (pip install ninja to get it)")


__getattr__ = misses.hook(__name__)


def __dir__() -> list[str]:
    """Lists the public names; imports for the module's own use are left out."""
    return __all__
