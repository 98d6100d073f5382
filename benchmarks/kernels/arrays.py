"""Loops of gt._kernels over arrays beside PyTorch's: time, GB/s and the ratio, in one run.

    taskset -c 0 python benchmarks/kernels/arrays.py [--cpu-time]

One thread a side, on the same memory: numpy arrays, and PyTorch's views of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial

import beside_torch
import numpy as np
import numpy.typing as npt
import torch
from beside_torch import Case, run

from gt import _kernels

_Array = npt.NDArray[np.float32]

_ELEMENTS = (2**10, 2**18)
_ROWS = ((64, 10), (4096, 64), (512, 512))  # rows, columns
_CHANNELS = ((64, 16, 14), (64, 32, 28), (16, 256, 7), (64, 128, 1))  # batch, channels, side
_PARAMETERS = (2**12, 2**20)

_aten = torch.ops.aten
_FUNCTIONS = {  # of x, into out
    "relu": lambda x, out: torch.clamp_min(x, 0, out=out),
    "sigmoid": lambda x, out: torch.sigmoid(x, out=out),
    "tanh": lambda x, out: torch.tanh(x, out=out),
    "erf": lambda x, out: torch.erf(x, out=out),
    "exp": lambda x, out: torch.exp(x, out=out),
    "silu": lambda x, out: _aten.silu.out(x, out=out),
    "gelu": lambda x, out: _aten.gelu.out(x, out=out),
    "gelu_tanh": lambda x, out: _aten.gelu.out(x, approximate="tanh", out=out),
    "sign": lambda x, out: torch.sign(x, out=out),
    "rsqrt": lambda x, out: torch.rsqrt(x, out=out),
}
_GRADIENTS = {  # of the result's gradient and the operand or result, into out
    "relu": lambda g, kept, out: _aten.threshold_backward.grad_input(g, kept, 0, grad_input=out),
    "sigmoid": lambda g, kept, out: _aten.sigmoid_backward.grad_input(g, kept, grad_input=out),
    "tanh": lambda g, kept, out: _aten.tanh_backward.grad_input(g, kept, grad_input=out),
    "silu": lambda g, kept, out: _aten.silu_backward.grad_input(g, kept, grad_input=out),
    "gelu": lambda g, kept, out: _aten.gelu_backward.grad_input(g, kept, grad_input=out),
    "gelu_tanh": lambda g, kept, out: _aten.gelu_backward.grad_input(
        g, kept, approximate="tanh", grad_input=out
    ),
}


def _random(*shape: int) -> _Array:
    return np.random.default_rng(0).standard_normal(shape, np.float32)


def _case(
    name: str, moved: int, torch_call: Callable[[], object], kernel: str, *arguments: object
) -> Case:
    """A case of a kernel whose first argument is an array; `moved` like it are read or written."""
    first = arguments[0]
    assert isinstance(first, np.ndarray)
    return Case(name, moved * first.nbytes, torch_call, lambda _: run(kernel, *arguments), "B")


def _with_approximation(name: str) -> tuple[str, tuple[str, ...]]:
    """The kernel, and gelu's approximation."""
    is_gelu = name.startswith("gelu")
    return (
        name.removesuffix("_tanh"),
        ("tanh" if name.endswith("tanh") else "none",) if is_gelu else (),
    )


def _of_each_element(count: int) -> Iterator[Case]:
    x, grad, out = _random(count), _random(count), np.empty(count, np.float32)
    t_x, t_grad, t_out = (torch.from_numpy(one) for one in (x, grad, out))
    for name, function in _FUNCTIONS.items():
        kernel, rest = _with_approximation(name)
        yield _case(f"{name} {count}", 2, partial(function, t_x, t_out), kernel, x, *rest)
    for name, gradient in _GRADIENTS.items():
        kernel, rest = _with_approximation(name)
        torch_call = partial(gradient, t_grad, t_x, t_out)
        title = f"gradient of {name} {count}"
        yield _case(title, 3, torch_call, f"{kernel}_backward", grad, x, *rest)


