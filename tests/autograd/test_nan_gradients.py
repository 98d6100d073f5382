"""Gradients where numbers are NaN, infinite, zero or tied: PyTorch's, in every place."""

import math
from typing import Any

import numpy as np
import pytest
import torch

import gt

nan, inf = math.nan, math.inf
VECTORS = {
    "nan": [1.0, nan, 2.0, 3.0],
    "two nan": [nan, 1.0, nan, 0.0],
    "inf": [1.0, inf, -inf, inf],
    "zeros": [0.0, 0.0, 2.0, 0.0],
    "ties": [2.0, 2.0, 1.0, 1.0],
    "all nan": [nan, nan, nan, nan],
    "one zero": [1.0, 0.0, 2.0, 3.0],
    "negative": [-3.0, 3.0, -0.0, 0.0],
    "nan and inf": [nan, inf, 1.0, -inf],
}
# Unspecified cases: the index among equal elements; products of infinities, which cancel in PyTorch
# because it divides by them; and zeros under a norm of NaN, which have no gradient here.
UNSPECIFIED = {
    "kthvalue": {"zeros", "all nan", "negative"},
    "quantile": {"zeros", "all nan", "two nan"},
    "cumprod": {"inf", "nan and inf"},
    "prod(1": {"two nan"},
    "norm(-1)": {"two nan"},
    "norm(-2)": {"two nan"},
    "norm(.5)": {"two nan"},
}
NOT_IN_BFLOAT16 = ("quantile", "cdist", "multi_margin", "det(", "normalize")
EXPRESSIONS = [
    "x.max()",
    "x.min()",
    "x.amax()",
    "x.amin()",
    "x.max(0).values",
    "x.min(0).values",
    "x.amax(0)",
    "x.amin(-1, keepdim=True)",
    "x.reshape(2, 2).amax((0, 1))",
    "x.reshape(2, 2).amax(1)",
    "x.reshape(2, 2).max(1).values",
    "t.aminmax(x).max+t.aminmax(x).min",
    "sum(t.aminmax(x, dim=0))",
    "x.norm()",
    "x.norm(1)",
    "x.norm(inf)",
    "x.norm(-inf)",
    "x.norm(3)",
    "x.norm(.5)",
    "x.norm(-1)",
    "x.norm(-2)",
    "x.norm(1.5)",
    "x.reshape(2, 2).norm(inf, dim=1)",
    "t.linalg.vector_norm(x, inf)",
    "t.linalg.vector_norm(x, -inf)",
    "t.linalg.vector_norm(x.reshape(2, 2), inf, dim=0, keepdim=True)",
    "t.linalg.vector_norm(x.reshape(2, 2), 2, dim=0)",
    "t.linalg.norm(x, inf)",
    "t.linalg.norm(x.reshape(2, 2), inf)",
    "t.linalg.norm(x.reshape(2, 2), 1)",
    "t.linalg.norm(x.reshape(2, 2), -1)",
    "t.linalg.matrix_norm(x.reshape(2, 2), -inf)",
    "t.linalg.norm(x.reshape(2, 2), 'fro')",
    "t.renorm(x.reshape(2, 2), 2, 0, 1.)",
    "t.renorm(x.reshape(2, 2), inf, 0, 1.)",
    "t.dist(x, x.detach()*0+1, inf)",
    "t.dist(x, x.detach()*0+1)",
    "t.cdist(x.reshape(2, 2), x.detach().reshape(2, 2)+1, p=inf)",
    "x.cumprod(0)",
    "x.reshape(2, 2).cumprod(1)",
    "x.prod()",
    "x.prod(0)",
    "x.reshape(2, 2).prod(1, keepdim=True)",
    "x.cummax(0).values",
    "x.cummin(0).values",
    "x.logcumsumexp(0)",
    "x.cumsum(0)",
    "x.median()",
    "x.median(0).values",
    "x.nanmedian()",
    "x.nanmedian(0).values",
    "x.logsumexp(0)",
    "x.softmax(0)",
    "x.log_softmax(0)",
    "F.softmin(x, 0)",
    "t.maximum(x, x.detach().flip(0))",
    "t.minimum(x, x.detach().flip(0))",
    "t.fmax(x, x.detach().flip(0))",
    "t.fmin(x, x.detach().flip(0))",
    "t.maximum(x, x.flip(0))",
    "t.fmax(x.flip(0), x)",
    "x.clamp(0, 1)",
    "x.clamp(min=0)",
    "x.clamp(nan, 1)",
    "t.clamp(x, x.detach().flip(0), x.detach()*0+1)",
    "x.clip(max=1)",
    "F.hardtanh(x)",
    "x.relu()",
    "F.relu6(x)",
    "F.threshold(x, 1., 0.)",
    "F.leaky_relu(x)",
    "F.elu(x)",
    "F.gelu(x)",
    "F.silu(x)",
    "F.softplus(x)",
    "F.hardsigmoid(x)",
    "F.hardswish(x)",
    "F.hardshrink(x)",
    "F.softshrink(x)",
    "F.softsign(x)",
    "F.tanhshrink(x)",
    "F.logsigmoid(x)",
    "F.mish(x)",
    "F.celu(x)",
    "F.selu(x)",
    "F.max_pool1d(x.reshape(1, 1, 4), 2)",
    "F.max_pool2d(x.reshape(1, 1, 2, 2), 2)",
    "F.max_pool1d(x.reshape(1, 1, 4), 3, 1, 1)",
    "F.adaptive_max_pool1d(x.reshape(1, 1, 4), 2)",
    "F.avg_pool1d(x.reshape(1, 1, 4), 2)",
    "F.lp_pool1d(x.reshape(1, 1, 4), 2, 2)",
    "F.lp_pool1d(x.reshape(1, 1, 4), 1, 2)",
    "x.sort().values",
    "x.sort(descending=True).values",
    "x.sort(stable=True).values",
    "x.topk(2).values",
    "x.topk(2, largest=False).values",
    "x.kthvalue(2).values",
    "x.mode().values",
    "x.msort()",
    "x.quantile(.3)",
    "x.nanquantile(.3)",
    "x.std()",
    "x.var()",
    "x.nansum()",
    "x.nanmean()",
    "x.mean()",
    "x.nan_to_num()",
    "x.reshape(2, 2).std(1)",
    "x.abs()",
    "x.sign()*x",
    "x.sqrt()",
    "x.rsqrt()",
    "x.log()",
    "x.log1p()",
    "x.exp()",
    "x**0",
    "x**.5",
    "x**2",
    "x**-1",
    "t.pow(x, x.detach())",
    "2.**x",
    "0.**x",
    "t.pow(x.abs(), x)",
    "t.xlogy(x, x.detach().flip(0))",
    "t.xlogy(x.detach().flip(0), x)",
    "t.special.xlog1py(x, x.detach().flip(0))",
    "t.special.entr(x)",
    "t.logaddexp(x, x.detach().flip(0))",
    "t.logaddexp2(x, x.flip(0))",
    "t.hypot(x, x.detach().flip(0))",
    "t.atan2(x, x.detach().flip(0))",
    "t.fmod(x, 2.)",
    "t.remainder(x, 2.)",
    "x/x.flip(0)",
    "x.reciprocal()",
    "t.sinc(x)",
    "x.logit()",
    "x.logit(.1)",
    "x.acos()",
    "x.asin()",
    "x.atanh()",
    "x.acosh()",
    "x.lgamma()",
    "x.digamma()",
    "x.erfinv()",
    "t.special.i0(x)",
    "x.tanh()",
    "x.sigmoid()",
    "t.copysign(x, x.detach().flip(0))",
    "t.ldexp(x, t.tensor([1, 2, 3, 4]))",
    "t.frexp(x).mantissa",
    "t.where(x>0, x, x*2)",
    "t.lerp(x, x.flip(0), .3)",
    "t.addcdiv(x, x.detach(), x.flip(0))",
    "F.normalize(x, dim=0)",
    "F.layer_norm(x, (4, ))",
    "t.cosine_similarity(x, x.detach().flip(0), dim=0)",
    "F.mse_loss(x, x.detach().flip(0))",
    "F.l1_loss(x, x.detach().flip(0))",
    "F.smooth_l1_loss(x, x.detach().flip(0))",
    "F.huber_loss(x, x.detach().flip(0))",
    "F.binary_cross_entropy_with_logits(x, x.detach()*0+.3)",
    "F.cross_entropy(x.reshape(1, 4), t.tensor([1]))",
    "F.kl_div(x, x.detach()*0+.5)",
    "F.margin_ranking_loss(x, x.detach().flip(0), x.detach()*0+1, margin=.5)",
    "F.multi_margin_loss(x.reshape(1, 4), t.tensor([1]))",
    "F.soft_margin_loss(x, x.detach()*0+1)",
    "F.poisson_nll_loss(x, x.detach()*0+1)",
    "t.zeros(2, dtype=x.dtype).scatter_reduce(0, t.tensor([0, 1, 0, 1]), x, 'amax')",
    "t.ones(2, dtype=x.dtype).scatter_reduce(0, t.tensor([0, 1, 0, 1]), x, 'prod')",
    "x[:2].detach().scatter_reduce(0, t.tensor([0, 1, 0, 1]), x, 'amin', include_self=False)",
    "t.ones(2, dtype=x.dtype).index_reduce(0, t.tensor([0, 1, 0, 1]), x, 'amax')",
    "x.reshape(2, 2).trace()",
    "t.linalg.det(x.reshape(2, 2))",
    "F.embedding_bag(t.tensor([0, 1, 0]), x.reshape(2, 2), t.tensor([0, 2]), mode='max')",
    "F.glu(x)",
    "F.prelu(x, t.tensor([.2], dtype=x.dtype))",
]


