"""The `__getattr__` of a module; `gt.missing`, which makes its errors, loads at the first miss."""

from collections.abc import Callable


def hook(module: str) -> Callable[[str], object]:
    """The `__getattr__` of `module`."""

    def missing(name: str) -> object:
        if name.startswith("__"):  # Python's own questions at imports
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        from gt.compat.missing import attribute_error

        raise attribute_error(module, name)

    return missing