def _of_numbers_and_conditions(count: int) -> Iterator[Case]:
    x, y, out = _random(count), _random(count), np.empty(count, np.float32)
    condition = x > y
    t_x, t_y, t_out, t_condition = (torch.from_numpy(one) for one in (x, y, out, condition))
    calls: dict[str, tuple[Callable[[], object], Callable[[], object]]] = {
        "leaky_relu": (
            lambda: _aten.leaky_relu.out(t_x, 0.1, out=t_out),
            lambda: run("leaky_relu", x, 0.1),
        ),
        "softplus": (
            lambda: _aten.softplus.out(t_x, out=t_out),
            lambda: run("softplus", x, 1.0, 20.0),
        ),
        "clamp": (
            lambda: torch.clamp(t_x, -1, 1, out=t_out),
            lambda: run("clamp", x, -1, 1),
        ),
        "where": (
            lambda: torch.where(t_condition, t_x, t_y, out=t_out),
            lambda: _kernels.chain(out, [("where", condition, x, y)]),
        ),
    }
    for name, (torch_call, own) in calls.items():
        yield Case(f"{name} {count}", 2 * x.nbytes, torch_call, lambda _, f=own: f(), "B")


def _softmax(rows: int, columns: int) -> Iterator[Case]:
    x, grad, out = (_random(rows, columns) for _ in range(3))
    t_x, t_grad, t_out = (torch.from_numpy(one) for one in (x, grad, out))
    forwards = {"softmax": _aten._softmax, "log_softmax": _aten._log_softmax}
    backwards = {
        "softmax": partial(_aten._softmax_backward_data.out, grad_input=t_out),
        "log_softmax": partial(_aten._log_softmax_backward_data.out, out=t_out),
    }
    for name, forward in forwards.items():
        title = f"{name} {rows} x {columns}"
        t_y = forward(t_x, -1, False)
        torch_call = partial(forward.out, t_x, -1, False, out=t_out)
        yield _case(title, 2, torch_call, name, x, -1, None)
        torch_call = partial(backwards[name], t_grad, t_y, -1, torch.float32)
        own = f"{name}_backward"
        yield _case(f"gradient of {title}", 3, torch_call, own, grad, t_y.numpy(), -1)


def _layer_norm(rows: int, columns: int) -> Iterator[Case]:
    """Both sides allocate their results."""
    x, grad = _random(rows, columns), _random(rows, columns)
    weight, bias = _random(columns), _random(columns)
    t_x, t_grad, t_weight, t_bias = (torch.from_numpy(one) for one in (x, grad, weight, bias))

    def own_forward(_: int) -> Sequence[_Array]:
        return run("layer_norm", x, weight, bias, (columns,), 1e-5)

    _, mean, rstd = own_forward(1)
    t_mean, t_rstd = torch.from_numpy(mean), torch.from_numpy(rstd)

    def own_backward(_: int) -> Sequence[_Array]:
        return run("layer_norm_backward", grad, x, mean, rstd, weight, (columns,))

    yield Case(
        f"layer norm {rows} x {columns}",
        2 * x.nbytes,
        lambda: _aten.native_layer_norm(t_x, [columns], t_weight, t_bias, 1e-5),
        own_forward,
        "B",
    )
    yield Case(
        f"gradient of layer norm {rows} x {columns}",
        3 * x.nbytes,
        lambda: _aten.native_layer_norm_backward(
            t_grad, t_x, [columns], t_mean, t_rstd, t_weight, t_bias, [True] * 3
        ),
        own_backward,
        "B",
    )


def _rms_norm(rows: int, columns: int) -> Iterator[Case]:
    """Both sides allocate their results; PyTorch's gradient also runs its forward pass."""
    x, grad, weight = _random(rows, columns), _random(rows, columns), _random(columns)
    t_x, t_weight = torch.from_numpy(x), torch.from_numpy(weight)
    with torch.inference_mode(False):
        t_grad = torch.from_numpy(grad)
        leaves = [torch.from_numpy(one.copy()).requires_grad_() for one in (x, weight)]

    def own_forward(_: int) -> Sequence[object]:
        return run("rms_norm", x, weight, (columns,), 1e-6)

    def own_both(threads: int) -> Sequence[object]:
        _, rstd = own_forward(threads)
        return run("rms_norm_backward", grad, x, rstd, weight, (columns,))

    def torch_both() -> object:
        with torch.inference_mode(False), torch.enable_grad():
            y = torch.nn.functional.rms_norm(leaves[0], (columns,), leaves[1], 1e-6)
            return torch.autograd.grad(y, leaves, t_grad)

    title = f"RMS norm {rows} x {columns}"
    torch_call = partial(torch.nn.functional.rms_norm, t_x, (columns,), t_weight, 1e-6)
    yield Case(title, 2 * x.nbytes, torch_call, own_forward, "B")
    yield Case(f"{title} and gradient", 5 * x.nbytes, torch_both, own_both, "B")


