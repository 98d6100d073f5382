"""Steps of PyTorch's optimizers as GT's: one instruction for a parameter in place of a dozen.

`torch.optim` has a function over lists of tensors, which it uses for the device `mux`, and
operators for `fused=True`. Both end up here. Step counts stay in the program while nothing else can
have written them; otherwise one read gets all of them.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch.autograd.graph import increment_version
from torch.utils.weak import WeakTensorKeyDictionary

import gt
from gt import _core
from gt._core import Tensor
from gt.torch.tensor import MuxTensor, of_value

Tensors = Sequence[Any]
Step = Callable[..., bool]

# Step counts on the device `mux`: the number, and the tensor's version when it was known.
_known: Any = WeakTensorKeyDictionary()


def install() -> None:
    """Installs the steps before those of PyTorch's optimizers."""
    for module, name, step in (
        ("adam", "_multi_tensor_adam", _adam),
        ("adam", "_fused_adam", _fused_adam),
        ("sgd", "_multi_tensor_sgd", _sgd),
    ):
        owner: Any = importlib.import_module(f"torch.optim.{module}")
        setattr(owner, name, _first(step, getattr(owner, name)))


def _first(step: Step, function: Callable[..., None]) -> Callable[..., None]:
    """`step`, or `function` if `step` returns that it did nothing."""

    @functools.wraps(function)
    def stepped(*args: Any, **kwargs: Any) -> None:  # noqa: ANN401 - as the function's
        if not step(*args, **kwargs):
            function(*args, **kwargs)

    return stepped


def _fit(*columns: Tensors) -> bool:
    """True if all are floats on `mux` and each parameter's tensors have one dtype."""
    for row in zip(*columns, strict=True):
        dtype = row[0].dtype
        if not dtype.is_floating_point:
            return False
        for x in row:
            if type(x) is not MuxTensor or x.dtype != dtype:
                return False
    return bool(columns[0])


def _values(tensors: Tensors) -> list[Tensor]:
    return [x.value for x in tensors]


def _written(*columns: Tensors) -> None:
    """Marks tensors as written, so that autograd refuses its saved ones."""
    for column in columns:
        increment_version(column)


def _adam(
    params: Tensors,
    grads: Tensors,
    exp_avgs: Tensors,
    exp_avg_sqs: Tensors,
    max_exp_avg_sqs: Tensors,
    state_steps: Tensors,
    *scaling: object,
    **options: Any,  # noqa: ANN401 - the optimizer's
) -> bool:
    largest = [max_exp_avg_sqs] if options["amsgrad"] else []
    columns = (params, grads, exp_avgs, exp_avg_sqs, *largest)
    names = ("lr", "beta1", "beta2")
    are_numbers = not any(isinstance(options[name], torch.Tensor) for name in names)
    is_plain = not (
        options["capturable"] or options["differentiable"] or _is_scaled(scaling, options)
    )
    if not (are_numbers and is_plain and _fit(*columns)):
        return False
    if any(type(x) is MuxTensor for x in state_steps):
        return False
    torch._foreach_add_(list(state_steps), torch.tensor(1.0), alpha=1.0)
    _adamw_step(columns, [int(x.item()) for x in state_steps], options)
    return True


def _is_scaled(scaling: Sequence[object], options: Mapping[str, object]) -> bool:
    named = (options.get("grad_scale"), options.get("found_inf"))
    return any(x is not None for x in (*scaling, *named))


def _adamw_step(columns: Sequence[Tensors], steps: list[int], options: Mapping[str, Any]) -> None:
    """One step with the numbers in `options`; the columns are parameters, gradients, moments."""
    params, grads, exp_avgs, exp_avg_sqs, *largest = map(_values, columns)
    _core.adamw_step(
        params,
        grads,
        exp_avgs,
        exp_avg_sqs,
        largest[0] if largest else None,
        steps,
        lr=float(options["lr"]),
        beta1=float(options["beta1"]),
        beta2=float(options["beta2"]),
        eps=float(options["eps"]),
        weight_decay=float(options["weight_decay"]),
        decoupled=bool(options["decoupled_weight_decay"]),
        maximize=bool(options["maximize"]),
    )
    _written(columns[0], *columns[2:])


def _fused_adam(
    params: Tensors,
    grads: Tensors,
    exp_avgs: Tensors,
    exp_avg_sqs: Tensors,
    max_exp_avg_sqs: Tensors,
    state_steps: Tensors,
    *scaling: object,
    **options: Any,  # noqa: ANN401 - the optimizer's
) -> bool:
    """A step with its count on the device; scaled gradients go the way of the operator."""
    largest = [max_exp_avg_sqs] if options["amsgrad"] else []
    columns = (params, grads, exp_avgs, exp_avg_sqs, *largest)
    if options["differentiable"] or _is_scaled(scaling, options):
        return False
    if not (_fit(*columns) and _fit(state_steps)):
        return False
    steps = [step + 1 for step in _steps_of(state_steps)]
    torch._foreach_add_(list(state_steps), 1)
    for x, step in zip(state_steps, steps, strict=True):
        _known[x] = (step, x._version)  # noqa: SLF001
    _adamw_step(columns, steps, options)
    return True


