"""Gradient formulas of operators that are no methods, or whose signature differs from PyTorch's."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from gradient_oracle import check, normal, values

from gt import _core
from gt._core import call
from gt.nn import functional

ATEN = torch.ops.aten
X, Y = normal(3, 4), normal(3, 4, seed=1)
TIES = torch.tensor([[1.0, 2.0, 2.0], [3.0, 3.0, 3.0]], dtype=torch.float64)
I5 = torch.tensor([[0, 2], [2, 1]])
TARGET = torch.tensor([1, -100, 3])
CLASS_WEIGHT = torch.tensor([0.5, 1.0, 2.0, 0.1])
NORMS = [(None, None), (Y[0], None), (None, Y[0]), (Y[0], Y[1])]


def norm_row(weight: torch.Tensor | None, bias: torch.Tensor | None) -> tuple[object, ...]:
    parameters = [p for p in (weight, bias) if p is not None]

    def split(rest: Sequence[object]) -> list[object]:
        queue = list(rest)
        return [None if p is None else queue.pop(0) for p in (weight, bias)]

    def whole(w: torch.Tensor | None, b: torch.Tensor | None) -> tuple[torch.Tensor | None, ...]:
        """PyTorch's own second derivative fails for a bias without a weight."""
        return (torch.ones(4, dtype=torch.float64) if w is None and b is not None else w, b)

    return (
        f"layer_norm {len(parameters)} {weight is not None}",
        lambda x, *r: call("layer_norm", x, *split(r), normalized_shape=(4,), eps=1e-5),
        lambda x, *r: F.layer_norm(x, (4,), *whole(*split(r)), 1e-5),
        [X, *parameters],
    )


def backward_row(
    name: str, aten: Callable[..., torch.Tensor], **attrs: object
) -> tuple[object, ...]:
    return (
        name,
        lambda g, x: call(name, g, x, **attrs),
        aten,
        [normal(3, 4, seed=9), normal(3, 4, seed=8).tanh()],
    )


def used_twice(loss: Any, log_probs: Any, other: Any) -> Any:
    """A loss and its logarithms in one expression."""
    return loss * (log_probs * other.exp()).sum()


