"""Transforms of functions that follow from the tape: `grad`, `grad_and_value`, `vjp`, `jacrev`.

They nest. What they differentiate may be a tensor, or lists, tuples and dictionaries of tensors.
What needs forward mode or a batch dimension of everything (`jvp`, `jacfwd`, `vmap`) is refused, and
says what to do.
"""

from gt.func.refused import jacfwd, jvp, linearize, vmap
from gt.func.transforms import grad, grad_and_value, hessian, jacrev, vjp
from gt.nn.functional_call import functional_call

__all__ = [
    "functional_call",
    "grad",
    "grad_and_value",
    "hessian",
    "jacfwd",
    "jacrev",
    "jvp",
    "linearize",
    "vjp",
    "vmap",
]


def __getattr__(name: str) -> object:
    from gt.missing import attribute_error

    raise attribute_error("gt.func", name)


def __dir__() -> list[str]:
    """What users type; what this package needs itself is no part of it."""
    return __all__
