"""Names in PyTorch's error texts, and the check of an attribute's name."""


def typename(value: object) -> str:
    """The name of the class of `value`, or of `value` if it is a class, with its module unless
    builtin.
    """
    kind = value if isinstance(value, type) else type(value)
    return (
        kind.__qualname__
        if kind.__module__ == "builtins"
        else f"{kind.__module__}.{kind.__qualname__}"
    )


def foreign(value: object) -> str:
    """Hint for an error: the conversion of PyTorch's tensor or module to GT's; empty for other
    values.
    """
    classes = [kind.__qualname__ for kind in type(value).__mro__ if kind.__module__[:5] == "torch"]
    if "TensorBase" in classes:
        return ": gt.from_torch(x) makes a GT tensor of it"
    if "Module" in classes:
        return (
            ": it is PyTorch's, and a module of gt.nn of the same structure takes its state_dict()"
        )
    return ""


def check_name(kind: str, name: object, *, taken: bool) -> None:
    """Raise PyTorch's errors if `name` cannot name a parameter, buffer or module.

    Raises:
        TypeError: It is not a string.
        KeyError: It is empty, has a dot, or is in use.
    """
    if not isinstance(name, str):
        raise TypeError(f"{kind} name should be a string. Got {typename(name)}")
    if taken:
        raise KeyError(f"attribute '{name}' already exists")
    if "." in name:
        got = f", got: {name}" if kind == "module" else ""
        raise KeyError(f'{kind} name can\'t contain "."{got}')
    if not name:
        raise KeyError(f'{kind} name can\'t be empty string ""')
