"""What a tensor says of PyTorch's methods that GT has not: that they are missing, not misspelt.

Each is an attribute of the class that raises AttributeError, so `hasattr` says False. A
`__getattr__` of the class would make every attribute of every tensor slower to find.
"""

import pathlib

from gt._core import Tensor

FILE = pathlib.Path(__file__).with_name("missing_methods.txt")


class _Missing:
    """One name of PyTorch's class."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name

    def __get__(self, tensor: object, owner: object) -> object:
        raise AttributeError(f"PyTorch's tensors have `{self.name}`; GT's do not yet.")


def install() -> None:
    """Give the class what tools/missing_names.py has listed."""
    for name in FILE.read_text(encoding="ascii").split():
        if name not in Tensor.__dict__:
            setattr(Tensor, name, _Missing(name))
