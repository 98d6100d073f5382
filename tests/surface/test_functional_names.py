"""Names of `torch` itself beside methods: windows, dropouts, forms that write; against PyTorch."""

import math

import pytest
import torch

import gt
from gt.composite import IN_PLACE

LIBRARIES = (torch, gt)
WINDOWS = {
    "hann_window": [(8,), (7, False), (1,), (0,), (2,)],
    "hamming_window": [(8,), (7, False), (5, True, 0.6), (6, False, 0.5, 0.4), (1,)],
    "blackman_window": [(8,), (7, False), (0,)],
    "bartlett_window": [(8,), (7, False), (1, False)],
    "kaiser_window": [(8,), (7, False), (9, True, 5.0), (1,)],
}
WRITTEN_WITH = {
    "as_strided_": lambda m: ((2,), (2,)),
    "addmv_": lambda m: (m.ones(3, 2), m.tensor([2.0, 3.0])),
    "clamp_": lambda m: (0.3, 0.5),
    "clamp_max_": lambda m: (0.5,),
    "clamp_min_": lambda m: (0.5,),
    "clip_": lambda m: (0.3,),
    "fill_": lambda m: (2.5,),
    "gcd_": lambda m: (m.tensor([6, 4, 9]),),
    "index_put_": lambda m: ((m.tensor([0, 2]),), m.tensor([5.0, 6.0])),
    "lcm_": lambda m: (m.tensor([6, 4, 9]),),
    "ldexp_": lambda m: (m.tensor([1, 2, 3]),),
    "xlogy_": lambda m: (m.tensor([1.0, 2.0, 3.0]),),
}


def equal(ours, theirs):
    torch.testing.assert_close(torch.from_dlpack(ours.detach()), theirs)


@pytest.mark.parametrize("dtype", [None, "float64", "float16", "bfloat16"])
@pytest.mark.parametrize("name", WINDOWS)
def test_windows(name, dtype):
    for arguments in WINDOWS[name]:
        theirs, ours = (
            getattr(m, name)(*arguments, dtype=dtype and getattr(m, dtype)) for m in LIBRARIES
        )
        if dtype in {None, "float64"}:
            equal(ours, theirs)
        else:  # PyTorch computes in the narrow dtype itself
            assert str(ours.dtype).split(".")[1] == dtype
            equal(ours.float(), getattr(torch, name)(*arguments).to(theirs.dtype).float())
    assert getattr(gt, name)(4, requires_grad=True).requires_grad


@pytest.mark.parametrize(
    ("arguments", "named"), [((-1,), {}), ((3.5,), {}), ((3,), {"dtype": "int32"})]
)
@pytest.mark.parametrize("name", WINDOWS)
def test_windows_refuse_what_pytorch_refuses(name, arguments, named):
    said = []
    for m in LIBRARIES:
        with pytest.raises((RuntimeError, TypeError)) as caught:
            getattr(m, name)(*arguments, **{key: getattr(m, named[key]) for key in named})
        said.append(caught)
    theirs, ours = said
    assert issubclass(ours.type, theirs.type)
    assert str(ours.value).split(", got")[0] in str(theirs.value)


def test_functions_that_write_are_all_that_pytorch_has():
    have = {name for name in dir(torch) if name.endswith("_") and not name.startswith("_")}
    both = {name for name in have if hasattr(gt.Tensor, name)}
    assert both - {"resize_as_", "resize_as_sparse_"} == IN_PLACE
    assert all(hasattr(gt, name) for name in both)


@pytest.mark.parametrize("name", sorted(IN_PLACE))
def test_a_function_writes_into_its_tensor(name):
    results = []
    for m in LIBRARIES:
        values = [4, 6, 8] if name in {"gcd_", "lcm_"} else [0.25, 0.5, 0.75]
        if name in {"acosh_", "arccosh_"}:
            values = [1.25, 1.5, 3.0]
        x = m.tensor(values)
        with_ = WRITTEN_WITH.get(name, lambda _: ())(m)
        assert getattr(m, name)(x, *with_) is x
        results.append(x)
    equal(results[1], results[0])


def test_dropouts():
    gt.manual_seed(1)
    x = gt.ones(64, 16, 5)
    for name in ("dropout", "feature_dropout", "alpha_dropout", "feature_alpha_dropout"):
        assert getattr(gt, name)(x, 0.5, False) is x
        dropped = getattr(gt, name)(x, 0.5, train=True)
        values = dropped.unique()
        assert values.numel() == 2
        whole = bool((dropped == dropped[..., :1]).all())
        assert whole == name.startswith("feature")
        with pytest.raises(RuntimeError, match="between 0 and 1"):
            getattr(gt, name)(x, 1.5, True)
    assert gt.dropout_(x, 0.5, True) is x
    assert gt.alpha_dropout_(gt.ones(4), 0.5, True).shape == (4,)
    assert set(x.unique().tolist()) == {0.0, 2.0}
    assert gt.feature_dropout(gt.ones(9, 3), 0.5, True).shape == (9, 3)
    with pytest.raises(RuntimeError, match="at least 2 dimensions"):
        gt.feature_dropout(gt.ones(3), 0.5, True)


