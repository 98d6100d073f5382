"""Operators that are one on the device `mux` and several elsewhere: products, attention, encoders.

Values and gradients are those of PyTorch on the host, for every form of operands.
"""

import copy
import itertools
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from front_devices import operators_of
from front_paths import front_path  # noqa: F401 - runs each test in both ways
from torch import nn
from torch.nn import functional as F
from torch_session import torch_workers

import gt.torch  # noqa: F401 - names the device

TOLERANCES = {
    torch.float32: 1e-5, torch.float64: 1e-12, torch.complex128: 1e-12,
    torch.bfloat16: 2e-2, torch.float16: 4e-3,
}  # fmt: skip
# Shapes of input, weight and bias.
LINEAR: tuple[tuple[tuple[int, ...] | None, ...], ...] = (
    *[
        (shape, (5, 3), bias)
        for shape in ((3,), (4, 3), (2, 4, 3), (2, 2, 4, 3), (0, 3), (2, 0, 3))
        for bias in (None, (5,))
    ],
    *[((4, 3), (5, 3), bias) for bias in ((1, 5), (4, 5), (1,), ())],
    *[(shape, (3,), None) for shape in ((3,), (4, 3), (2, 4, 3))],
    ((4, 3), (0, 3), (0,)),
    ((4, 0), (5, 0), (5,)),
)
MATMUL = (
    ((3,), (3,)), ((3,), (3, 4)), ((4, 3), (3,)), ((4, 3), (3, 5)), ((2, 4, 3), (3, 5)),
    ((2, 4, 3), (3,)), ((3,), (2, 3, 4)), ((2, 4, 3), (2, 3, 5)), ((2, 1, 4, 3), (6, 3, 5)),
    ((6, 4, 3), (2, 1, 3, 5)), ((4, 3), (2, 3, 5)), ((1, 4, 3), (2, 3, 5)), ((0, 3), (3, 5)),
    ((2, 4, 0), (0, 5)), ((2, 0, 4, 3), (3, 5)),
)  # fmt: skip
REFUSED: tuple[Callable[[str], object], ...] = (
    lambda d: F.linear(torch.ones(2, 3, device=d), torch.ones(5, 4, device=d)),
    lambda d: F.linear(torch.ones(2, 3, device=d), torch.ones(5, 3, device=d).double()),
    lambda d: torch.ones(2, 3, device=d) @ torch.ones(4, 3, device=d),
    lambda d: torch.ones(2, 2, 3, device=d) @ torch.ones(3, 3, 3, device=d),
    lambda d: torch.ones((), device=d) @ torch.ones(3, device=d),
    lambda d: attention(d, (1, 2, 4, 8), mask=torch.ones(4, 4).bool(), is_causal=True),
    lambda d: attention(d, (1, 2, 4, 8), mask=torch.ones(4, 4).int()),
    lambda d: attention(d, (1, 2, 4, 8), mask=torch.ones(3, 4).bool()),
    lambda d: attention(d, (8,)),
    lambda d: attention(d, (1, 2, 4, 8), keys=(1, 2, 4, 6)),
    lambda d: attention(d, (1, 4, 4, 8), keys=(1, 3, 4, 8), enable_gqa=True),
    lambda d: grouped(d, (6, 8), (3, 8, 16), None),
    lambda d: grouped(d, (3, 6, 8), (3, 8, 16), [1, 2, 3]),
    lambda d: grouped(d, (3, 6, 8), (2, 8, 16), None),
    lambda d: grouped(d, (6, 8), (3, 16, 16), [2, 2, 6]),
    lambda d: grouped(d, (6, 8), (3, 8, 16), [2, 6]),
    lambda d: grouped(d, (8,), (3, 8, 16), [2, 6, 8]),
    lambda d: grouped(d, (6, 8), (3, 8, 16), [2, 2, 6], torch.int64),
    lambda d: grouped(d, (6, 8), (3, 8, 16), [[2, 2, 6]]),
    lambda d: grouped(d, (6, 8), (3, 8, 16), [2, 2, 6], out_dtype=torch.float32),
)


@pytest.fixture(scope="module", autouse=True)
def _workers() -> Iterator[None]:
    with torch_workers(1):
        yield


