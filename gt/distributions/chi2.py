"""The chi-squared distribution."""

from gt import Tensor
from gt.distributions import constraints
from gt.distributions.gamma import Gamma
from gt.distributions.utils import Value

__all__ = ["Chi2"]


class Chi2(Gamma):
    """The sum of `df` squares of standard normal values.

    Args:
        df: the degrees of freedom, positive.
        validate_args: whether arguments are checked.
    """

    arg_constraints = {"df": constraints.positive}

    def __init__(self, df: Value, validate_args: bool | None = None) -> None:
        super().__init__(0.5 * df, 0.5, validate_args=validate_args)

    @property
    def df(self) -> Tensor:
        """The degrees of freedom."""
        return self.concentration * 2
