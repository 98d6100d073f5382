"""einx over GT's tensors, by its own mechanism of backends: what it gives over torch's."""

import subprocess
import sys

import numpy as np
import pytest
import torch

import gt

einx = pytest.importorskip("einx")

ROWS = [
    "einx.sum('a [b] c', x)", "einx.sum('a [...]', x)", "einx.mean('a [b c]', x)",
    "einx.var('[...]', x)", "einx.prod('a [b] c', x)", "einx.max('a b [c]', x)",
    "einx.logsumexp('a b [c]', x)", "einx.count_nonzero('a [b] c', x)", "einx.argmax('a b [c]', x)",
    "einx.id('a b c -> (a b) c', x)", "einx.id('a (b d) c -> d a b c', x, d=3)",
    "einx.id('a b -> a b h', w, h=3)", "einx.id('a b, a b -> a (b + b)', w, w)",
    "einx.id('a (b + c) -> a b, a c', w, b=2)[1]",
    "einx.dot('a b [c], [c] d -> a b d', x, w)",
    "einx.add('a b c, b', x, x[0, :, 0])", "einx.multiply('a b c, c e -> a b c e', x, w)",
    "einx.subtract('a b c, a', x, m.ones(2))", "einx.where('a b c, a b c,', x > 0, x, 0.0)",
    "einx.softmax('a [b] c', x)", "einx.flip('a [b] c', x)", "einx.sort('a b [c]', x)",
    "einx.std('a [b c]', x)", "einx.log_softmax('a [b] c', x)", "einx.argsort('a b [c]', x)",
    "einx.set_at('[a] c, b, b c', w.clone(), m.tensor([0, 1]), w[2:].clone())",
    "einx.add_at('[a] c, b, b c', w.clone(), m.tensor([0, 0]), w[2:].clone())",
    "einx.logaddexp('a b c, b', x, x[0, :, 0])", "einx.maximum('a b c, c', x, w[:, 0])",
    "einx.roll('a [b] c', x, shift=(1,))", "einx.get_at('[a] c, b -> b c', w, m.tensor([0, 1, 3]))",
]  # fmt: skip


def operands(m):
    x, w = (np.random.default_rng(0).normal(size=shape) for shape in ((2, 3, 4), (4, 5)))
    return {"einx": einx, "m": m, "x": m.tensor(x).requires_grad_(), "w": m.tensor(w)}


@pytest.mark.parametrize("row", ROWS)
def test_values_and_gradients_are_those_over_torch(row):
    results = []
    for m in (gt, torch):
        names = operands(m)
        value = eval(row, names)
        results.append([value.detach().numpy()])
        if value.requires_grad:
            (value * value).sum().backward()
            results[-1].append(names["x"].grad.numpy())
    assert len(results[0]) == len(results[1])
    for ours, theirs in zip(*results, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("imports", ["import gt, einx", "import einx, gt"])
def test_the_order_of_the_imports_does_not_matter(imports):
    code = f"{imports}\nprint(einx.sum('a [b]', gt.ones(2, 3)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=50)
    assert done.stdout == "tensor([3., 3.])\n", done.stderr
