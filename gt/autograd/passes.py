"""Backward passes: `backward`, which fills `.grad`, and `grad`, which returns gradients."""

from collections.abc import Sequence
from typing import TypeAlias

from gt import _core
from gt._core import Tensor
from gt.composite.joining import stack
from gt.errors import InvalidUse, InvalidValue, NotDifferentiable, ShapeError
from gt.tensors.creation import zeros_like

Tensors: TypeAlias = Tensor | Sequence[Tensor]
Seeds: TypeAlias = Tensor | Sequence[Tensor | None] | None

__all__ = ["backward", "grad"]


def backward(
    tensors: Tensors,
    grad_tensors: Seeds = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    grad_variables: Seeds = None,
    inputs: Tensors | None = None,
) -> None:
    """Adds the gradients of `tensors` to `.grad` of the leaves on which they depend.

    Args:
        tensors: one or several; their gradients are summed.
        grad_tensors: gradients at `tensors`, each of its tensor's shape; None stands for ones, for
            tensors of one element.
        retain_graph: keep the memory that the pass frees (default: `create_graph`).
        create_graph: record the pass itself, for higher derivatives.
        grad_variables: PyTorch's old name of `grad_tensors`.
        inputs: only these get gradients.

    Raises:
        InvalidUse: `inputs` is empty, or both names of the seeds are given.
        NotDifferentiable: a tensor does not require a gradient.
        ShapeError: a seed has another shape, or is missing for several elements.
    """
    if grad_variables is not None:
        if grad_tensors is not None:
            raise InvalidUse(
                "`grad_tensors` and `grad_variables` (deprecated) arguments both passed to "
                "`backward()`. Please only use `grad_tensors`."
            )
        grad_tensors = grad_variables
    targets = None if inputs is None else _listed(inputs)
    if targets is not None and not targets:
        raise InvalidUse("`inputs` argument to `backward()` cannot be empty.")
    roots = _listed(tensors)
    keep = create_graph if retain_graph is None else retain_graph
    _core.backward(roots, _seeds(roots, grad_tensors), targets or [], keep, create_graph)


def grad(
    outputs: Tensors,
    inputs: Tensors,
    grad_outputs: Seeds = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    only_inputs: bool = True,
    allow_unused: bool | None = None,
    is_grads_batched: bool = False,
    materialize_grads: bool = False,
) -> tuple[Tensor | None, ...]:
    """Gradients of `outputs` with respect to `inputs`; no `.grad` changes.

    Args:
        outputs: one tensor or several; their gradients are summed.
        inputs: the tensors, leaves or not.
        grad_outputs: gradients at `outputs`, each of its output's shape; None stands for ones, for
            outputs of one element.
        retain_graph: keep the memory that the backward pass frees (default: `create_graph`).
        create_graph: record the backward pass itself, for higher derivatives.
        only_inputs: accepted without effect: no other gradients are computed.
        allow_unused: give None for an input on which no output depends.
        is_grads_batched: `grad_outputs` hold several gradients of an output each, along a first
            dimension, which the results have too; each takes a backward pass.
        materialize_grads: give zeros for an input on which no output depends.

    Raises:
        InvalidUse: `inputs` is empty.
        NotDifferentiable: an input is unused without `allow_unused`, or requires no gradient.
        ShapeError: batches of gradients have different sizes, or no rows.
        InvalidValue: zeros are asked for, while unused inputs are refused.
    """
    del only_inputs
    if materialize_grads and allow_unused is False:
        raise InvalidValue(
            "Expected allow_unused to be True or not passed when materialize_grads=True, "
            "but got: allow_unused=False."
        )
    roots, targets = _listed(outputs), _listed(inputs)
    if not targets:
        raise InvalidUse("`inputs` argument to `grad()` cannot be empty.")
    keep = create_graph if retain_graph is None else retain_graph
    seeds = _seeds(roots, grad_outputs)
    if is_grads_batched:
        gradients = _batched(roots, seeds, targets, keep, create_graph)
    else:
        gradients = _core.grad(roots, seeds, targets, keep, create_graph)
    if materialize_grads:
        pairs = zip(gradients, targets, strict=True)
        gradients = [zeros_like(x) if item is None else item for item, x in pairs]
    if not allow_unused:
        for place, item in enumerate(gradients):
            if item is None:
                raise NotDifferentiable(
                    f"The differentiated Tensor at index {place} appears to not have been used in "
                    "the graph. Set allow_unused=True if this is the desired behavior."
                )
    return tuple(gradients)


def _batched(
    roots: list[Tensor],
    seeds: list[Tensor | None],
    targets: list[Tensor],
    keep: bool,
    create_graph: bool,
) -> list[Tensor | None]:
    """The gradients of `_core.grad` for each row of the seeds, stacked."""
    rows: list[Tensor] = []
    for place, (root, seed) in enumerate(zip(roots, seeds, strict=True)):
        if seed is None or seed.ndim == 0 or seed.shape[1:] != root.shape:
            shape = None if seed is None else list(seed.shape[1:])
            raise ShapeError(
                "If `is_grads_batched=True`, we interpret the first dimension of each grad_output "
                "as the batch dimension. The sizes of the remaining dimensions are expected to "
                "match the shape of corresponding output, but a mismatch was detected: "
                f"grad_output[{place}] has a shape of {shape} and output[{place}] has a shape of "
                f"{list(root.shape)}"
            )
        rows.append(seed)
    sizes = [seed.shape[0] for seed in rows]
    if not sizes or set(sizes) != {sizes[0]} or sizes[0] == 0:
        raise ShapeError(
            "grad: Expected all batches of gradients to have the same size of 1 or more, "
            f"got sizes {sizes}"
        )
    last = sizes[0] - 1
    passes = [
        _core.grad(roots, [seed[i] for seed in rows], targets, keep or i < last, create_graph)
        for i in range(sizes[0])
    ]
    columns = [
        [item for item in of_one if item is not None] for of_one in zip(*passes, strict=True)
    ]
    return [stack(column) if column else None for column in columns]  # unused: always None


def _listed(tensors: Tensors) -> list[Tensor]:
    return [tensors] if isinstance(tensors, Tensor) else list(tensors)


def _seeds(roots: Sequence[Tensor], given: Seeds) -> list[Tensor | None]:
    """A gradient for each root; None stands for ones."""
    if given is None:
        return [None] * len(roots)
    seeds: list[Tensor | None] = [given] if isinstance(given, Tensor) else list(given)
    if len(seeds) != len(roots):
        raise ShapeError(f"got {len(roots)} tensors and {len(seeds)} gradients")
    return seeds
