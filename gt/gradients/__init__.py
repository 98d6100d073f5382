"""The gradient of every operator: one expression an operand, in the row's order, one file a family.

A rule gets `g`, the gradient of the result (a tuple where the operator has several results), and
`s`, what the forward pass saved; it only emits instructions, so it can be differentiated again.
PyTorch's conventions hold at every kink. No rule reads a value, and none looks at where a tensor
lives. `None` in place of a rule says: the result never requires a gradient because of this operand.
The engine casts each gradient to its operand's dtype, and sums those of elementwise operators down.
"""

from gt import _core
from gt.gradients import (
    contract,
    curvature,
    elementwise,
    index,
    loss,
    normalize,
    random,
    reduce,
    view,
)
from gt.gradients.rules import GRADIENTS

__all__ = ["GRADIENTS", "register"]

_FAMILIES = (contract, curvature, elementwise, index, loss, normalize, random, reduce, view)


def register() -> None:
    """Hand the table to the engine in `gt._core`."""
    _core.set_gradients(GRADIENTS)
