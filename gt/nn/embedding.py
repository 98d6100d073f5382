"""Embedding: a table of vectors."""

from __future__ import annotations

import gt
from gt._core import Tensor
from gt.nn import functional, init
from gt.nn.functional.layer import row_index
from gt.nn.module import Module
from gt.nn.parameter import Parameter


class Embedding(Module):
    """Row i of the weight for index i.

    Args:
        num_embeddings: Number of rows.
        embedding_dim: Width.
        padding_idx: A row that starts as zeros and receives no gradient.
        max_norm: Norm to which longer rows are scaled down when they are used.
        norm_type: The p of that norm.
        scale_grad_by_freq: Divide each row's gradient by the row's count in the input.
        sparse: Accepted: gradients are dense.
        _weight: The rows; drawn if not given.
        _freeze: Whether the rows are not trained.
        device: Accepted and ignored.
        dtype: Dtype of the weight.
    """

    weight: Parameter
    _orientation = "table"

    def __init__(
        self,
        num_embeddings: int,
        embedding_dim: int,
        padding_idx: int | None = None,
        max_norm: float | None = None,
        norm_type: float = 2.0,
        scale_grad_by_freq: bool = False,
        sparse: bool = False,
        _weight: Tensor | None = None,
        _freeze: bool = False,
        device: object = None,
        dtype: gt.dtype | None = None,
    ) -> None:
        super().__init__()
        self.num_embeddings = num_embeddings
        self.embedding_dim = embedding_dim
        self.padding_idx = row_index(padding_idx, num_embeddings)
        self.max_norm = max_norm
        self.norm_type = norm_type
        self.scale_grad_by_freq = scale_grad_by_freq
        self.sparse = sparse
        rows = _weight
        if rows is None:
            rows = gt.empty(num_embeddings, embedding_dim, device=device, dtype=dtype)
        elif rows.shape != (num_embeddings, embedding_dim):
            raise AssertionError("Shape of weight does not match num_embeddings and embedding_dim")
        self.weight = Parameter(rows, requires_grad=not _freeze)
        if _weight is None:
            self.reset_parameters()

    @classmethod
    def from_pretrained(
        cls,
        embeddings: Tensor,
        freeze: bool = True,
        padding_idx: int | None = None,
        max_norm: float | None = None,
        norm_type: float = 2.0,
        scale_grad_by_freq: bool = False,
        sparse: bool = False,
    ) -> Embedding:
        """An embedding with the given rows, [rows, width]; not trained if `freeze`."""
        if embeddings.ndim != 2:
            raise AssertionError("Embeddings parameter is expected to be 2-dimensional")
        rows, width = embeddings.shape
        return cls(
            rows,
            width,
            padding_idx,
            max_norm,
            norm_type,
            scale_grad_by_freq,
            sparse,
            embeddings,
            freeze,
        )

    def reset_parameters(self) -> None:
        """Draw the rows from the standard normal distribution."""
        init.normal_(self.weight)
        self.clear_padding()

    def clear_padding(self) -> None:
        """Set the padding row to zeros, if there is one."""
        if self.padding_idx is not None:
            with gt.no_grad():
                self.weight[self.padding_idx] = 0.0

    def forward(self, input: Tensor) -> Tensor:
        return functional.embedding(
            input,
            self.weight,
            self.padding_idx,
            self.max_norm,
            self.norm_type,
            self.scale_grad_by_freq,
            self.sparse,
        )

    def extra_repr(self) -> str:
        text = f"{self.num_embeddings}, {self.embedding_dim}"
        if self.padding_idx is not None:
            text += f", padding_idx={self.padding_idx}"
        if self.max_norm is not None:
            text += f", max_norm={self.max_norm}"
        return text
