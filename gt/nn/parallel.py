"""Layers whose parameters are cut over workers, as in Megatron-LM.

They compute exactly what Linear, Embedding and cross_entropy compute; a program with the latter has
the same numbers.
"""

from __future__ import annotations

import gt
from gt import _core
from gt._core import Tensor
from gt.compat import misses
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
    """One dimension of a mesh, along which a layer works; other dimensions do not change."""

    def __init__(self, mesh: DeviceMesh | ProcessGroup | None) -> None:
        if mesh is None:
            workers = _core.workers()
            mesh = DeviceMesh(len(workers), workers)
        group = mesh[mesh.ndim - 1] if isinstance(mesh, DeviceMesh) else mesh
        if len(group.axes) != 1:
            raise ShapeError(f"a layer is cut along one dimension of a mesh, not {group!r}")
        self.group = group

    def redistribute(self, x: Tensor, word: str) -> Tensor:
        """x placed by `word` along this dimension; `reduce` and `keep` depend on its layout."""
        words = ["keep"] * self.group.mesh.ndim
        words[self.group.axes[0]] = word
        return _core.distribute(x, None, f"{','.join(words)}@{self.group.mesh}")

    def shard_parameter(self, parameter: Parameter, placement: Placement) -> None:
        """Cuts a parameter for good; it stays the same object."""
        placements: list[Placement] = [Replicate()] * self.group.mesh.ndim
        placements[self.group.axes[0]] = placement
        layout = Layout(self.group.mesh, parameter.shape, placements=placements)
        parameter.data = gt.distribute(parameter.data, layout)


class ColumnLinear(Linear):
    """A Linear with cut output features: each worker computes its own, and no data moves.

    Args:
        in_features: Size of the input's last dimension, which every worker has whole.
        out_features: Size of the output's last dimension; the workers need not divide it.
        bias: Whether to add one, cut like the output.
        mesh: The workers, or `mesh["tp"]`; all workers of the session if not given.
        gather_output: Gather the output on every worker.
        blocks: Cuts each of this many equal blocks of the output, for a fused query, key and value.
        dtype: Dtype of weight and bias.
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
    """A Linear with cut input features: one all-reduce makes its output whole on every worker.

    Args:
        in_features: Size of the input's last dimension, cut as in the result of ColumnLinear.
        out_features: Size of the output's last dimension.
        bias: Whether to add one; every worker has it, and it is added once.
        mesh: The workers, or `mesh["tp"]`; all workers of the session if not given.
        dtype: Dtype of weight and bias.
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
    """An Embedding with cut rows: each worker looks up its own, and one all-reduce adds them.

    Args:
        num_embeddings: Number of rows; the number of workers need not divide it.
        embedding_dim: Width.
        padding_idx: A row that starts as zeros and receives no gradient.
        mesh: The workers, or `mesh["tp"]`; all workers of the session if not given.
        dtype: Dtype of the weight.
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
        self.clear_padding()  # only now: a write makes the table, which must be cut when it is made

    def forward(self, input: Tensor) -> Tensor:
        return self.line.redistribute(
            super().forward(self.line.redistribute(input, "replicate")), "reduce"
        )


class DColumnLinear(ColumnLinear):
    """ColumnLinear with the arguments of TensorParallelismBeta.

    Args:
        mesh: The workers.
        pg: The group along which the layer is cut: `mesh.get_process_group(0)`.
        batch: Accepted without effect: any batch size works.
        sequence: Accepted without effect.
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
    """The cross-entropy of logits [..., classes], whose classes may be cut over workers.

    The value does not depend on the cut, and the number of workers need not divide that of classes.
    Cut logits are not gathered: three numbers for each token are exchanged.

    Args:
        logits: [..., classes].
        targets: Class indexes [...], or probabilities [..., classes].
        weight: Weight of each class.
        ignore_index: A class index whose tokens are not counted.
        reduction: `mean` over all counted tokens, `sum`, or `none`.
        label_smoothing: Fraction of the target that is spread over all classes.

    Returns:
        The loss, one number; [...] with `reduction="none"`.

    Raises:
        ShapeError: The shapes do not match.

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