def _steps_of(tensors: Tensors) -> list[int]:
    """The numbers in tensors of one element."""
    entries = [_known.get(x) for x in tensors]
    pairs = zip(tensors, entries, strict=True)
    if all(entry is not None and entry[1] == x._version for x, entry in pairs):  # noqa: SLF001
        return [entry[0] for entry in entries]
    return [int(number) for number in _read(tensors)]


def _read(tensors: Tensors) -> list[float]:
    """The numbers, by one answer of a worker."""
    if not all(type(x) is MuxTensor for x in tensors):
        return [float(x) for x in tensors]
    wide = [x.value.reshape(()).to(_core.float64) for x in tensors]
    numbers: list[float] = gt.stack(wide).tolist()
    return numbers


def _sgd(
    params: Tensors,
    grads: Tensors,
    momentum_buffer_list: list[Any],
    *scaling: object,
    **options: Any,  # noqa: ANN401 - the optimizer's
) -> bool:
    if isinstance(options["lr"], torch.Tensor) or _is_scaled(scaling, options):
        return False
    buffers = [x for x in momentum_buffer_list if x is not None]
    if not (_fit(params, grads) and (not buffers or _fit(buffers))):
        return False
    before = momentum_buffer_list or [None] * len(params)  # there are none without momentum
    if any(x.dtype != p.dtype for x, p in zip(before, params, strict=True) if x is not None):
        return False
    results = _sgd_step(params, grads, before, options)
    for place, x in enumerate(momentum_buffer_list):
        buffer = results[place]
        if x is None and buffer is not None:
            momentum_buffer_list[place] = of_value(buffer)
    _written(params, buffers)
    return True


def _sgd_step(
    params: Tensors, grads: Tensors, buffers: Tensors, options: Mapping[str, Any]
) -> list[Tensor | None]:
    return _core.sgd_step(
        _values(params),
        _values(grads),
        [None if x is None else x.value for x in buffers],
        lr=float(options["lr"]),
        momentum=float(options["momentum"]),
        dampening=float(options["dampening"]),
        weight_decay=float(options["weight_decay"]),
        nesterov=bool(options["nesterov"]),
        maximize=bool(options["maximize"]),
    )


def _unscaled(grads: Tensors, options: Mapping[str, Any]) -> bool:
    """Divides the gradients by a scaler's factor; True if none is infinite."""
    found_inf, scale = options.get("found_inf"), options.get("grad_scale")
    if found_inf is not None and float(found_inf):
        return False
    if scale is not None:
        for grad in grads:
            grad.div_(scale)
    return True


def _adam_operator(*, decoupled: bool) -> Callable[..., None]:
    """`aten::_fused_adam_` and `aten::_fused_adamw_`."""

    def run(args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        *columns, steps = args
        if not kwargs["amsgrad"]:
            columns.pop()
        if _unscaled(columns[1], kwargs):
            numbers = [int(number) for number in _read(steps)]
            _adamw_step(columns, numbers, {**kwargs, "decoupled_weight_decay": decoupled})

    return run


def _sgd_operator(args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
    """`aten::_fused_sgd_`: the buffers are uninitialised in a first step."""
    params, grads, buffers = args
    if not _unscaled(grads, kwargs):
        return
    before: Tensors = buffers or [None] * len(params)
    if kwargs["is_first_step"]:
        before = [None] * len(params)
    results = _sgd_step(params, grads, before, kwargs)
    for x, buffer in zip(buffers, results, strict=False):
        if kwargs["is_first_step"]:
            x.value.copy_(buffer)
    _written(params, buffers)


def _adagrad_operator(args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
    """`aten::_fused_adagrad_`."""
    params, grads, sums, steps = args
    if not _unscaled(grads, kwargs):
        return
    rate, decay = float(kwargs["lr"]), kwargs["lr_decay"]
    for param, grad, total, step in zip(params, grads, sums, _read(steps), strict=True):
        change = -grad.value if kwargs["maximize"] else grad.value
        if kwargs["weight_decay"]:
            change = change.add(param.value, alpha=kwargs["weight_decay"])
        total.value.addcmul_(change, change)
        root = total.value.sqrt().add_(kwargs["eps"])
        param.value.addcdiv_(change, root, value=-rate / (1 + (step - 1) * decay))
    _written(params, sums)


WHOLE: dict[str, Callable[..., None]] = {
    f"{name}{overload}": run
    for name, run in (
        ("_fused_adam_", _adam_operator(decoupled=False)),
        ("_fused_adamw_", _adam_operator(decoupled=True)),
        ("_fused_sgd_", _sgd_operator),
        ("_fused_adagrad_", _adagrad_operator),
    )
    for overload in ("", ".tensor_lr")
}
