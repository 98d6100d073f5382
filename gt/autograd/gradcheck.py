"""`gradcheck`: gradients of a function against differences of its values, in float64."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

import gt
from gt._core import Tensor
from gt.autograd.grad_mode import no_grad
from gt.autograd.passes import grad
from gt.errors import InvalidValue, NotSupported

Argument: TypeAlias = Any  # a tensor, or what the function takes beside
Matrix: TypeAlias = npt.NDArray[np.float64]

__all__ = ["GradcheckError", "gradcheck", "gradgradcheck"]


class GradcheckError(RuntimeError):
    """Two ways of computing a gradient disagree."""


def gradcheck(
    func: Callable[..., Any],
    inputs: Tensor | Sequence[Any],
    *,
    eps: float = 1e-6,
    atol: float = 1e-5,
    rtol: float = 1e-3,
    raise_exception: bool = True,
    nondet_tol: float = 0.0,
    check_undefined_grad: bool = True,
    check_grad_dtypes: bool = False,
    check_batched_grad: bool = False,
    check_batched_forward_grad: bool = False,
    check_forward_ad: bool = False,
    check_backward_ad: bool = True,
    fast_mode: bool = False,
    masked: bool | None = None,
) -> bool:
    """Check the gradients of `func` against finite differences of its values.

    Args:
        func: takes the inputs, returns a tensor or a tuple of tensors.
        inputs: tensors, float64 where a gradient is required, and other arguments.
        eps: change of an element, in both directions.
        atol: absolute tolerance.
        rtol: relative tolerance.
        raise_exception: raise where they differ; else return False.
        nondet_tol: tolerance between two passes.
        check_undefined_grad: accepted without effect.
        check_grad_dtypes: raise where a gradient has another dtype than its input.
        check_batched_grad: not supported.
        check_batched_forward_grad: not supported.
        check_forward_ad: not supported.
        check_backward_ad: False compares nothing.
        fast_mode: accepted without effect: every element is compared.
        masked: accepted without effect: there are no sparse tensors.

    Raises:
        GradcheckError: they differ by more than the tolerances.
        InvalidValue: no input requires a gradient.
        NotSupported: forward mode or batches of gradients are to be checked.
    """
    del check_undefined_grad, fast_mode, masked
    if check_batched_grad or check_batched_forward_grad or check_forward_ad:
        raise NotSupported("gradcheck: forward mode and batches of gradients; leave them out")
    listed = (inputs,) if isinstance(inputs, Tensor) else tuple(inputs)
    wanted = [x for x in listed if isinstance(x, Tensor) and x.requires_grad]
    if not wanted:
        raise InvalidValue(
            "gradcheck expects at least one input tensor to require gradient, but none of the them "
            "have requires_grad=True."
        )
    if not check_backward_ad:
        return True
    try:
        for place in range(len(_outputs(func, listed))):
            _compare(
                func,
                listed,
                place,
                tolerances=(atol, rtol, nondet_tol),
                eps=eps,
                check_dtypes=check_grad_dtypes,
            )
    except GradcheckError:
        if raise_exception:
            raise
        return False
    return True


def gradgradcheck(
    func: Callable[..., Any],
    inputs: Tensor | Sequence[Any],
    grad_outputs: Tensor | Sequence[Tensor] | None = None,
    *,
    eps: float = 1e-6,
    atol: float = 1e-5,
    rtol: float = 1e-3,
    gen_non_contig_grad_outputs: bool = False,
    raise_exception: bool = True,
    nondet_tol: float = 0.0,
    check_undefined_grad: bool = True,
    check_grad_dtypes: bool = False,
    check_batched_grad: bool = False,
    check_fwd_over_rev: bool = False,
    check_rev_over_rev: bool = True,
    fast_mode: bool = False,
    masked: bool = False,
) -> bool:
    """Check second gradients of `func` against finite differences of its first gradients.

    Args:
        func: takes the inputs, returns a tensor or a tuple of tensors.
        inputs: tensors and other arguments, as in gradcheck.
        grad_outputs: gradients at the outputs; random ones if None.
        eps: change of an element, in both directions.
        atol: absolute tolerance.
        rtol: relative tolerance.
        gen_non_contig_grad_outputs: accepted without effect.
        raise_exception: raise where they differ; else return False.
        nondet_tol: tolerance between two passes.
        check_undefined_grad: accepted without effect.
        check_grad_dtypes: raise where a gradient has another dtype than its input.
        check_batched_grad: not supported.
        check_fwd_over_rev: not supported.
        check_rev_over_rev: False compares nothing.
        fast_mode: accepted without effect: every element is compared.
        masked: accepted without effect.

    Raises:
        GradcheckError: they differ by more than the tolerances.
        NotSupported: forward mode or batches of gradients are to be checked.
    """
    del gen_non_contig_grad_outputs, check_undefined_grad, masked
    listed = (inputs,) if isinstance(inputs, Tensor) else tuple(inputs)
    outputs = _outputs(func, listed)
    seeds = _seeds(outputs, grad_outputs)
    count = len(seeds)

    def derivative(*arguments: Argument) -> tuple[Tensor, ...]:
        points, arriving = arguments[:-count], arguments[-count:]
        wanted = [x for x in points if isinstance(x, Tensor) and x.requires_grad]
        grads = grad(_outputs(func, points), wanted, arriving, create_graph=True, allow_unused=True)
        return tuple(x for x in grads if x is not None and x.requires_grad)

    return gradcheck(
        derivative,
        (*listed, *seeds),
        eps=eps,
        atol=atol,
        rtol=rtol,
        raise_exception=raise_exception,
        nondet_tol=nondet_tol,
        check_grad_dtypes=check_grad_dtypes,
        check_batched_grad=check_batched_grad,
        check_forward_ad=check_fwd_over_rev,
        check_backward_ad=check_rev_over_rev,
        fast_mode=fast_mode,
    )


def _seeds(outputs: Sequence[Tensor], given: Tensor | Sequence[Tensor] | None) -> list[Tensor]:
    """Gradients at the outputs; random ones leave the generator's state unchanged."""
    if given is not None:
        listed = (given,) if isinstance(given, Tensor) else tuple(given)
        return [x.detach().requires_grad_() for x in listed]
    state = gt.get_rng_state()
    seeds = [gt.rand(x.shape, dtype=x.dtype).add(0.5).requires_grad_() for x in outputs]
    gt.set_rng_state(state)
    return seeds