def gradient(t: Any, expression: str, numbers: list[float], dtype: str) -> list[np.ndarray]:
    x = t.tensor(numbers, dtype=getattr(t, dtype), requires_grad=True)
    y = eval(expression, {"t": t, "x": x, "F": t.nn.functional, "nan": nan, "inf": inf})
    weights = t.arange(1, y.numel() + 1).reshape(y.shape).to(y.dtype)
    (y * weights).sum().backward()
    return [y.detach().double().numpy(), x.grad.double().numpy()]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_gradient(expression: str) -> None:
    for name, numbers in VECTORS.items():
        if any(part in expression and name in names for part, names in UNSPECIFIED.items()):
            continue
        for dtype in ("float32", "float64", "bfloat16"):
            if dtype == "bfloat16" and any(part in expression for part in NOT_IN_BFLOAT16):
                continue
            rough = 0.03 if dtype == "bfloat16" else 1e-4
            expected, got = (gradient(t, expression, numbers, dtype) for t in (torch, gt))
            for theirs, ours in zip(expected, got, strict=True):
                np.testing.assert_allclose(
                    ours, theirs, rtol=rough, atol=1e-6, err_msg=f"{name} {dtype}"
                )


@pytest.mark.parametrize("offsets", [[0], [0, 2], [0, 0, 3], None])
@pytest.mark.parametrize("padding", [None, 1])
@pytest.mark.parametrize(
    "weight",
    [
        [[0.0, -1.0], [0.0, 0.0], [-1.0, 0.0]],
        [[nan, 1.0], [2.0, nan], [0.0, 3.0]],
        [[-inf, 1.0], [-inf, -inf], [0.0, inf]],
        [[-2.0, -2.0], [-2.0, -3.0], [-4.0, -2.0]],
    ],
)
def test_the_largest_of_a_bag(weight: Any, padding: int | None, offsets: list[int] | None) -> None:
    for rows in ([0, 1, 2], [2, 1, 0], [1, 1, 2], [1, 1, 1]):
        found = []
        for t in (torch, gt):
            table = t.tensor(weight, requires_grad=True)
            given = t.tensor(rows if offsets else [rows])
            bags = t.nn.functional.embedding_bag(
                given,
                table,
                None if offsets is None else t.tensor(offsets),
                mode="max",
                padding_idx=padding,
            )
            factors = t.arange(1, bags.numel() + 1).reshape(bags.shape)
            (bags * factors).masked_fill(bags.detach().isinf(), 0.0).nansum().backward()
            found.append([bags.detach().numpy(), table.grad.numpy()])
        for theirs, ours in zip(*found, strict=True):
            np.testing.assert_array_equal(ours, theirs, err_msg=str(rows))
