"""The divergence of two distributions: which function computes it for their classes."""

import warnings
from collections.abc import Callable
from typing import TypeVar

from gt import Tensor
from gt.distributions.distribution import Distribution
from gt.errors import InvalidType, NotSupported

__all__ = ["kl_divergence", "register_kl"]

Class = type[Distribution]
Formula = TypeVar("Formula", bound=Callable[..., Tensor])

_registered: dict[tuple[Class, Class], Callable[..., Tensor]] = {}
# Cache of the functions chosen for pairs of classes; emptied when a function is registered.
_chosen: dict[tuple[Class, Class], Callable[..., Tensor] | None] = {}


def register_kl(type_p: Class, type_q: Class) -> Callable[[Formula], Formula]:
    """A decorator of the function of (p, q) that computes KL(p || q) for two classes.

    Subclasses use it too, unless they have one of their own.

    Raises:
        InvalidType: something that is no class of distributions.
    """
    classes: dict[str, object] = {"type_p": type_p, "type_q": type_q}
    for name, kind in classes.items():
        if not (isinstance(kind, type) and issubclass(kind, Distribution)):
            raise InvalidType(f"Expected {name} to be a Distribution subclass but got {kind}")

    def decorator(function: Formula) -> Formula:
        _registered[type_p, type_q] = function
        _chosen.clear()
        return function

    return decorator


def kl_divergence(p: Distribution, q: Distribution) -> Tensor:
    """KL(p || q), the mean under `p` of log p - log q, of the batch shape.

    Raises:
        NotSupported: no function is registered for the classes or their base classes.
    """
    pair = (type(p), type(q))
    if pair not in _chosen:
        _chosen[pair] = _choose(*pair)
    function = _chosen[pair]
    if function is None:
        raise NotSupported(
            f"No KL(p || q) is implemented for p type {type(p).__name__} "
            f"and q type {type(q).__name__}"
        )
    return function(p, q)


def _choose(type_p: Class, type_q: Class) -> Callable[..., Tensor] | None:
    """The function of the nearest classes; if `p` and `q` disagree, the nearest for `p`."""
    matches = [
        (type_p.__mro__.index(p), type_q.__mro__.index(q), p, q)
        for p, q in _registered
        if issubclass(type_p, p) and issubclass(type_q, q)
    ]
    if not matches:
        return None
    by_p = min(matches, key=lambda match: match[:2])
    by_q = min(matches, key=lambda match: (match[1], match[0]))
    if _registered[by_p[2:]] is not _registered[by_q[2:]]:
        warnings.warn(
            f"Ambiguous kl_divergence({type_p.__name__}, {type_q.__name__}). "
            f"Please register_kl({by_p[2].__name__}, {by_q[3].__name__})",
            RuntimeWarning,
            stacklevel=3,
        )
    return _registered[by_p[2:]]


def __dir__() -> list[str]:
    """Lists the public names."""
    return __all__
