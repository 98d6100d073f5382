"""Base of distributions that take either probabilities or logits."""

from gt import Size, Tensor
from gt.distributions.distribution import Distribution
from gt.distributions.utils import lazy_property, logits_to_probs, probs_to_logits


class ProbsOrLogits(Distribution):
    """A distribution of `probs` or `logits`; the other one is computed at its first use."""

    _batched = {"probs": 0, "logits": 0}
    # Logits are log-odds, else logarithms up to a constant of each row.
    _is_binary = True

    @lazy_property
    def logits(self) -> Tensor:
        """Log-odds, or logarithms of probabilities."""
        return probs_to_logits(self.probs, self._is_binary)

    @lazy_property
    def probs(self) -> Tensor:
        """Probabilities."""
        return logits_to_probs(self.logits, self._is_binary)

    @property
    def _param(self) -> Tensor:
        """The parameter that was given; both have one shape and dtype."""
        return self.probs if "probs" in vars(self) else self.logits

    @property
    def param_shape(self) -> Size:
        """The shape of the parameter."""
        return self._param.shape