@pytest.mark.filterwarnings("ignore:.*deprecated:UserWarning")
def test_a_range_has_its_end():
    for arguments in ((1, 4), (0, 1, 0.25), (5, -1, -2), (0.5, 3.2), (3, 3)):
        equal(gt.range(*arguments), torch.range(*arguments))
    equal(gt.range(1, 3, dtype=gt.int64), torch.range(1, 3, dtype=torch.int64))
    for wrong in ((1, 4, 0), (4, 1)):
        with pytest.raises(RuntimeError) as theirs:
            torch.range(*wrong)
        with pytest.raises(RuntimeError, match=str(theirs.value)):
            gt.range(*wrong)


def test_drawn_slopes_of_a_generator():
    x = gt.linspace(-2, 2, 40)
    one, two, other = (
        gt.rrelu(x, 0.1, 0.3, True, gt.Generator().manual_seed(seed)).tolist() for seed in (1, 1, 2)
    )
    assert one == two != other
    assert all(
        0.3 * v - 1e-6 <= y <= 0.1 * v + 1e-6 for v, y in zip(x.tolist(), one, strict=True) if v < 0
    )
    equal(gt.rrelu(x), torch.rrelu(torch.linspace(-2, 2, 40)))


@pytest.mark.filterwarnings("ignore:.*chain_matmul:UserWarning")
def test_products_of_several():
    arrays = [torch.randn(*shape) for shape in ((3, 4), (4, 6), (6, 2))]
    ours = [gt.tensor(array) for array in arrays]
    for count in (1, 2, 3):
        equal(gt.chain_matmul(*ours[:count]), torch.chain_matmul(*arrays[:count]))


def test_names_of_types():
    assert gt.typename(gt.ones(1)) == "gt.FloatTensor"
    for thing in (3, "a", [], math.sqrt, dict, pytest.raises):
        assert gt.typename(thing) == torch.typename(thing)
    assert gt.typename(gt.nn.Linear) == "gt.nn.linear.Linear"
    assert gt.vmap is gt.func.vmap
    assert gt.celu_ is gt.nn.functional.celu_
    assert gt.functional.einsum is gt.einsum
    assert "einsum" in dir(gt.functional)
    with pytest.raises(AttributeError, match="no attribute"):
        _ = gt.functional.nothing_like_it


def test_operators_by_their_names():
    x = gt.tensor([1.0, -2.0], requires_grad=True)
    aten = gt.ops.aten
    (
        aten.mul(x, x) + aten.add.Tensor(x, x) + aten.add.Scalar(x, 3) + aten.relu.default(x)
    ).sum().backward()
    assert x.grad is not None
    assert x.grad.tolist() == [6.0, -1.0]
    assert sorted(aten.add.overloads()) == ["Scalar", "Tensor"]
    assert repr(aten.add.Tensor) == "<gt.ops.aten add.Tensor>"
    assert "relu" in dir(aten)
    for wrong, text in (
        (lambda: aten.addd, "no operator 'addd'; did you mean add"),
        (lambda: aten.add.Number, "no overload 'Number'; it has Scalar, Tensor"),
        (lambda: aten.relu_, "no operator 'relu_'"),
    ):
        with pytest.raises(AttributeError, match=text):
            wrong()
    with pytest.raises(TypeError, match="must be Number, not Tensor"):
        aten.add.Scalar(x, x)


def test_a_named_overload_is_autocast_like_its_operator():
    a, b = gt.ones(2, 3), gt.ones(3, 2)
    with gt.autocast("cpu", dtype=gt.bfloat16):
        assert gt.ops.aten.mm.default(a, b).dtype == gt.ops.aten.mm(a, b).dtype == gt.bfloat16


@pytest.mark.parametrize(
    ("name", "shape", "arguments"),
    [
        ("max_pool1d", (2, 3, 6), (2,)),
        ("max_pool2d", (2, 3, 6, 4), (2,)),
        ("max_pool3d", (1, 2, 4, 4, 4), (2,)),
        ("adaptive_max_pool1d", (2, 3, 6), (2,)),
        ("adaptive_max_pool2d", (2, 3, 6, 4), ((3, None),)),
        ("adaptive_max_pool3d", (1, 2, 4, 4, 4), (2,)),
    ],
)
def test_pools_with_places(name, shape, arguments):
    values = torch.randn(shape, generator=torch.Generator().manual_seed(0))
    theirs = getattr(torch.nn.functional, f"{name}_with_indices")(values, *arguments)
    pooled = getattr(gt.nn.functional, f"{name}_with_indices")
    for mine, other in zip(pooled(gt.from_torch(values), *arguments), theirs, strict=True):
        equal(mine, other)


def test_fractional_pools_with_places():
    for count in (2, 3):
        pool = getattr(gt.nn.functional, f"fractional_max_pool{count}d_with_indices")
        values, places = pool(gt.ones(1, 2, *[6] * count), 2, output_size=3)
        assert values.shape == places.shape == (1, 2, *[3] * count)


def test_a_norm_by_its_word_and_two_ways_of_one_optimizer():
    for m in LIBRARIES:
        p = m.nn.Parameter(m.ones(2))
        p.grad = m.tensor([3.0, -4.0])
        assert m.nn.utils.clip_grad_norm_(p, 1.0, norm_type="inf").item() == 4.0
        assert p.grad.tolist() == pytest.approx([0.75, -1.0])
        for kind in (m.optim.Adam, m.optim.AdamW):
            with pytest.raises(RuntimeError, match="`fused` and `foreach` cannot be `True` tog"):
                kind([p], foreach=True, fused=True)
