"""Transforms of functions that follow from the tape: `grad`, `vjp`, `jacrev`, `jvp`, `vmap`, ...

Transforms nest. They differentiate by a tensor, or by lists, tuples and dictionaries of tensors.
Where PyTorch uses forward mode, GT takes two backward passes, and `vmap` is a loop: the numbers are
the same as PyTorch's.
"""

from gt.func.batching import vmap
from gt.func.ensembles import stack_module_state
from gt.func.forward import jacfwd, jvp, linearize
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
    "stack_module_state",
    "vjp",
    "vmap",
]


def __getattr__(name: str) -> object:
    from gt.compat.missing import attribute_error

    raise attribute_error("gt.func", name)


def __dir__() -> list[str]:
    """Lists the public names; imports for the package's own use are left out."""
    return __all__
