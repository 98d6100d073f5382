"""PyTorch's tensor methods that GT lacks, with errors that say so: missing, not misspelt.

Each is an attribute of the class that raises AttributeError, so `hasattr` says False. A
`__getattr__` of the class would make every attribute of every tensor slower to find.
"""

import pathlib

from gt._core import Tensor

FILE = pathlib.Path(__file__).with_name("missing_methods.txt")


class _Missing:
    """Descriptor for one name of PyTorch's class."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name

    def __get__(self, tensor: object, owner: object) -> object:
        if tensor is None:  # `hasattr(gt.Tensor, name)`: the text is not read
            raise AttributeError(self.name)
        from gt.compat.missing import method_error  # loads at the first miss

        here = [name for name, value in vars(Tensor).items() if not isinstance(value, _Missing)]
        raise method_error(self.name, here)


def install() -> None:
    """Attaches descriptors for the names that tools/missing_names.py has listed."""
    for name in FILE.read_text(encoding="ascii").split():
        if name not in Tensor.__dict__:
            setattr(Tensor, name, _Missing(name))
