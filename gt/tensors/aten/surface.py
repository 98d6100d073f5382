"""Functions and methods by which programs call operators without a row."""

from collections.abc import Callable

from gt._core import Tensor
from gt.composite.inplace import inplace
from gt.composite.older_forms import as_function, factors_first
from gt.tensors.aten import schemas
from gt.tensors.aten.call import call

Function = Callable[..., object]
# Methods whose tensor is not the first argument of the schema.
_SELF_LATER = {"polygamma"}


def install() -> None:
    """Attaches methods that `Tensor` does not have yet, and their in-place forms."""
    for name in schemas.names("m"):
        if not hasattr(Tensor, name):
            setattr(Tensor, name, factors_first(name, _method(name)))
    for name in schemas.names("i"):
        if not hasattr(Tensor, f"{name}_"):
            written = inplace(getattr(Tensor, name), name)
            setattr(Tensor, f"{name}_", factors_first(f"{name}_", written))


def functions(letter: str, prefix: str = "") -> dict[str, Function]:
    """The functions of one of torch's namespaces, named without `prefix`."""
    names = {name.removeprefix(prefix): name for name in schemas.names(letter)}
    return {
        title: as_function(name, factors_first(name, _function(name, title)))
        for title, name in names.items()
    }


def _function(name: str, title: str) -> Function:
    def operator(*args: object, **named: object) -> object:
        return call(name, args, named)

    return _documented(operator, name, title)


def _method(name: str) -> Function:
    def operator(self: Tensor, *args: object, **named: object) -> object:
        if name in _SELF_LATER:
            return call(name, args, {"self": self, **named})
        return call(name, (self, *args), named, is_method=True)

    return _documented(operator, name, name)


def _documented(operator: Function, name: str, title: str) -> Function:
    operator.__name__ = operator.__qualname__ = title
    operator.__doc__ = "\n\n".join(
        [
            "PyTorch's operator, which a worker runs whole by torch:",
            *(f"    {text}" for text in schemas.texts(name)),
        ]
    )
    return operator
