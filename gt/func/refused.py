"""Transforms that GT does not have: each says what to do instead."""

from collections.abc import Callable
from typing import NoReturn

from gt.errors import NotSupported


def vmap(func: Callable[..., object], *args: object, **kwargs: object) -> NoReturn:
    """Runs a function for each entry of a batch, in PyTorch.

    Raises:
        NotSupported: always.
    """
    del func, args, kwargs
    raise NotSupported(
        "vmap: GT has no batch dimension of everything; write the batch into the operations "
        "(they broadcast), or stack the results of a loop"
    )


def jvp(func: Callable[..., object], *args: object, **kwargs: object) -> NoReturn:
    """The product of a Jacobian with a vector by forward mode, in PyTorch.

    Raises:
        NotSupported: always.
    """
    del func, args, kwargs
    raise NotSupported(
        "jvp: GT has no forward mode; gt.autograd.functional.jvp gives the product by two backward "
        "passes"
    )


def jacfwd(func: Callable[..., object], *args: object, **kwargs: object) -> NoReturn:
    """A Jacobian by forward mode, in PyTorch.

    Raises:
        NotSupported: always.
    """
    del func, args, kwargs
    raise NotSupported("jacfwd: GT has no forward mode; gt.func.jacrev gives the same Jacobian")


def linearize(func: Callable[..., object], *primals: object) -> NoReturn:
    """A function and its linear part at a point, in PyTorch.

    Raises:
        NotSupported: always.
    """
    del func, primals
    raise NotSupported(
        "linearize: GT has no forward mode; gt.autograd.functional.jvp gives its products"
    )
