"""`gt.distributed.optim`: PyTorch's optimizer whose state is cut over ranks; here it is where
its parameters are.
"""

# ruff: noqa: ARG002 - PyTorch's arguments that mean nothing here

from collections.abc import Mapping
from typing import Any

from gt import misses
from gt._core import Tensor
from gt.optim.optimizer import Group, Optimizer, Params

__all__ = ["ZeroRedundancyOptimizer"]


class ZeroRedundancyOptimizer(Optimizer):
    """An optimizer of `optimizer_class`, with PyTorch's further methods; the numbers are its own.

    State of a parameter that is cut over workers is cut as it is: cut the parameters, by a rule of
    the configuration say, and no worker holds the state of all.

    Args:
        params: As any optimizer takes them.
        optimizer_class: What steps; it is `self.optim`.
        process_group: Accepted: the parameters' layouts say where they are.
        parameters_as_bucket_view: Accepted.
        overlap_with_ddp: Accepted: reductions overlap with the backward pass anyway.
        defaults: Options of `optimizer_class`.
    """

    def __init__(
        self,
        params: Params,
        optimizer_class: type[Optimizer],
        process_group: object = None,
        parameters_as_bucket_view: bool = False,
        overlap_with_ddp: bool = False,
        **defaults: Any,  # noqa: ANN401 - the class's
    ) -> None:
        self.optim = optimizer_class(params, **defaults)
        self._make_hooks()
        self.defaults = self.optim.defaults
        self.param_groups, self.state = self.optim.param_groups, self.optim.state

    def _update(self, group: Group, params: list[Tensor], grads: list[Tensor]) -> None:
        self.optim._update(group, params, grads)  # noqa: SLF001 - an optimizer too

    def add_param_group(self, param_group: Group) -> None:
        """Add parameters with options of their own."""
        self.optim.add_param_group(param_group)

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Take state and options from what `state_dict()` gave, or that of `optimizer_class`."""
        super().load_state_dict(state_dict)
        self.optim.state = self.state

    def consolidate_state_dict(self, to: int = 0) -> None:
        """Nothing: `state_dict()` has the state of all parameters."""


__getattr__ = misses.hook(__name__)


def __dir__() -> list[str]:
    """Lists the public names; imports for the module's own use are left out."""
    return __all__
