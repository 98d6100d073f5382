"""The `__getattr__` of a module; what it says of a miss, `gt.missing`, loads at the first one."""

from collections.abc import Callable


def hook(module: str) -> Callable[[str], object]:
    """The `__getattr__` of `module`."""

    def missing(name: str) -> object:
        if name.startswith("__"):  # Python's own questions: every import from a module asks some
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        from gt.missing import attribute_error

        raise attribute_error(module, name)

    return missing
