"""Parameters from numpy, so that a program starts from the same numbers with either library.

Imports no tensor library: it only calls what a module's parameters offer.
"""

from typing import Protocol

import numpy as np


class Module(Protocol):
    """The part of `nn.Module` that `fill` uses."""

    def named_parameters(self): ...


def fill(module: Module, seed: int) -> None:
    """Draw every parameter: matrices by their fan-in, scales about one, biases about zero."""
    rng = np.random.default_rng(seed)
    for name, parameter in module.named_parameters():
        shape = tuple(parameter.shape)
        numbers = rng.standard_normal(shape)
        if len(shape) > 1:
            numbers *= np.prod(shape[1:]) ** -0.5
        elif name.endswith("weight"):
            numbers = 1 + 0.1 * numbers
        else:
            numbers *= 0.1
        parameter.data.copy_(parameter.new_tensor(numbers.astype(np.float32)))
