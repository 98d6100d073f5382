"""AdaptiveLogSoftmaxWithLoss: a softmax over classes in clusters, with smaller layers for rare
ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import gt
from gt._core import Tensor
from gt.errors import ShapeError
from gt.nn import functional
from gt.nn.containers import ModuleList, Sequential
from gt.nn.linear import Linear
from gt.nn.module import Module


class OutputAndLoss(NamedTuple):
    """The log probability of each target, and the mean of the negative ones."""

    output: Tensor
    loss: Tensor


class AdaptiveLogSoftmaxWithLoss(Module):
    """A softmax over many classes: a head of frequent ones, and clusters of the others.

    PyTorch computes each cluster for the elements whose target it contains; GT computes each one
    for all elements, so that nothing is read and a cut batch stays cut.

    Args:
        in_features: Size of the input's last dimension.
        n_classes: Number of classes, the frequent ones first.
        cutoffs: First class of each cluster.
        div_value: Ratio of the inner widths of successive clusters.
        head_bias: Whether the head has a bias.
        device: Accepted and ignored.
        dtype: Dtype of the parameters.

    Raises:
        ValueError: Cutoffs that are not increasing integers from 1 to n_classes - 1.
    """

    def __init__(
        self,
        in_features: int,
        n_classes: int,
        cutoffs: Sequence[int],
        div_value: float = 4.0,
        head_bias: bool = False,
        device: object = None,
        dtype: gt.dtype | None = None,
    ) -> None:
        super().__init__()
        ends = list(cutoffs)
        if not ends:
            raise ValueError("cutoffs should be a sequence of length larger than 0")
        in_range = min(ends) > 0 and max(ends) <= n_classes - 1
        rises = ends == sorted(set(ends)) and all(int(end) == end for end in ends)
        if not in_range or not rises:
            raise ValueError(
                "cutoffs should be a sequence of unique, positive integers sorted in an increasing "
                "order, where each value is between 1 and n_classes-1"
            )
        self.in_features, self.n_classes = in_features, n_classes
        self.cutoffs = [*ends, n_classes]
        self.div_value, self.head_bias = div_value, head_bias
        self.shortlist_size = self.cutoffs[0]
        self.n_clusters = len(self.cutoffs) - 1
        self.head_size = self.shortlist_size + self.n_clusters
        self.head = Linear(in_features, self.head_size, head_bias, device, dtype)
        self.tail = ModuleList()
        for place in range(self.n_clusters):
            inner = int(in_features // (div_value ** (place + 1)))
            size = self.cutoffs[place + 1] - self.cutoffs[place]
            narrow = Linear(in_features, inner, False, device, dtype)
            self.tail.append(Sequential(narrow, Linear(inner, size, False, device, dtype)))

    def reset_parameters(self) -> None:
        """Draw all weights again."""
        self.head.reset_parameters()
        for layer in self.tail.modules():
            if isinstance(layer, Linear):
                layer.reset_parameters()

    def forward(self, input_: Tensor, target_: Tensor) -> OutputAndLoss:
        """The targets' log probabilities and the loss.

        Args:
            input_: [batch, in_features] or [in_features].
            target_: [batch] or [], classes; one out of range fails on the worker, as in gather.

        Raises:
            ShapeError: Shapes that do not fit.
        """
        if target_.ndim not in (0, 1):
            raise ShapeError("0D or 1D target tensor expected, multi-target not supported")
        if target_.ndim == 1 and input_.shape[0] != target_.shape[0]:
            raise ShapeError("Input and target should have the same size in the batch dimension.")
        if input_.ndim != target_.ndim + 1:
            raise ShapeError(
                f"{target_.ndim}D target tensor expects {target_.ndim + 1}D input tensors, but "
                f"found inputs with size torch.Size({list(input_.shape)})"
            )
        output = self.log_prob(input_).gather(-1, target_.unsqueeze(-1)).squeeze(-1)
        return OutputAndLoss(output, (-output).mean())

    def log_prob(self, input: Tensor) -> Tensor:
        """[..., in_features] -> [..., n_classes], the log probability of each class."""
        head = functional.log_softmax(self.head(input), -1)
        parts = [head[..., : self.shortlist_size]]
        for place, cluster in enumerate(self.tail):
            inside = functional.log_softmax(cluster(input), -1)
            parts.append(inside + head[..., self.shortlist_size + place].unsqueeze(-1))
        return gt.cat(parts, -1)

    def predict(self, input: Tensor) -> Tensor:
        """[batch, in_features] -> [batch], the most probable classes."""
        return self.log_prob(input).argmax(-1)
