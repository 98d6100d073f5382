"""Grad mode: recording of this thread's operations. The tape itself is in gt._core."""

import functools
import inspect
from collections.abc import Callable, Generator
from types import TracebackType
from typing import Any, ParamSpec, TypeVar

from gt import _core
from gt.compat import misses

P = ParamSpec("P")
R = TypeVar("R")

__all__ = [
    "enable_grad",
    "inference_mode",
    "is_grad_enabled",
    "no_grad",
    "set_grad_enabled",
]


class _GradMode:
    """Sets this thread's grad mode for a `with` block or a decorated function."""

    def __init__(self, enabled: bool) -> None:
        self._enabled = enabled
        self._before: list[bool] = []

    def __enter__(self) -> None:
        self._before.append(_core.set_grad_enabled(self._enabled))

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        _core.set_grad_enabled(self._before.pop())

    def __call__(self, function: Callable[P, R]) -> Callable[P, R]:
        if inspect.isgeneratorfunction(function):
            advanced: Any = _around_each_step(self._enabled, function)
            return advanced  # type: ignore[no-any-return] # of the same signature

        @functools.wraps(function)
        def within(*args: P.args, **kwargs: P.kwargs) -> R:
            with _GradMode(self._enabled):
                return function(*args, **kwargs)

        return within


def _around_each_step(
    enabled: bool, function: Callable[P, Generator[Any, Any, R]]
) -> Callable[P, Generator[object, object, R]]:
    """A generator function whose body runs in this mode, while its caller stays in its own."""

    @functools.wraps(function)
    def within(*args: P.args, **kwargs: P.kwargs) -> Generator[object, object, R]:
        generator = function(*args, **kwargs)
        step = functools.partial(generator.send, None)
        try:
            while True:
                with _GradMode(enabled):
                    item = step()
                try:
                    step = functools.partial(generator.send, (yield item))
                except GeneratorExit:
                    with _GradMode(enabled):
                        generator.close()
                    raise
                except BaseException as error:  # noqa: BLE001 - thrown into it by its caller
                    step = functools.partial(generator.throw, error)
        except StopIteration as end:
            result: R = end.value
            return result

    return within


class _Decorator(_GradMode):
    """A mode that decorates a function also without parentheses: `@no_grad`."""

    def __new__(cls, given: object = None) -> "_Decorator":
        if callable(given):
            return cls()(given)  # type: ignore[return-value]
        return super().__new__(cls)


class no_grad(_Decorator):  # noqa: N801 - PyTorch's name
    """Turns recording for the backward pass off."""

    def __init__(self, orig_func: object = None) -> None:  # noqa: ARG002 - `@no_grad`
        super().__init__(False)


class enable_grad(_Decorator):  # noqa: N801 - PyTorch's name
    """Turns recording on, also within `no_grad`."""

    def __init__(self, orig_func: object = None) -> None:  # noqa: ARG002 - `@enable_grad`
        super().__init__(True)


class inference_mode(_Decorator):  # noqa: N801 - PyTorch's name
    """Turns recording off like `no_grad`: values are immutable, so nothing more can be saved."""

    def __init__(self, mode: bool = True) -> None:
        super().__init__(not mode)


class set_grad_enabled(_GradMode):  # noqa: N801 - PyTorch's name
    """Sets grad mode at once; as a `with` block, until its end."""

    def __init__(self, mode: bool) -> None:
        super().__init__(mode)
        self._at_call = _core.set_grad_enabled(mode)

    def __enter__(self) -> None:
        self._before.append(self._at_call)

    def __call__(self, function: Callable[P, R]) -> Callable[P, R]:
        _core.set_grad_enabled(self._at_call)  # a decorated function has its own mode
        return super().__call__(function)


def is_grad_enabled() -> bool:
    """True if operations of this thread are recorded."""
    return _core.is_grad_enabled()


__getattr__ = misses.hook(__name__)


def __dir__() -> list[str]:
    """Lists the public names; imports for the module's own use are left out."""
    return __all__
