"""`gt._inductor.config`: settings are stored and have no effect: GT does not use this compiler."""

import contextlib
import sys
import types
from collections.abc import Iterator, Mapping

from gt.compat import misses

__all__ = ["aot_inductor", "cpp", "cuda", "patch", "triton"]

# Groups of settings.
aot_inductor = types.SimpleNamespace()
cpp = types.SimpleNamespace()
cuda = types.SimpleNamespace()
triton = types.SimpleNamespace()


@contextlib.contextmanager
def patch(
    changes: str | Mapping[str, object] | None = None, value: object = None, **settings: object
) -> Iterator[None]:
    """Change settings inside the `with` block, or during the calls of a decorated function.

    Args:
        changes: The name of a setting (`triton.cudagraphs` for one in a group), or a mapping from
            names to values.
        value: The setting's value, if `changes` is a name.
        settings: Further settings by name.
    """
    named = {changes: value} if isinstance(changes, str) else dict(changes or {})
    with contextlib.ExitStack() as stack:
        for name, setting in (named | settings).items():
            stack.enter_context(_setting(name, setting))
        yield


@contextlib.contextmanager
def _setting(name: str, value: object) -> Iterator[None]:
    group, _, own = name.rpartition(".")
    holder = vars(getattr(sys.modules[__name__], group) if group else sys.modules[__name__])
    had, before = own in holder, holder.get(own)
    holder[own] = value
    try:
        yield
    finally:
        if had:
            holder[own] = before
        else:
            del holder[own]


__getattr__ = misses.hook(__name__)


def __dir__() -> list[str]:
    """Lists the public names; imports for the module's own use are left out."""
    return __all__
