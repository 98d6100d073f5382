"""The categorical distribution."""

import gt
from gt import Size, Tensor
from gt.distributions import constraints
from gt.distributions.distribution import Shape
from gt.distributions.probs_or_logits import ProbsOrLogits
from gt.distributions.utils import one_of
from gt.errors import InvalidValue

__all__ = ["Categorical"]


class Categorical(ProbsOrLogits):
    """One of k classes, as an integer.

    Args:
        probs: not negative, [..., k]; divided by their sum.
        logits: logarithms of probabilities up to a constant of each row, in place of `probs`.
        validate_args: whether arguments are checked.

    Raises:
        InvalidValue: both of `probs` and `logits`, or none, or a parameter without dimensions.
    """

    arg_constraints = {
        "probs": constraints.simplex,
        "logits": constraints.real_vector,
    }
    has_enumerate_support = True
    _batched = {"probs": 1, "logits": 1}
    _is_binary = False

    def __init__(
        self,
        probs: Tensor | None = None,
        logits: Tensor | None = None,
        validate_args: bool | None = None,
    ) -> None:
        name = one_of(probs, logits)
        value = logits if probs is None else probs
        assert value is not None, (probs, logits)
        if value.dim() < 1:
            raise InvalidValue(f"`{name}` parameter must be at least one-dimensional.")
        if name == "probs":
            vars(self)[name] = value / value.sum(-1, keepdim=True)
        else:
            vars(self)[name] = value - value.logsumexp(-1, keepdim=True)
        super().__init__(value.shape[:-1], validate_args=validate_args)

    @property
    def _num_events(self) -> int:
        return self._param.shape[-1]

    @constraints.dependent_property(is_discrete=True, event_dim=0)
    def support(self) -> constraints.Constraint:
        """0, 1, ... k - 1."""
        return constraints.integer_interval(0, self._num_events - 1)

    @property
    def mean(self) -> Tensor:
        return gt.full(self._extended_shape(), float("nan"), dtype=self.probs.dtype)

    @property
    def mode(self) -> Tensor:
        return self.probs.argmax(-1)

    @property
    def variance(self) -> Tensor:
        return self.mean

    def sample(self, sample_shape: Shape = ()) -> Tensor:
        rows = self.probs.detach().reshape(-1, self._num_events)
        drawn = gt.multinomial(rows, Size(sample_shape).numel(), True)  # [batch, samples]
        return drawn.T.reshape(self._extended_shape(sample_shape))

    def log_prob(self, value: Tensor) -> Tensor:
        at = self._checked(value).long()
        batch = gt.broadcast_shapes(at.shape, self._batch_shape)
        rows, at = _expanded(self.logits, (*batch, self._num_events)), _expanded(at, batch)
        return rows.gather(-1, at.unsqueeze(-1)).squeeze(-1)

    def entropy(self) -> Tensor:
        least = gt.finfo(self.logits.dtype).min
        return -(self.logits.clamp(min=least) * self.probs).sum(-1)

    def enumerate_support(self, expand: bool = True) -> Tensor:
        return self._along(gt.arange(self._num_events), expand)


def _expanded(value: Tensor, shape: Shape) -> Tensor:
    """`value.expand(shape)`, without an instruction where that is its shape."""
    return value if value.shape == tuple(shape) else value.expand(shape)
