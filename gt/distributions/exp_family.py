"""Distributions of an exponential family: entropy and divergence from the log normalizer."""

import gt
from gt import Tensor
from gt.distributions.distribution import Distribution

__all__ = ["ExponentialFamily"]


class ExponentialFamily(Distribution):
    """A density exp(t(x) . theta - F(theta) + k(x)) with natural parameters theta.

    A subclass states theta, F and the mean of k; the entropy follows by gradients of F
    (Nielsen and Nock, Entropies and cross-entropies of exponential families, 2010).
    """

    @property
    def _natural_params(self) -> tuple[Tensor, ...]:
        """The natural parameters theta."""
        raise NotImplementedError

    def _log_normalizer(self, *natural_params: Tensor) -> Tensor:
        """F of the natural parameters."""
        raise NotImplementedError

    @property
    def _mean_carrier_measure(self) -> float:
        """The mean of k(x)."""
        raise NotImplementedError

    def entropy(self) -> Tensor:
        constant = self._mean_carrier_measure
        theta = [p.detach().requires_grad_() for p in self._natural_params]
        normalizer = self._log_normalizer(*theta)
        slopes = slopes_of(normalizer, theta)
        result = normalizer - constant
        for parameter, slope in zip(theta, slopes, strict=True):
            result = result - (parameter * slope).reshape((*self._batch_shape, -1)).sum(-1)
        return result


def slopes_of(normalizer: Tensor, theta: list[Tensor]) -> list[Tensor]:
    """The gradients of a log normalizer, which can be differentiated again."""
    slopes = gt.autograd.grad(normalizer.sum(), theta, create_graph=True)
    return [slope for slope in slopes if slope is not None]