def _batch_norm(batch: int, channels: int, side: int) -> Iterator[Case]:
    """PyTorch's gradient also runs its forward pass, like that of `_rms_norm`."""
    size = (batch, channels, side, side) if side > 1 else (batch, channels)
    x, grad, weight = _random(*size), _random(*size), _random(channels)
    t_x, t_weight = torch.from_numpy(x), torch.from_numpy(weight)
    with torch.inference_mode(False):
        t_grad = torch.from_numpy(grad)
        leaves = [torch.from_numpy(one.copy()).requires_grad_() for one in (x, weight, weight)]

    def own_forward(_: int) -> Sequence[object]:
        return run("batch_norm", x, weight, weight, 1e-5)

    def own_both(threads: int) -> Sequence[object]:
        _, mean, rstd, _ = own_forward(threads)
        return run("batch_norm_backward", grad, x, mean, rstd, weight)

    def of(values: torch.Tensor, *parameters: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.batch_norm(values, None, None, *parameters, training=True)

    def torch_both() -> object:
        with torch.inference_mode(False), torch.enable_grad():
            return torch.autograd.grad(of(*leaves), leaves, t_grad)

    title = f"batch norm {' x '.join(map(str, size))}"
    yield Case(title, 2 * x.nbytes, partial(of, t_x, t_weight, t_weight), own_forward, "B")
    yield Case(f"{title} and gradient", 5 * x.nbytes, torch_both, own_both, "B")


def _reductions(rows: int, columns: int) -> Iterator[Case]:
    x, by_row, by_column = _random(rows, columns), _random(rows), _random(columns)
    t_x = torch.from_numpy(x)
    functions: dict[str, Callable[..., object]] = {"sum": torch.sum, "amax": torch.amax}
    for name, function in functions.items():
        rest = (None,) if name == "sum" else ()
        for dim, out in ((1, by_row), (0, by_column)):
            torch_call = partial(function, t_x, (dim,), out=torch.from_numpy(out))
            title = f"{name} over dim {dim} of {rows} x {columns}"
            yield _case(title, 1, torch_call, name, x, dim, False, *rest)


def _along_dims(rows: int, columns: int) -> Iterator[Case]:
    """Running sums, indices of maxima, any and all over whole rows, and variances."""
    x, out = _random(rows, columns), _random(rows, columns)
    ones, t_x = np.ones_like(x), torch.from_numpy(x)
    t_ones, t_out = torch.from_numpy(ones), torch.from_numpy(out)
    for dim, count in ((1, columns), (0, rows)):
        shape = x.size // count
        places, truth = np.empty(shape, np.int64), np.empty(shape, np.bool_)
        spreads = np.empty(shape, np.float32)
        calls: dict[str, tuple[Callable[[], object], Callable[[], object]]] = {
            "cumsum": (
                partial(torch.cumsum, t_x, dim, out=t_out),
                partial(run, "cumsum", x, dim, None),
            ),
            "argmax": (
                partial(torch.argmax, t_x, dim, out=torch.from_numpy(places)),
                partial(run, "argmax", x, dim, False),
            ),
            "all": (
                partial(torch.all, t_ones, dim, out=torch.from_numpy(truth)),
                partial(run, "all", ones, dim, False),
            ),
            "var": (
                partial(torch.var, t_x, dim, out=torch.from_numpy(spreads)),
                partial(run, "var", x, dim, 1.0, False),
            ),
        }
        for name, (torch_call, own) in calls.items():
            title = f"{name} over dim {dim} of {rows} x {columns}"
            moved = x.nbytes * (2 if name == "cumsum" else 1)
            yield Case(title, moved, torch_call, lambda _, f=own: f(), "B")
    own = partial(run, "std", x, None, 1.0, False)
    yield Case(f"std of all {rows} x {columns}", x.nbytes, t_x.std, lambda _, f=own: f(), "B")


def _at_places(rows: int, columns: int) -> Iterator[Case]:
    """Gathers and scatters of elements and rows, and a transposed copy."""
    x, source, out = (_random(rows, columns) for _ in range(3))
    t_x, t_source, t_out = (torch.from_numpy(one) for one in (x, source, out))
    random = np.random.default_rng(0)
    of_row, row = random.integers(0, columns, (rows, columns)), random.integers(0, rows, rows)
    t_of_row, t_row = torch.from_numpy(of_row), torch.from_numpy(row)
    t_turned = torch.empty(columns, rows)
    title, moved = f"{rows} x {columns}", 2 * x.nbytes
    calls: dict[str, tuple[Callable[[], object], Callable[[], object]]] = {
        "gather": (
            lambda: torch.gather(t_x, 1, t_of_row, out=t_out),
            lambda: run("gather", x, of_row, 1),
        ),
        "scatter_add": (
            lambda: t_out.scatter_add_(1, t_of_row, t_source),
            lambda: run("scatter_add", out, of_row, source, 1),
        ),
        "rows of": (
            lambda: torch.index_select(t_x, 0, t_row, out=t_out),
            lambda: run("index_select", x, row, 0),
        ),
        "transposed copy of": (
            lambda: t_turned.copy_(t_x.T),
            lambda: run("row_major", x.T),
        ),
    }
    for name, (torch_call, own) in calls.items():
        yield Case(f"{name} {title}", moved, torch_call, lambda _, f=own: f(), "B")


def _cross_entropy(rows: int, columns: int) -> Iterator[Case]:
    x = _random(rows, columns)
    target = np.random.default_rng(0).integers(0, columns, rows)
    t_x, t_target = torch.from_numpy(x), torch.from_numpy(target)
    yield Case(
        f"cross-entropy {rows} x {columns}",
        2 * x.nbytes,
        lambda: torch.nn.functional.cross_entropy(t_x, t_target, reduction="none"),
        lambda _: run("cross_entropy", x, target, None, "none", -100, 0.0),
        "B",
    )


def _steps(count: int) -> Iterator[Case]:
    """AdamW, and SGD with momentum, over one parameter."""
    param, grad, first, second, momentum = (_random(count) for _ in range(5))
    second **= 2
    t_param, t_grad, t_first, t_second, t_momentum = (
        [torch.from_numpy(one)] for one in (param, grad, first, second, momentum)
    )
    lr, beta1, beta2, eps, weight_decay = 1e-3, 0.9, 0.999, 1e-8, 0.01
    rates = {"lr": lr, "weight_decay": weight_decay, "maximize": False}
    adam = rates | {"beta1": beta1, "beta2": beta2, "eps": eps, "amsgrad": False}
    sgd = rates | {"momentum": beta1, "dampening": 0.0, "nesterov": False, "is_first_step": False}
    count_of_steps = [torch.tensor(1.0)]
    torch_adam: Callable[..., None] = torch._fused_adamw_
    torch_sgd: Callable[..., None] = torch._fused_sgd_
    yield Case(
        f"AdamW {count}",
        7 * param.nbytes,  # four are read, three are written
        lambda: torch_adam(t_param, t_grad, t_first, t_second, [], count_of_steps, **adam),
        lambda _: _kernels.adam(
            [param],
            [grad],
            [first],
            [second],
            [],
            lr,
            beta1,
            beta2,
            eps,
            weight_decay,
            1,
            decoupled=True,
            maximize=False,
        ),
        "B",
    )
    yield Case(
        f"SGD with momentum {count}",
        5 * param.nbytes,  # three are read, two are written
        lambda: torch_sgd(t_param, t_grad, t_momentum, **sgd),
        lambda _: _kernels.sgd(
            [param],
            [grad],
            [momentum],
            lr,
            beta1,
            0.0,
            weight_decay,
            nesterov=False,
            maximize=False,
            first_step=False,
        ),
        "B",
    )


def _cases() -> Iterator[Case]:
    for count in _ELEMENTS:
        yield from _of_each_element(count)
        yield from _of_numbers_and_conditions(count)
    for rows, columns in _ROWS:
        yield from _softmax(rows, columns)
        yield from _layer_norm(rows, columns)
        yield from _rms_norm(rows, columns)
        yield from _reductions(rows, columns)
        yield from _along_dims(rows, columns)
        yield from _cross_entropy(rows, columns)
        yield from _at_places(rows, columns)
    for shape in _CHANNELS:
        yield from _batch_norm(*shape)
    for count in _PARAMETERS:
        yield from _steps(count)


if __name__ == "__main__":
    beside_torch.main(__doc__, _cases, threads=(1,))
