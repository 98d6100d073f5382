"""EmbeddingBag, and the bilinear layer."""

from __future__ import annotations

import math

import gt
from gt import signal
from gt._core import Tensor
from gt.nn import functional, init
from gt.nn.functional.layer import row_index
from gt.nn.module import Module
from gt.nn.parameter import Parameter
from gt.tensors.aten.call import call


class EmbeddingBag(Module):
    """Sums, means or maxima over bags of rows of the weight.

    Args:
        num_embeddings: Number of rows.
        embedding_dim: Width.
        max_norm: Norm to which longer rows are scaled down when they are used.
        norm_type: The p of that norm.
        scale_grad_by_freq: Divide each row's gradient by the row's count in the input.
        mode: "sum", "mean" or "max".
        sparse: Accepted: gradients are dense.
        _weight: The rows; drawn if not given.
        include_last_offset: Whether offsets end with the length of the input.
        padding_idx: A row that no bag contains; it starts as zeros.
        device: Accepted and ignored.
        dtype: Dtype of the weight.
    """

    weight: Parameter
    _orientation = "table"

    def __init__(
        self,
        num_embeddings: int,
        embedding_dim: int,
        max_norm: float | None = None,
        norm_type: float = 2.0,
        scale_grad_by_freq: bool = False,
        mode: str = "mean",
        sparse: bool = False,
        _weight: Tensor | None = None,
        include_last_offset: bool = False,
        padding_idx: int | None = None,
        device: object = None,
        dtype: gt.dtype | None = None,
    ) -> None:
        super().__init__()
        self.num_embeddings = num_embeddings
        self.embedding_dim = embedding_dim
        self.max_norm = max_norm
        self.norm_type = norm_type
        self.scale_grad_by_freq = scale_grad_by_freq
        if padding_idx is not None and not -num_embeddings <= padding_idx < num_embeddings:
            raise AssertionError("padding_idx must be within num_embeddings")
        self.padding_idx = row_index(padding_idx, num_embeddings)
        if _weight is not None and tuple(_weight.shape) != (num_embeddings, embedding_dim):
            raise AssertionError("Shape of weight does not match num_embeddings and embedding_dim")
        blank = gt.empty(num_embeddings, embedding_dim, device=device, dtype=dtype)
        self.weight = Parameter(blank if _weight is None else _weight)
        if _weight is None:
            self.reset_parameters()
        self.mode = mode
        self.sparse = sparse
        self.include_last_offset = include_last_offset

    @classmethod
    def from_pretrained(
        cls,
        embeddings: Tensor,
        freeze: bool = True,
        max_norm: float | None = None,
        norm_type: float = 2.0,
        scale_grad_by_freq: bool = False,
        mode: str = "mean",
        sparse: bool = False,
        include_last_offset: bool = False,
        padding_idx: int | None = None,
    ) -> EmbeddingBag:
        """Bags of the given rows, [rows, width]; not trained if `freeze`."""
        if embeddings.ndim != 2:
            raise AssertionError("Embeddings parameter is expected to be 2-dimensional")
        rows, width = embeddings.shape
        bag = cls(
            rows,
            width,
            max_norm,
            norm_type,
            scale_grad_by_freq,
            mode,
            sparse,
            embeddings,
            include_last_offset,
            padding_idx,
        )
        bag.weight = Parameter(embeddings, requires_grad=not freeze)
        return bag

    def reset_parameters(self) -> None:
        """Draw the rows from the standard normal distribution; the padding row is zeros."""
        init.normal_(self.weight)
        if self.padding_idx is not None:
            with gt.no_grad():
                self.weight[self.padding_idx] = 0.0

    def forward(
        self,
        input: Tensor,
        offsets: Tensor | None = None,
        per_sample_weights: Tensor | None = None,
    ) -> Tensor:
        return functional.embedding_bag(
            input,
            self.weight,
            offsets,
            self.max_norm,
            self.norm_type,
            self.scale_grad_by_freq,
            self.mode,
            self.sparse,
            per_sample_weights,
            self.include_last_offset,
            self.padding_idx,
        )

    def extra_repr(self) -> str:
        words = [f"{self.num_embeddings}, {self.embedding_dim}"]
        if self.max_norm is not None:
            words.append(f"max_norm={self.max_norm}")
        if self.norm_type != 2:
            words.append(f"norm_type={self.norm_type}")
        if self.scale_grad_by_freq:
            words.append(f"scale_grad_by_freq={self.scale_grad_by_freq}")
        words.append(f"mode={self.mode!r}")
        if self.padding_idx is not None:
            words.append(f"padding_idx={self.padding_idx}")
        return ", ".join(words)


class Bilinear(Module):
    """sum over i and j of input1[i] * weight[out, i, j] * input2[j], plus bias.

    Args:
        in1_features: Size of the first input's last dimension.
        in2_features: Size of the second input's last dimension.
        out_features: Size of the output's last dimension.
        bias: Whether to add one.
        device: Accepted and ignored.
        dtype: Dtype of weight and bias.

    Raises:
        ValueError: in1_features is 0 or less.
    """

    weight: Parameter
    bias: Parameter | None

    def __init__(
        self,
        in1_features: int,
        in2_features: int,
        out_features: int,
        bias: bool = True,
        device: object = None,
        dtype: gt.dtype | None = None,
    ) -> None:
        super().__init__()
        del device
        if in1_features <= 0:
            raise ValueError(f"in1_features must be > 0, but got (in1_features={in1_features})")
        self.in1_features = in1_features
        self.in2_features = in2_features
        self.out_features = out_features
        with signal.part("whole"):
            self.weight = Parameter(gt.empty(out_features, in1_features, in2_features, dtype=dtype))
            self.register_parameter(
                "bias", Parameter(gt.empty(out_features, dtype=dtype)) if bias else None
            )
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw weight and bias from the uniform distribution within 1 / sqrt(in1_features)."""
        bound = 1 / math.sqrt(self.in1_features)
        with signal.part("whole"):
            for param in self.parameters():
                init.uniform_(param, -bound, bound)

    def forward(self, input1: Tensor, input2: Tensor) -> Tensor:
        result: Tensor = call("bilinear", (input1, input2, self.weight, self.bias), {})
        return result

    def extra_repr(self) -> str:
        return (
            f"in1_features={self.in1_features}, in2_features={self.in2_features}, "
            f"out_features={self.out_features}, bias={self.bias is not None}"
        )
