"""Lines of refused.txt: gradients that PyTorch refuses by name, which a backward pass asks for."""

import functools
import pathlib

_FILE = pathlib.Path(__file__).with_name("refused.txt")


def derivative(overload: str) -> str | None:
    """The operator that PyTorch's NotImplementedError names for an overload; None if it raises
    another error.
    """
    return _lines().get(overload)


@functools.cache
def _lines() -> dict[str, str]:
    lines = _FILE.read_text(encoding="ascii").splitlines()
    pairs = (line.partition(": ") for line in lines if not line.startswith("#"))
    return {overload: name for overload, _, name in pairs}