def drawn(shape: tuple[int, ...], dtype: torch.dtype, layout: str) -> torch.Tensor:
    """A tensor of a fixed seed; `transposed` has its strides reversed, `sliced` gaps."""
    generator = torch.Generator().manual_seed(len(shape) + sum(shape))
    if layout == "transposed":
        dims = tuple(reversed(range(len(shape))))
        return torch.randn(shape[::-1], dtype=dtype, generator=generator).permute(dims)
    if layout == "sliced":
        wide = torch.randn((*shape, 2), dtype=dtype, generator=generator)
        return wide[..., 0]
    return torch.randn(shape, dtype=dtype, generator=generator)


def moved(x: torch.Tensor, device: str) -> torch.Tensor:
    """The tensor on a device, with its strides."""
    if device == "cpu":
        return x.detach().clone(memory_format=torch.preserve_format)
    flat = torch.as_strided(x, (x.untyped_storage().size() // x.element_size(),), (1,), 0)
    return flat.to(device).as_strided(x.shape, x.stride(), 0).detach()


def outcome(
    function: Callable[..., torch.Tensor], operands: list[torch.Tensor], device: str, *, twice: bool
) -> list[torch.Tensor]:
    """The value, gradients, and gradients of the gradients' squares."""
    leaves = [moved(x, device).requires_grad_() for x in operands]
    value = function(*leaves)
    weights = drawn(tuple(value.shape), value.dtype, "contiguous").to(device)
    total = (value * weights).sum().abs() if value.is_complex() else (value * weights).sum()
    gradients = torch.autograd.grad(total, leaves, create_graph=twice, allow_unused=True)
    found = [value, *gradients]
    if twice:
        squares = sum(x.abs().square().sum() for x in gradients)
        found += torch.autograd.grad(squares, leaves, allow_unused=True)
    return [x.detach().cpu() for x in found if x is not None]


def compare(
    function: Callable[..., torch.Tensor], operands: list[torch.Tensor], *, twice: bool = False
) -> None:
    expected = outcome(function, operands, "cpu", twice=twice)
    seen = outcome(function, operands, "mux", twice=twice)
    tolerance = TOLERANCES[operands[0].dtype]
    torch.testing.assert_close(seen, expected, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("layout", ["contiguous", "transposed", "sliced"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.complex128, torch.bfloat16])
def test_products_have_pytorchs_values_and_derivatives(dtype: torch.dtype, layout: str) -> None:
    twice = dtype != torch.bfloat16
    for shapes in LINEAR:
        tensors = [drawn(shape, dtype, layout) for shape in shapes if shape is not None]
        compare(F.linear, tensors, twice=twice)
    for pair in MATMUL:
        compare(torch.matmul, [drawn(shape, dtype, layout) for shape in pair], twice=twice)


def attention(
    device: str,
    shape: tuple[int, ...],
    *,
    keys: tuple[int, ...] | None = None,
    mask: torch.Tensor | None = None,
    **options: Any,
) -> torch.Tensor:
    q, k = (drawn(x, torch.float32, "contiguous").to(device) for x in (shape, keys or shape))
    return F.scaled_dot_product_attention(
        q, k, k * 2, None if mask is None else mask.to(device), **options
    )


def grouped(
    device: str,
    left: tuple[int, ...],
    right: tuple[int, ...],
    ends: list[Any] | None,
    dtype: torch.dtype = torch.int32,
    **options: Any,
) -> torch.Tensor:
    x, y = (torch.ones(x, dtype=torch.bfloat16, device=device) for x in (left, right))
    offsets = None if ends is None else torch.tensor(ends, dtype=dtype, device=device)
    return torch._grouped_mm(x, y, offs=offsets, **options)


def hidden(*shape: int) -> torch.Tensor:
    """A mask that lets each query see something, its own row of zeros and ones."""
    seen = torch.rand(shape, generator=torch.Generator().manual_seed(3)) > 0.4
    seen[..., 0] = True
    return seen


def masks(b: int, h: int, t: int, s: int) -> dict[str, torch.Tensor | None]:
    added = torch.randn((b, h, t, s), generator=torch.Generator().manual_seed(4))
    return {
        "none": None,
        "[t, s]": hidden(t, s),
        "[b, 1, t, s]": hidden(b, 1, t, s),
        "[b, 1, 1, s]": hidden(b, 1, 1, s),
        "[b, h, t, s]": hidden(b, h, t, s),
        "added": added,
        "added [t, s]": added[0, 0],
        "transposed": hidden(t, s).T.contiguous().T,
        "empty rows": hidden(t, s) & (torch.arange(t) > 0)[:, None],
    }


# Shapes of query and key; the width of the values is the keys' but for the last.
ATTENTION = (
    ((2, 4, 5, 8), (2, 4, 7, 8)),
    ((2, 4, 16, 8), (2, 4, 16, 8)),
    ((4, 5, 8), (4, 7, 8)),
    ((5, 8), (7, 8)),
    ((2, 2, 4, 5, 8), (2, 2, 4, 7, 8)),
)


@pytest.mark.parametrize("layout", ["contiguous", "transposed", "heads"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
def test_attention_has_pytorchs_values_and_gradients(dtype: torch.dtype, layout: str) -> None:
    for query, key in ATTENTION:
        b, h, t = ((1, 1, 1, *query)[-4:])[:3]
        for mask in masks(b, h, t, key[-2]).values():
            if len(query) < 4 and mask is not None and mask.ndim > 2:
                continue
            tensors = [drawn(x, dtype, layout) for x in (query, key, key)]
            if layout == "heads" and len(query) == 4:  # [b, t, h, k] seen as [b, h, t, k]
                tensors = [
                    drawn((x[0], x[2], x[1], x[3]), dtype, "contiguous").transpose(1, 2)
                    for x in (query, key, key)
                ]
            added = mask is not None and mask.is_floating_point()
            whole = mask.to(dtype) if added and mask is not None else mask
            for scale in (None, 0.3):

                def function(
                    *x: torch.Tensor,
                    mask: torch.Tensor | None = whole,
                    scale: float | None = scale,
                ) -> torch.Tensor:
                    here = None if mask is None else mask.to(x[0].device)
                    return F.scaled_dot_product_attention(*x, attn_mask=here, scale=scale)

                compare(function, tensors)


def test_causal_grouped_and_shared_operands_of_attention() -> None:
    causal = lambda *x: F.scaled_dot_product_attention(*x, is_causal=True)  # noqa: E731
    grouped = lambda *x: F.scaled_dot_product_attention(*x, enable_gqa=True)  # noqa: E731
    one = lambda x: F.scaled_dot_product_attention(x, x, x, is_causal=True)  # noqa: E731
    two = lambda x, y: F.scaled_dot_product_attention(x, y, y)  # noqa: E731
    wider = F.scaled_dot_product_attention
    for t, s in ((5, 5), (5, 7), (7, 5), (16, 16), (1, 9), (0, 3)):
        q, k = (drawn((2, 4, n, 8), torch.float32, "contiguous") for n in (t, s))
        compare(causal, [q, k, k.flip(-1).contiguous()])
        compare(two, [q, k])
        few = drawn((2, 2, s, 8), torch.float32, "contiguous")
        compare(grouped, [q, few, few.flip(-1).contiguous()])
        compare(wider, [q, k, drawn((2, 4, s, 6), torch.float32, "contiguous")])
        compare(wider, [q, k[:1], k[:1].clone()] if t else [q, k, k])
        compare(one, [q])


# Shapes of both factors, and where the groups end.
GROUPED: tuple[tuple[tuple[int, ...], tuple[int, ...], list[int] | None], ...] = (
    ((6, 8), (3, 8, 16), [2, 2, 6]),
    ((6, 8), (3, 8, 16), [1, 4, 6]),
    ((3, 4, 8), (3, 8, 16), None),
    ((3, 4, 8), (8, 16), [8, 8, 16]),
    ((4, 16), (16, 8), [8, 8, 16]),
)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
def test_products_of_groups(dtype: torch.dtype) -> None:
    for left, right, ends in GROUPED:

        def function(x: torch.Tensor, y: torch.Tensor, ends: Any = ends) -> torch.Tensor:
            offsets = None if ends is None else torch.tensor(ends, dtype=torch.int32)
            there = None if offsets is None else offsets.to(x.device)
            return torch._grouped_mm(x, y, offs=there)

        compare(function, [drawn(x, dtype, "contiguous") for x in (left, right)])


def test_a_mask_that_is_learned_has_its_gradient() -> None:
    function = lambda q, k, m: F.scaled_dot_product_attention(q, k, k, m)  # noqa: E731
    shapes = ((2, 4, 5, 8), (2, 4, 7, 8), (4, 5, 7))
    compare(function, [drawn(x, torch.float32, "contiguous") for x in shapes])


def test_second_derivatives_of_attention_are_those_of_its_composition() -> None:
    def composed(q: torch.Tensor, k: torch.Tensor) -> torch.Tensor:
        scores = q @ k.mT / q.shape[-1] ** 0.5
        return scores.softmax(-1) @ k

    tensors = [drawn((2, 3, n, 8), torch.float64, "contiguous") for n in (5, 7)]
    expected = outcome(composed, tensors, "cpu", twice=True)
    one = lambda q, k: F.scaled_dot_product_attention(q, k, k)  # noqa: E731
    torch.testing.assert_close(outcome(one, tensors, "mux", twice=True), expected)


@pytest.mark.parametrize("keys", [64, 12])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_dropped_weights_of_attention_are_dropped_in_the_gradient(
    keys: int, dtype: torch.dtype
) -> None:
    q, k, v = (drawn((1, 2, n, 8), dtype, "contiguous").to("mux") for n in (6, keys, keys))
    k, v = k + 1, v + 2  # one seed would make them equal
    leaves = [x.requires_grad_() for x in (q, k, v)]

    def total(*x: torch.Tensor) -> torch.Tensor:
        torch.manual_seed(5)
        return F.scaled_dot_product_attention(*x, dropout_p=0.5).sin().sum()

    gradients = torch.autograd.grad(total(*leaves), leaves)
    step = 1e-5 if dtype == torch.float64 else 1e-2
    for place, gradient in enumerate(gradients):
        direction = drawn(tuple(gradient.shape), dtype, "sliced").to("mux")
        ends = [
            total(*[x + sign * step * direction if at == place else x
                    for at, x in enumerate(leaves)]).item()
            for sign in (1, -1)
        ]  # fmt: skip
        slope = (ends[0] - ends[1]) / (2 * step)
        expected = pytest.approx((gradient * direction).sum().item(), rel=2e-2, abs=2e-2)
        assert slope == expected, place
    with torch.no_grad():
        ones = torch.ones(1, 1, 400, keys, device="mux", dtype=dtype)
        kept = F.scaled_dot_product_attention(
            ones, ones[:, :, :keys], ones[:, :, :keys], dropout_p=0.5
        )
    assert kept.mean().item() == pytest.approx(1.0, abs=0.05)
    assert len(kept[0, 0, :, 0].unique()) > 3, "each query drops weights of its own"


@pytest.mark.parametrize("place", range(len(REFUSED)))
def test_what_pytorch_refuses_is_refused_in_its_words(place: int) -> None:
    with pytest.raises(Exception) as expected:  # noqa: PT011 - whatever PyTorch raises
        REFUSED[place]("cpu")
    with pytest.raises(expected.type) as seen:
        REFUSED[place]("mux")
    assert str(seen.value).startswith(str(expected.value).splitlines()[0])


@pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated")
def test_transforms_and_forward_mode_see_the_composition() -> None:
    from torch.func import grad, hessian, jacfwd, jacrev, jvp, vmap

    def programs(device: str) -> list[torch.Tensor]:
        torch.manual_seed(0)
        x, w = torch.randn(4, 3).to(device), torch.randn(5, 3).to(device)
        a = torch.randn(2, 3, 4, 8).to(device)
        cubes = lambda x: F.linear(x, w).pow(3).sum()  # noqa: E731
        scores = lambda a: F.scaled_dot_product_attention(a, a, a).square().sum()  # noqa: E731
        product = lambda w, x: (w @ x).square().sum()  # noqa: E731

        def batched(x: torch.Tensor, w: torch.Tensor) -> tuple[torch.Tensor, ...]:
            """Products of several gradients with one recorded graph."""
            leaves = x.clone().requires_grad_(), w.clone().requires_grad_()
            y = F.linear(*leaves) @ leaves[1]
            basis = torch.eye(y.numel()).view(-1, *y.shape).to(device)
            return torch.autograd.grad(y, leaves, basis, is_grads_batched=True)

        with torch.autograd.forward_ad.dual_level():
            dual = torch.autograd.forward_ad.make_dual(x, x * 2)
            tangent = torch.autograd.forward_ad.unpack_dual(F.linear(dual, w)).tangent
        return [
            tangent, *jvp(cubes, (x,), (x,)), jacfwd(cubes)(x), hessian(cubes)(x),
            jacrev(lambda x: F.linear(x, w).pow(3))(x), grad(scores)(a), grad(cubes)(x),
            vmap(grad(product), (None, 0))(w, x), F.linear(x, w),
            vmap(lambda x: F.linear(x, w), in_dims=1, out_dims=1)(x.T), *batched(x, w),
        ]  # fmt: skip

    seen = [x.cpu() for x in programs("mux")]
    torch.testing.assert_close(seen, programs("cpu"), rtol=1e-5, atol=1e-4)


MHA_MASKS: dict[str, dict[str, torch.Tensor]] = {
    "none": {},
    "keys": {"key_padding_mask": torch.tensor([[0, 0, 0, 1], [0, 0, 1, 1], [0, 0, 0, 0]]).bool()},
    "pairs": {"attn_mask": torch.ones(4, 4).triu(1).bool()},
    "added": {"attn_mask": torch.full((4, 4), -torch.inf).triu(1)},
}
MHA_MASKS["both"] = MHA_MASKS["keys"] | MHA_MASKS["pairs"]


@pytest.mark.parametrize("mask", MHA_MASKS)
@pytest.mark.parametrize("records", [True, False])
def test_multihead_attention_in_all_modes(mask: str, records: bool) -> None:
    torch.manual_seed(0)
    for is_trained, weighs, averages in itertools.product((True, False), repeat=3):
        model = nn.MultiheadAttention(8, 2, batch_first=True).train(is_trained)
        x = torch.randn(3, 4, 8)
        found = []
        for device in ("cpu", "mux"):
            there, here = copy.deepcopy(model).to(device), x.to(device)
            given = {name: tensor.to(device) for name, tensor in MHA_MASKS[mask].items()}
            with torch.set_grad_enabled(records):
                output, weights = there(
                    here, here, here, need_weights=weighs, average_attn_weights=averages, **given
                )
            gradient = []
            if records:
                output.square().sum().backward()
                gradient = [p.grad.cpu() for p in there.parameters()]
            assert (weights is None) == (not weighs)
            found.append([output.cpu(), *([weights.cpu()] if weighs else []), *gradient])
        torch.testing.assert_close(found[1], found[0], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("activation", ["relu", "gelu"])
@pytest.mark.parametrize("norm_first", [True, False])
@pytest.mark.filterwarnings("ignore:.*nested tensors.*", "ignore:enable_nested_tensor is True")
def test_encoders_that_record_nothing(norm_first: bool, activation: str) -> None:
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(
        8, 2, 16, batch_first=True, norm_first=norm_first, activation=activation
    )
    model = nn.TransformerEncoder(layer, 2).eval()
    x = torch.randn(3, 4, 8)
    padding = MHA_MASKS["keys"]["key_padding_mask"]
    causal = MHA_MASKS["pairs"]["attn_mask"]
    masks: list[dict[str, torch.Tensor]] = [
        {}, {"src_key_padding_mask": padding}, {"mask": causal},
        {"mask": causal, "src_key_padding_mask": padding},
    ]  # fmt: skip
    for given, no_grad in itertools.product(masks, (True, False)):
        seen = []
        for device in ("cpu", "mux"):
            there = copy.deepcopy(model).to(device)
            with torch.set_grad_enabled(not no_grad):
                y = there(x.to(device), **{name: m.to(device) for name, m in given.items()})
            seen.append(y.detach().cpu().masked_fill(padding[..., None], 0.0))
        torch.testing.assert_close(seen[1], seen[0], rtol=1e-4, atol=1e-5)


def test_layers_are_one_operator_in_either_pass() -> None:
    x = torch.randn(2, 4, 16, 8).to("mux").requires_grad_()
    w = torch.randn(8, 8).to("mux").requires_grad_()
    bias = torch.randn(8).to("mux").requires_grad_()
    mask = torch.ones(16, 16).tril().bool().to("mux")

    def program() -> None:
        y = F.linear(x, w, bias)
        y = F.scaled_dot_product_attention(y, y, y, mask)
        y = F.scaled_dot_product_attention(y, y, y, is_causal=True)
        torch.autograd.grad((y @ w).sum(), (x, w, bias))

    with torch.autograd.forward_ad.dual_level():
        assert "addmm" in operators_of(program), "composed in forward mode"
    counts = operators_of(program)
    assert (counts["linear"], counts["matmul"]) == (1, 1)
    assert not counts.keys() & {"mm", "bmm", "t", "addmm", "_softmax", "_safe_softmax", "view"}
    assert counts.total() <= 20, counts
