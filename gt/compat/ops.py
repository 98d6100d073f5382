"""PyTorch's operators by name, as in torch.ops: `gt.ops.aten.add(x, y)`.

A worker runs such a call whole by torch, even if GT has a row for the operator. An operator has its
overloads as attributes (`gt.ops.aten.add.Tensor`, `gt.ops.aten.relu.default`); without one the
first overload that fits the arguments is called. The operators are those of
gt/tensors/aten/schemas.txt: operators that write into an operand, share its memory or draw random
numbers are not among them, except those that gt/tensors/aten/composed.py composes.
"""

import difflib
from collections.abc import Callable

from gt.tensors.aten import call, composed, schemas

__all__ = ["aten"]


class Overload:
    """One overload of an operator."""

    def __init__(self, name: str) -> None:
        self._name = name
        self.__doc__ = "\n".join(str(schema) for schema in schemas.texts(name))

    def __call__(self, *args: object, **named: object) -> object:
        """The operator's results: tensors, or a named tuple of them."""
        return call.call(self._name, args, named)

    def __repr__(self) -> str:
        return f"<gt.ops.aten {self._name}>"


class Operator(Overload):
    """An operator: calls the first overload that fits the arguments."""

    def overloads(self) -> list[str]:
        """Names of the overloads; "default" for one without a name."""
        return [_overload(text) for text in schemas.texts(self._name)]

    def __getattr__(self, overload: str) -> Overload:
        if overload.startswith("__") or overload not in self.overloads():
            raise AttributeError(
                f"gt.ops.aten.{self._name} has no overload {overload!r}; it has "
                f"{', '.join(self.overloads())}"
            )
        return Overload(f"{self._name}.{overload}")


class Namespace:
    """torch.ops.aten: an operator by its name."""

    def __getattr__(self, name: str) -> Callable[..., object]:
        if name in composed.OPERATORS:
            return composed.OPERATORS[name]
        if name not in schemas.known():
            nearest = difflib.get_close_matches(name, dir(self), n=1)
            hint = f"; did you mean {nearest[0]}?" if nearest else ""
            raise AttributeError(f"gt.ops.aten has no operator {name!r}{hint}")
        return Operator(name)

    def __dir__(self) -> list[str]:
        """The operators' names."""
        return sorted(schemas.known() | composed.OPERATORS.keys())


def _overload(text: str) -> str:
    return text.partition("(")[0].partition(".")[2] or "default"


aten = Namespace()


def __dir__() -> list[str]:
    return __all__
