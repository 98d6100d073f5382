"""Layers whose parameters are cut over workers, as Megatron-LM cuts them.

They are thin: they compute what Linear, Embedding and cross_entropy compute; a program that uses
the latter has the same numbers.
"""

from __future__ import annotations

import gt
from gt import _core, misses
from gt._core import Tensor
from gt.distributed.layout import Layout, Placement, Replicate, Shard
from gt.distributed.mesh import DeviceMesh, ProcessGroup
from gt.errors import ShapeError
from gt.nn import functional
from gt.nn.data_parallel import DataParallel, DistributedDataParallel
from gt.nn.embedding import Embedding
from gt.nn.functional.layer import row_index
from gt.nn.linear import Linear
from gt.nn.parameter import Parameter

__all__ = [
    "ColumnLinear",
    "DColumnLinear",
    "DRowLinear",
    "DataParallel",
    "DistributedDataParallel",
    "RowLinear",
    "VocabParallelEmbedding",
    "parallel_cross_entropy",
]


class _Line:
    """One dimension of a mesh, along which a layer works; other dimensions stay as they are."""

    def __init__(self, mesh: DeviceMesh | ProcessGroup | None) -> None:
        if mesh is None:
            workers = _core.workers()
            mesh = DeviceMesh(len(workers), workers)
        group = mesh[mesh.ndim - 1] if isinstance(mesh, DeviceMesh) else mesh
        if len(group.axes) != 1:
            raise ShapeError(f"a layer is cut along one dimension of a mesh, not {group!r}")
        self.group = group

    def redistribute(self, x: Tensor, word: str) -> Tensor:
        """x placed by `word` along this dimension; `reduce` and `keep` follow from its layout."""
        words = ["keep"] * self.group.mesh.ndim
        words[self.group.axes[0]] = word
        return _core.distribute(x, None, f"{','.join(words)}@{self.group.mesh}")

    def shard_parameter(self, parameter: Parameter, placement: Placement) -> None:
        """Cut for good: the parameter stays the same object."""
        placements: list[Placement] = [Replicate()] * self.group.mesh.ndim
        placements[self.group.axes[0]] = placement
        layout = Layout(self.group.mesh, parameter.shape, placements=placements)
        parameter.data = gt.distribute(parameter.data, layout)


class ColumnLinear(Linear):
    """A Linear whose output features are cut: each worker computes its own, and nothing moves.

    Args:
        in_features: Size of the input's last dimension, which every worker has whole.
        out_features: Size of the output's last dimension; the workers need not divide it.
        bias: Whether to add one; it is cut as the output is.
        mesh: The workers, or `mesh["tp"]`; all workers of the session if not given.
        gather_output: Gather the output on every worker.
        blocks: Cut each of so many equal blocks of the output, as for a fused query, key and value.
        dtype: Of weight and bias.
    """

    def __init__(
        self,
        in_features: int,
        out_features: int,
        bias: bool = True,
        *,
        mesh: DeviceMesh | ProcessGroup | None = None,
        gather_output: bool = False,
        blocks: int | None = None,
        dtype: gt.dtype | None = None,
    ) -> None:
        super().__init__(in_features, out_features, bias, dtype=dtype)
        self.line, self.gather_output, self.blocks = _Line(mesh), gather_output, blocks
        self.line.shard_parameter(self.weight, Shard(0, blocks))
        if self.bias is not None:
            self.line.shard_parameter(self.bias, Shard(0, blocks))

    def forward(self, input: Tensor) -> Tensor:
        out = super().forward(self.line.redistribute(input, "replicate"))  # [..., f] / workers
        last = str(Shard(out.ndim - 1, self.blocks))
        return self.line.redistribute(out, "replicate" if self.gather_output else last)


class RowLinear(Linear):
    """A Linear whose input features are cut: one all-reduce makes its output whole everywhere.

    Args:
        in_features: Size of the input's last dimension, cut as a ColumnLinear leaves it.
        out_features: Size of the output's last dimension.
        bias: Whether to add one; every worker has it, and it is added once.
        mesh: The workers, or `mesh["tp"]`; all workers of the session if not given.
        dtype: Of weight and bias.
    """

    def __init__(
        self,
        in_features: int,
        out_features: int,
        bias: bool = True,
        *,
        mesh: DeviceMesh | ProcessGroup | None = None,
        dtype: gt.dtype | None = None,
    ) -> None:
        super().__init__(in_features, out_features, bias, dtype=dtype)
        self.line = _Line(mesh)
        self.line.shard_parameter(self.weight, Shard(1))
        if self.bias is not None:
            self.line.shard_parameter(self.bias, Replicate())

    def forward(self, input: Tensor) -> Tensor:
        cut = self.line.redistribute(input, f"shard({input.ndim - 1})")  # [..., f / workers]
        return self.line.redistribute(super().forward(cut), "reduce")


