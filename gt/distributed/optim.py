"""`gt.distributed.optim`: PyTorch's optimizer with sharded state, in its parameters' layouts."""

# ruff: noqa: ARG002 - PyTorch's arguments that mean nothing here

from collections.abc import Mapping
from typing import Any

from gt._core import Tensor
from gt.compat import misses
from gt.optim.optimizer import Group, Optimizer, Params

__all__ = ["ZeroRedundancyOptimizer"]


class ZeroRedundancyOptimizer(Optimizer):
    """An optimizer of `optimizer_class`, with PyTorch's further methods; the numbers are its own.

    The state of a parameter has the parameter's layout: cut the parameters (by a configuration
    rule, for example), and no worker holds the whole state.

    Args:
        params: Parameters, as for any optimizer.
        optimizer_class: Class of the optimizer that steps; `self.optim` is its instance.
        process_group: Accepted and ignored: the parameters' layouts determine their workers.
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
        """Load state and options from `state_dict()`, or from that of an `optimizer_class`."""
        super().load_state_dict(state_dict)
        self.optim.state = self.state

    def consolidate_state_dict(self, to: int = 0) -> None:
        """No effect: `state_dict()` has the state of all parameters."""


__getattr__ = misses.hook(__name__)


def __dir__() -> list[str]:
    """Lists the public names; imports for the module's own use are left out."""
    return __all__
