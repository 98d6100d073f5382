"""einops over GT's tensors, by its own mechanism of backends: what it gives over torch's."""

import copy
import os
import subprocess
import sys

import numpy as np
import pytest
import torch
from without_torch import path_without_torch

import gt

einops = pytest.importorskip("einops")

REARRANGE = [
    ("b c (h p) (w q) -> b (h w) (p q c)", {"p": 2, "q": 3}),
    ("b c h w -> b h w c", {}),
    ("b c h w -> (b c) 1 (h w)", {}),
    ("b ... -> ... b", {}),
]
REDUCE = [("b c h w -> b c", name) for name in ("mean", "sum", "min", "max", "prod")]
REDUCE += [("b c (h 2) (w 3) -> b c h w", "mean"), ("b c h w -> () c () ()", "max")]
REPEAT = [("b c h w -> b c (h 2) w", {}), ("b c h w -> n b c h w", {"n": 3})]


def value(m, *, grad=True):
    x = np.random.default_rng(0).normal(size=(2, 3, 4, 6))
    return m.tensor(x).requires_grad_(grad)


def check(call):
    """Results and gradients must equal PyTorch's."""
    results = []
    for m in (gt, torch):
        x = value(m)
        out = call(m, x)
        (out * out).sum().backward()
        results.append((out.detach().numpy(), x.grad.numpy()))
    for ours, theirs in zip(*results, strict=True):
        assert ours.shape == theirs.shape
        np.testing.assert_allclose(ours, theirs, rtol=1e-9)


@pytest.mark.parametrize(("pattern", "sizes"), REARRANGE)
def test_rearrange(pattern, sizes):
    check(lambda _, x: einops.rearrange(x, pattern, **sizes))


@pytest.mark.parametrize(("pattern", "name"), REDUCE)
def test_reduce(pattern, name):
    check(lambda _, x: einops.reduce(x, pattern, name))


@pytest.mark.parametrize(("pattern", "sizes"), REPEAT)
def test_repeat(pattern, sizes):
    check(lambda _, x: einops.repeat(x, pattern, **sizes))


def test_einsum_pack_and_lists():
    check(lambda _, x: einops.einsum(x, x, "b c h w, b c h v -> b w v"))
    check(lambda _, x: einops.rearrange([x, x * 2], "n b c h w -> b (n c) h w"))
    check(lambda _, x: einops.pack([x, x[:, 0]], "b * w")[0])
    assert einops.reduce(value(gt) > 0, "b c h w -> b", "any").tolist() == [True, True]
    assert einops.parse_shape(value(gt), "b c _ w") == {"b": 2, "c": 3, "w": 6}
    assert einops.asnumpy(value(gt)).shape == (2, 3, 4, 6)
    with pytest.raises(einops.EinopsError):
        einops.rearrange(value(gt), "b c h -> b")


def test_layers_are_modules():
    from einops.layers.gt import Rearrange, Reduce
    from einops.layers.torch import Rearrange as TheirRearrange
    from einops.layers.torch import Reduce as TheirReduce

    def net(m):
        rearrange, reduce = (Rearrange, Reduce) if m is gt else (TheirRearrange, TheirReduce)
        first = rearrange("b c (h p) w -> b h (p w c)", p=2)
        return m.nn.Sequential(first, m.nn.Tanh(), reduce("b h d -> b d", "mean"))

    check(lambda m, x: net(m)(x))
    ours = net(gt)
    assert str(ours) == str(net(torch))
    assert copy.deepcopy(ours)(value(gt)).shape == (2, 36)


MIXES = [
    ("b c h w -> b h w o", "c o", "o", {"c": 3, "o": 2}, 3),
    ("b c (h p) w -> b (c h) (w o)", "p w o", None, {"p": 2, "w": 6, "o": 5}, 2),
    ("b c h w -> b c h w", "c", "w", {"c": 3, "w": 6}, 1),
]


@pytest.mark.parametrize(("pattern", "weight", "bias", "sizes", "summed"), MIXES)
def test_a_mix_is_a_layer_with_weights(pattern, weight, bias, sizes, summed):
    from einops.layers.gt import EinMix
    from einops.layers.torch import EinMix as TheirMix

    theirs = TheirMix(pattern, weight_shape=weight, bias_shape=bias, **sizes).double()
    ours = EinMix(pattern, weight_shape=weight, bias_shape=bias, **sizes).double()
    assert repr(ours) == repr(theirs)
    assert 0 < ours.weight.abs().max().item() <= (3 / summed) ** 0.5
    ours.load_state_dict({k: gt.from_torch(v) for k, v in theirs.state_dict().items()})
    check(lambda m, x: (ours if m is gt else theirs)(x))
    for one, other in zip(ours.parameters(), theirs.parameters(), strict=True):
        np.testing.assert_allclose(one.grad.numpy(), other.grad.numpy(), rtol=1e-12)


@pytest.mark.parametrize("order", ["import gt, einops", "import einops, gt"])
def test_the_order_of_the_imports_does_not_matter(order):
    code = f"{order}\nprint(einops.rearrange(gt.ones(2, 3), 'a b -> b a').shape)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=50)
    assert done.stdout == "gt.Size([3, 2])\n", done.stderr


LAYERS = {
    "import gt as torch\nfrom einops.layers.torch import Rearrange": True,
    "from gt import nn\nfrom einops.layers.torch import Rearrange": True,
    "import gt as torch, torchlike\nfrom einops.layers.torch import Rearrange": True,
    "import gt\nimport einops.layers.torch as layers\nRearrange = layers.Rearrange": True,
    "import gt, torch\nfrom einops.layers.torch import Rearrange": False,
    "import gt\nfrom torch import nn\nfrom einops.layers.torch import Rearrange": False,
    "import torch\nfrom einops.layers.torch import Rearrange\nimport gt": False,
}


@pytest.mark.parametrize("imports", LAYERS)
def test_layers_of_torch_are_gts_to_a_program_of_gts(imports, tmp_path):
    (tmp_path / "torchlike.py").write_text("import torch\n")  # another file has torch
    code = f"{imports}\nimport gt as g\nprint(issubclass(Rearrange, g.nn.Module))"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ | {"PYTHONPATH": f"{tmp_path}:{os.environ.get('PYTHONPATH', '')}"},
        capture_output=True, text=True, timeout=50,
    )  # fmt: skip
    assert done.stdout == f"{LAYERS[imports]}\n", done.stderr


def test_layers_of_torch_need_no_torch(tmp_path):
    code = """
import gt as torch
from einops.layers.torch import EinMix, Rearrange, Reduce
net = torch.nn.Sequential(
    Rearrange("b (h w) -> b h w", h=2),
    EinMix("b h w -> b h o", weight_shape="w o", bias_shape="o", w=3, o=4),
    Reduce("b h o -> b o", "max"),
)
print(net(torch.ones(5, 6)).shape, sorted(net.state_dict()))
"""
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ | {"PYTHONPATH": path_without_torch(tmp_path)},
        capture_output=True, text=True, timeout=50,
    )  # fmt: skip
    assert done.stdout == "gt.Size([5, 4]) ['1.bias', '1.weight']\n", done.stderr