CALLS: list[tuple[object, ...]] = [
    *[norm_row(w, b) for w, b in NORMS],
    *[
        (
            f"rms_norm {size} {len(rest)}",
            lambda x, *w, n=size: call("rms_norm", x, *(w or [None]), normalized_shape=n, eps=1e-3),
            lambda x, *w, n=size: F.rms_norm(x, n, *w, eps=1e-3),
            [X, *rest],
        )
        for size, rest in (((4,), []), ((4,), [Y[0]]), ((3, 4), []), ((3, 4), [Y]))
    ],
    (
        "linear",
        lambda x, w, b: call("linear", x, w, b),
        F.linear,
        [normal(2, 3, 4), normal(5, 4), normal(5)],
    ),
    ("linear vector", lambda x, w: call("linear", x, w), F.linear, [normal(4), normal(5, 4)]),
    *[
        (
            f"softmax {d}",
            lambda x, d=d: call("softmax", x, dim=d),
            lambda x, d=d: x.softmax(d),
            [X],
        )
        for d in (0, -1)
    ],
    (
        "log_softmax",
        lambda x: call("log_softmax", x, dim=-1),
        lambda x: x.log_softmax(-1),
        [X],
    ),
    *[
        (
            f"gelu {a}",
            lambda x, a=a: call("gelu", x, approximate=a),
            lambda x, a=a: F.gelu(x, approximate=a),
            [X],
        )
        for a in ("none", "tanh")
    ],
    ("silu", lambda x: call("silu", x), F.silu, [X]),
    *[
        (
            f"leaky_relu {len(x)}",
            lambda x: call("leaky_relu", x, negative_slope=0.1),
            lambda x: F.leaky_relu(x, 0.1),
            [x],
        )
        for x in (X, values(0.0, -0.0))
    ],
    *[
        (f"elu {len(x)}", lambda x: call("elu", x, alpha=1.3), lambda x: F.elu(x, 1.3), [x])
        for x in (X, values(0.0, -0.0))
    ],
    (
        "softplus",
        lambda x: call("softplus", x, beta=2.0, threshold=1.0),
        lambda x: F.softplus(x, 2.0, 1.0),
        [X],
    ),
    backward_row("tanh_backward", ATEN.tanh_backward),
    backward_row("sigmoid_backward", ATEN.sigmoid_backward),
    backward_row("relu_backward", lambda g, x: ATEN.threshold_backward(g, x, 0)),
    backward_row("silu_backward", lambda g, x: g * x.sigmoid() * (1 + x * (1 - x.sigmoid()))),
    backward_row(
        "gelu_backward",
        lambda g, x: ATEN.gelu_backward(g, x, approximate="none"),
        approximate="none",
    ),
    backward_row(
        "leaky_relu_backward",
        lambda g, x: ATEN.leaky_relu_backward(g, x, 0.1, False),
        negative_slope=0.1,
    ),
    backward_row(
        "elu_backward",
        lambda g, x: ATEN.elu_backward(g, 1.5, 1, 1, False, x),
        alpha=1.5,
    ),
    backward_row(
        "softplus_backward",
        lambda g, x: ATEN.softplus_backward(g, x, 1.0, 20.0),
        beta=1.0,
        threshold=20.0,
    ),
    backward_row(
        "softmax_backward",
        lambda g, x: ATEN._softmax_backward_data(g, x, 1, torch.float64),
        dim=1,
    ),
    backward_row(
        "log_softmax_backward",
        lambda g, x: ATEN._log_softmax_backward_data(g, x, 1, torch.float64),
        dim=1,
    ),
    *[
        (
            f"embedding {p}",
            lambda w, i, p=p: call("embedding", w, i, **({} if p is None else {"padding_idx": p})),
            lambda w, i, p=p: F.embedding(i, w, padding_idx=p),
            [X, I5],
        )
        for p in (None, 2, 0)
    ],
    *[
        (
            f"{name} {k}",
            lambda x, n=name, k=k: call(n, x, dim=1, keepdim=k),
            lambda x, n=name, k=k: getattr(x, n[:3])(1, k)[0],
            [x],
        )
        for name in ("max_dim", "min_dim")
        for k in (False, True)
        for x in (X, TIES)
    ],
    *[
        (
            f"nll_loss {r} {len(rest)}",
            lambda x, t, *w, r=r: call(
                "nll_loss", x, t, *[y.detach() for y in w], reduction=r, ignore_index=-100
            ),
            lambda x, t, *w, r=r: F.nll_loss(x, t, *[y.detach() for y in w], reduction=r),
            [X, TARGET, *rest],
        )
        for r in ("none", "mean", "sum")
        for rest in ([], [CLASS_WEIGHT.double()])
    ],
    (
        "nll_loss two dimensions",
        lambda x, t: call("nll_loss", x, t, reduction="mean", ignore_index=-100),
        F.nll_loss,
        [normal(2, 4, 3, 2), torch.arange(12).reshape(2, 3, 2) % 4],
    ),
    (
        "nll_loss one sample",
        lambda x, t: call("nll_loss", x, t, reduction="mean", ignore_index=-100),
        F.nll_loss,
        [X[0], torch.tensor(2)],
    ),
    *[
        (
            f"cross_entropy {r} {smoothing} {len(rest)}",
            lambda x, t, *w, r=r, a=smoothing: functional.cross_entropy(
                x, t, *[y.detach() for y in w], reduction=r, label_smoothing=a
            ),
            lambda x, t, *w, r=r, a=smoothing: F.cross_entropy(
                x, t, *[y.detach() for y in w], reduction=r, label_smoothing=a
            ),
            [X, TARGET, *rest],
        )
        for r in ("none", "mean", "sum")
        for smoothing in (0.0, 0.1)
        for rest in ([], [CLASS_WEIGHT.double()])
    ],
    (
        "cross_entropy and its log_softmax",
        lambda x, t, y: used_twice(
            *call(
                "cross_entropy",
                x,
                t,
                None,
                reduction="mean",
                ignore_index=-100,
                label_smoothing=0.0,
            )[:2],
            y,
        ),
        lambda x, t, y: used_twice(F.cross_entropy(x, t), x.log_softmax(1), y),
        [X, TARGET, Y],
    ),
    *[
        (
            f"mse_loss {r}",
            lambda x, y, r=r: call("mse_loss", x, y, reduction=r),
            lambda x, y, r=r: F.mse_loss(x, y, reduction=r),
            [X, Y],
        )
        for r in ("none", "mean", "sum")
    ],
    (
        "cat",
        lambda x, y: call("cat", x, y, x, dim=-1),
        lambda x, y: torch.cat([x, y, x], -1),
        [X, Y[:, :2].contiguous()],
    ),
    (
        "cat empty vector",
        lambda x, y: call("cat", x, y, dim=0),
        lambda x, y: torch.cat([x, y]),
        [X, normal(0)],
    ),
    (
        "stack",
        lambda x, y: call("stack", x, y, dim=-1),
        lambda x, y: torch.stack([x, y], -1),
        [X, Y],
    ),
    (
        "pad",
        lambda x: call("pad", x, pad=(1, 2, -1, 1), value=3.0),
        lambda x: F.pad(x, (1, 2, -1, 1), value=3.0),
        [X],
    ),
    (
        "slice_scatter",
        lambda x, y: call("slice_scatter", x, y, dim=1, start=0, end=4, step=2),
        lambda x, y: x.slice_scatter(y, 1, 0, 4, 2),
        [X, normal(3, 2)],
    ),
    (
        "select_scatter",
        lambda x, y: call("select_scatter", x, y, dim=1, index=2),
        lambda x, y: x.select_scatter(y, 1, 2),
        [X, normal(3)],
    ),
    (
        "diagonal_scatter",
        lambda x, y: call("diagonal_scatter", x, y, offset=0, dim1=0, dim2=1),
        lambda x, y: x.diagonal_scatter(y),
        [X, normal(3)],
    ),
    *[
        (
            f"index_put {a} {tuple(v.shape)}",
            lambda x, v, i, a=a: call("index_put", x, v, i, accumulate=a),
            lambda x, v, i, a=a: x.index_put((i,), v, a),
            [X, v, torch.tensor([2, 0])],
        )
        for a in (False, True)
        for v in (normal(2, 4), normal(4), normal(2, 1), values(2.0)[0])
    ],
    (
        "cast",
        lambda x: call("cast", call("cast", x, dtype=_core.float32), dtype=_core.float64),
        lambda x: x.float().double(),
        [values(0.5, 1.0)],
    ),
]


@pytest.mark.parametrize(("name", "ours", "theirs", "inputs"), CALLS, ids=[row[0] for row in CALLS])
def test_call(
    name: str,
    ours: Callable[..., object],
    theirs: Callable[..., object],
    inputs: list[torch.Tensor],
) -> None:
    check(ours, theirs, inputs)