class VocabParallelEmbedding(Embedding):
    """An Embedding whose rows are cut: each worker looks its own up, and one all-reduce adds them.

    Args:
        num_embeddings: Rows; the workers need not divide them.
        embedding_dim: Width.
        padding_idx: A row that starts as zeros and receives no gradient.
        mesh: The workers, or `mesh["tp"]`; all workers of the session if not given.
        dtype: Of the weight.
    """

    def __init__(
        self,
        num_embeddings: int,
        embedding_dim: int,
        padding_idx: int | None = None,
        *,
        mesh: DeviceMesh | ProcessGroup | None = None,
        dtype: gt.dtype | None = None,
    ) -> None:
        super().__init__(num_embeddings, embedding_dim, dtype=dtype)
        self.line = _Line(mesh)
        self.line.shard_parameter(self.weight, Shard(0))
        self.padding_idx = row_index(padding_idx, num_embeddings)
        self.clear_padding()  # only now: a write makes the table, and it is to be made cut

    def forward(self, input: Tensor) -> Tensor:
        return self.line.redistribute(
            super().forward(self.line.redistribute(input, "replicate")), "reduce"
        )


class DColumnLinear(ColumnLinear):
    """ColumnLinear with the arguments of TensorParallelismBeta.

    Args:
        mesh: The workers.
        pg: The group along which the layer is cut: `mesh.get_process_group(0)`.
        batch: A hint that is not needed: any batch will do.
        sequence: Likewise.
        in_features: Size of the input's last dimension.
        out_features: Size of the output's last dimension.
        bias: Whether to add one.
    """

    def __init__(
        self,
        mesh: DeviceMesh,
        pg: ProcessGroup,
        batch: int,
        sequence: int,
        in_features: int,
        out_features: int,
        bias: bool = True,
    ) -> None:
        del batch, sequence
        super().__init__(in_features, out_features, bias, mesh=_of(mesh, pg))


class DRowLinear(RowLinear):
    """RowLinear with the arguments of TensorParallelismBeta; see DColumnLinear."""

    def __init__(
        self,
        mesh: DeviceMesh,
        pg: ProcessGroup,
        batch: int,
        sequence: int,
        in_features: int,
        out_features: int,
        bias: bool = True,
    ) -> None:
        del batch, sequence
        super().__init__(in_features, out_features, bias, mesh=_of(mesh, pg))


def _of(mesh: DeviceMesh, pg: ProcessGroup) -> ProcessGroup:
    if pg.mesh != mesh:
        raise ShapeError(f"{pg!r} is no group of {mesh!r}")
    return pg


def parallel_cross_entropy(
    logits: Tensor,
    targets: Tensor,
    weight: Tensor | None = None,
    ignore_index: int = -100,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
) -> Tensor:
    """The cross-entropy of logits [..., classes], whose classes may be cut over workers or not.

    The value is the same either way, and so is the number of classes that the workers need not
    divide. Of cut logits nothing is gathered: three numbers a token travel.

    Args:
        logits: [..., classes].
        targets: Class indexes [...], or probabilities [..., classes].
        weight: Of each class.
        ignore_index: A class index whose tokens do not count.
        reduction: `mean` over all tokens that count, `sum`, or `none`.
        label_smoothing: The share of the target that is spread over all classes.

    Returns:
        The loss, of one number; [...] where `reduction` is `none`.

    Raises:
        ShapeError: The shapes do not belong together.

    Example:
        >>> gt.parallel_cross_entropy(gt.tensor([[0.0, 0.0]]), gt.tensor([1]))
        tensor(0.6931)
    """
    classes = logits.shape[-1]
    soft = targets.is_floating_point()
    expected = tuple(logits.shape) if soft else tuple(logits.shape[:-1])
    if tuple(targets.shape) != expected:
        raise ShapeError(
            f"parallel_cross_entropy: targets of shape {tuple(targets.shape)} "
            f"for logits of shape {tuple(logits.shape)}; expected {expected}"
        )
    loss = functional.cross_entropy(
        logits.reshape(-1, classes),  # [tokens, classes]
        targets.reshape(-1, classes) if soft else targets.reshape(-1),
        weight=weight,
        ignore_index=ignore_index,
        reduction=reduction,
        label_smoothing=label_smoothing,
    )
    return loss.reshape(logits.shape[:-1]) if reduction == "none" else loss


__getattr__ = misses.hook(__name__)