def _outputs(func: Callable[..., Any], inputs: Sequence[Any]) -> list[Tensor]:
    """The outputs that have gradients."""
    returned = func(*inputs)
    listed = returned if isinstance(returned, tuple | list) else (returned,)
    return [x for x in listed if isinstance(x, Tensor) and x.is_floating_point()]


def _compare(
    func: Callable[..., Any],
    inputs: tuple[Any, ...],
    place: int,
    *,
    tolerances: tuple[float, float, float],
    eps: float,
    check_dtypes: bool,
) -> None:
    atol, rtol, nondet_tol = tolerances
    first = _by_backward(func, inputs, place, check_dtypes=check_dtypes)
    again = _by_backward(func, inputs, place, check_dtypes=False)
    for at, (x, y) in enumerate(zip(first, again, strict=True)):
        if np.abs(x - y).max(initial=0.0) > nondet_tol:
            raise GradcheckError(
                "Backward is not reentrant, i.e., running backward with same input and grad_output "
                f"multiple times gives different values (input {at})."
            )
    for at, (analytical, numerical) in enumerate(
        zip(first, _by_differences(func, inputs, place, eps), strict=True)
    ):
        if not np.allclose(analytical, numerical, rtol=rtol, atol=atol):
            raise GradcheckError(
                f"Jacobian mismatch for output {place} with respect to input {at},\n"
                f"numerical:{numerical}\nanalytical:{analytical}\n"
            )


def _by_backward(
    func: Callable[..., Any], inputs: tuple[Any, ...], place: int, *, check_dtypes: bool
) -> list[Matrix]:
    """Jacobians by backward, one for each input that requires a gradient: a row for each of its
    elements.
    """
    wanted = [x for x in inputs if isinstance(x, Tensor) and x.requires_grad]
    flat = _outputs(func, inputs)[place].reshape(-1)
    columns: list[list[Matrix]] = [[] for _ in wanted]
    for element in range(flat.numel()):
        gradients: Sequence[Tensor | None] = [None] * len(wanted)
        if flat.requires_grad:
            gradients = grad(flat[element], wanted, retain_graph=True, allow_unused=True)
        for column, x, gradient in zip(columns, wanted, gradients, strict=True):
            if gradient is not None and check_dtypes and gradient.dtype != x.dtype:
                raise GradcheckError(
                    f"Gradient has dtype mismatch: {gradient.dtype} instead of {x.dtype}"
                )
            column.append(np.zeros(x.numel()) if gradient is None else _array(gradient).reshape(-1))
    return [
        np.stack(column, 1) if column else np.zeros((x.numel(), 0))
        for column, x in zip(columns, wanted, strict=True)
    ]


def _by_differences(
    func: Callable[..., Any], inputs: tuple[Any, ...], place: int, eps: float
) -> list[Matrix]:
    """Jacobians as `_by_backward` returns them, by central differences."""
    jacobians = []
    for at, x in enumerate(inputs):
        if not isinstance(x, Tensor) or not x.requires_grad:
            continue
        values = _array(x)
        rows = []
        for element in range(values.size):
            ends = []
            for step in (eps, -eps):
                moved = values.copy()
                moved.reshape(-1)[element] += step
                point = gt.tensor(moved, dtype=x.dtype).requires_grad_()
                arguments = (*inputs[:at], point, *inputs[at + 1 :])
                ends.append(_array(_outputs(func, arguments)[place]).reshape(-1))
            rows.append((ends[0] - ends[1]) / (2 * eps))
        size = _outputs(func, inputs)[place].numel()
        jacobians.append(np.stack(rows) if rows else np.zeros((0, size)))
    return jacobians


def _array(x: Tensor) -> Matrix:
    with no_grad():
        return np.asarray(x.detach().double().numpy(), np.float64)


def __dir__() -> list[str]:
    """Lists the public names; imports for the module's own use are left out."""
    return __all__
