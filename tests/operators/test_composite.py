"""Composite methods and functions against PyTorch: the same expression, values and gradients."""

import importlib
import math
from collections.abc import Callable

import pytest
import torch
from same_expression import OURS, THEIRS, Namespace, check, normal, upload

import gt
from gt import _core, errors
from gt._core import Tensor, call

INF, NAN = float("inf"), float("nan")
X, Y, Z = normal(3, 4), normal(3, 4, seed=1), normal(2, 3, 4)
P = X.abs() + 0.5
V, W = normal(4, seed=2), normal(4, seed=3)
I64 = torch.tensor([[3, -1, 0], [7, -7, 2]])
MASK = torch.tensor([[True, False, True, False]] * 3)

EXPRESSIONS: list[tuple[str, Callable[..., object], list[torch.Tensor]]] = [
    # shapes
    ("queries", lambda m, x: [x.size(0), x.size(-1), x.dim(), x.numel(), x.nelement()], [Z]),
    ("element_size", lambda m, x: [x.element_size(), x.double().element_size()], [X]),
    ("squeeze", lambda m, x: [x[:, :1].squeeze(), x[:, :1].squeeze(1), x.squeeze(0)], [X]),
    ("squeeze dims", lambda m, x: x[:1, :1].squeeze((0, 1)), [Z]),
    ("squeeze several", lambda m, x: [x[:1, :1].squeeze(0, -2), x[:1].squeeze(0, 1)], [Z]),
    ("squeeze_ several", lambda m, x: (x[:1, :1] * 1).squeeze_(0, 1), [Z]),
    ("unsqueeze", lambda m, x: [x.unsqueeze(0), x.unsqueeze(-1), m.unsqueeze(x, 1)], [X]),
    ("flatten", lambda m, x: [x.flatten(), x.flatten(1), x.flatten(0, 1), m.flatten(x)], [Z]),
    ("flatten number", lambda m, x: [x[0].flatten(), x[0].ravel()], [V]),
    ("unflatten", lambda m, x: [x.unflatten(1, (2, 2)), x.unflatten(-1, (-1, 2))], [X]),
    ("transpose", lambda m, x: [x.transpose(0, 2), x.transpose(-1, 1), x.swapaxes(0, 1)], [Z]),
    ("t", lambda m, x, v: [x.t(), v.t(), m.t(x)], [X, V]),
    ("movedim", lambda m, x: [x.movedim(0, 2), x.movedim((0, 1), (2, 0)), x.moveaxis(-1, 0)], [Z]),
    ("as", lambda m, x, z: [x.view_as(z.flatten(0, 1)[:3]), x.reshape_as(x), x[:1].expand_as(x)],
     [X, Z]),
    ("broadcast_to", lambda m, v: [v.broadcast_to((3, 4)), m.broadcast_to(v, (2, 4))], [V]),
    ("narrow", lambda m, x: [x.narrow(1, 1, 2), x.narrow(0, -2, 1), m.narrow(x, 0, 0, 0)], [X]),
    ("split", lambda m, x: [x.split(2, 1), x.split(2), x.split([1, 3], -1), m.split(x, 3)], [X]),
    ("chunk", lambda m, x: [x.chunk(2), x.chunk(3, 1), x.chunk(9, dim=-1), m.chunk(x, 2)], [X]),
    ("unbind", lambda m, x: [x.unbind(), x.unbind(-1), m.unbind(x, 1)], [X]),
    ("tile", lambda m, x: [x.tile(2), x.tile((2, 1, 3)), x.tile(1, 2)], [X]),
    ("roll", lambda m, x: [x.roll(1), x.roll(-1, 0), x.roll((1, 2), (0, 1)), x.roll(7, 1)], [X]),
    ("repeat_interleave", lambda m, x: [x.repeat_interleave(2), x.repeat_interleave(3, 0)], [X]),
    ("repeat_interleave counts", lambda m, x, n: x.repeat_interleave(n, dim=1),
     [X, torch.tensor([2, 0, 1, 3])]),
    ("sum_to_size", lambda m, x: [x.sum_to_size(3, 1), x.sum_to_size((4,)), x.sum_to_size(1)], [X]),
    ("diag", lambda m, x, v: [x.diag(), x.diag(1), v.diag(), v.diag(-1), m.diag(v, 2)], [X, V]),
    ("trace", lambda m, x: x.trace(), [X]),
    ("contiguous", lambda m, x: x.t().contiguous(), [X]),
    ("cumprod", lambda m, x: [x.cumprod(0), x.cumprod(-1), m.cumprod(x[:, :1], dim=1)], [X]),
    ("cumprod zeros", lambda m, x: (x * m.tensor([1.0, 0, 1, 0])).cumprod(1), [X]),
    ("cumprod whole", lambda m, i: [i.cumprod(1), i.cumprod(1, dtype=m.float32)], [I64]),
    ("diff", lambda m, x: [x.diff(), x.diff(2, 0), x.diff(n=0), m.diff(x, prepend=x)], [X]),
    # casts
    ("casts", lambda m, x: [x.float(), x.half(), x.long(), x.int(), x.bool(), x.double()], [X]),
    ("more casts", lambda m, x: [x.short(), x.char(), (x * x).byte()], [X]),
    ("to", lambda m, x: [x.to(m.float32), x.to("cpu"), x.to("cpu", m.float32), x.to(x.int())], [X]),
    ("to copy", lambda m, x: [x.to(m.float64, copy=True), x.to(dtype=m.int64), x.cpu()], [X]),
    ("type", lambda m, x: [x.type(m.float32), x.type_as(x.int())], [X]),
    ("is_floating_point", lambda m, x: [x.is_floating_point(), x.int().is_floating_point()], [X]),
    # elementwise
    ("alpha", lambda m, x, y: [x.add(y, alpha=2), x.sub(y, alpha=0.5), m.add(x, y)], [X, Y]),
    ("names", lambda m, x, y: [x.multiply(y), x.subtract(y), m.true_divide(x, y)], [X, Y]),
    ("div rounding", lambda m, x, y: [x.div(y, rounding_mode="floor"),
                                      x.div(y, rounding_mode="trunc"), x.div(y)], [X, Y]),
    ("div rounding integers", lambda m, x: [x.div(2, rounding_mode="floor"),
                                            x.div(2, rounding_mode="trunc"),
                                            x.div(-3, rounding_mode="trunc")], [I64]),
    ("addcmul", lambda m, x, y: [x.addcmul(x, y), x.addcmul(x, y, value=2)], [X, Y]),
    ("addcdiv", lambda m, x, y: [x.addcdiv(x, y), m.addcdiv(x, x, y, value=2)], [X, P]),
    ("clamps", lambda m, x: [x.clamp_min(0), x.clamp_max(0.5), x.clip(-0.5, 0.5)], [X]),
    ("clamp tensors", lambda m, x, y: [x.clamp_min(y), x.clamp_max(y)], [X, Y]),
    ("sinh", lambda m, x: [x.sinh(), x.cosh(), x.atan(), x.exp2(), x.frac()], [X]),
    ("sinh small", lambda m, x: (x * 1e-9).sinh() * 1e9, [X]),
    ("logit", lambda m, x: [x.sigmoid().logit(), x.sigmoid().logit(0.2)], [X]),
    ("logaddexp", lambda m, x, y: [x.logaddexp(y), m.logaddexp(x * 1000, y)], [X, Y]),
    ("logaddexp kinks", lambda m, x, y: x.logaddexp(y),
     [torch.tensor([1.0, -INF, 2.0]).double(),
      torch.tensor([1.0, 3.0, INF]).double()]),
    ("nan_to_num", lambda m, x: [x.nan_to_num(), x.nan_to_num(1, 2, 3)],
     [torch.tensor([NAN, INF, -INF, 1.0]).double()]),
    ("isclose", lambda m, x: [x.isclose(x + 1e-9), x.isclose(x + 1e-3)], [X]),
    ("isclose kinks", lambda m, x: [x.isclose(x), x.isclose(x, equal_nan=True)],
     [torch.tensor([NAN, INF, -INF, 1.0]).double()]),
    ("isclose integers", lambda m, x: x.isclose(x + 1, atol=1), [I64]),
    ("where", lambda m, k, x, y: [m.where(k, x, y), x.where(k, y), m.where(k, x, 0.0)],
     [MASK, X, Y]),
    ("where places", lambda m, k: m.where(k), [MASK]),
    # reductions
    ("std", lambda m, x: [x.std(), x.std(0), x.std(1, keepdim=True), x.std(0, False)], [X]),
    ("std correction", lambda m, x: [x.std(dim=(0, 1), correction=0), m.std(x, -1)], [X]),
    ("std of equal", lambda m, x: (x * 0).std(0), [X]),
    ("var", lambda m, x: [x.var(), x.var(0), x.var(0, True), x.var(False), m.var(x, 1)], [X]),
    ("var_mean", lambda m, x: [m.var_mean(x, 0), m.std_mean(x, 1, keepdim=True)], [X]),
    ("norm", lambda m, x: [x.norm(), x.norm(2, 0), x.norm(1, dim=1, keepdim=True)], [X]),
    ("norm orders", lambda m, x: [x.norm(3), x.norm(INF, 0), x.norm(-INF, 1), x.norm(0, 0)], [X]),
    ("norm of zero", lambda m, x: [(x * 0).norm(), (x * 0).norm(3)], [X]),
    ("dist", lambda m, x, y: [x.dist(y), x.dist(y, 1)], [X, Y]),
    ("max", lambda m, x, y: [x.max(), x.max(0), x.max(-1, keepdim=True), x.max(y)], [X, Y]),
    ("max names", lambda m, x: [x.max(1).values, x.max(1).indices, x.min(dim=0).values], [X]),
    ("min", lambda m, x, y: [x.min(), x.min(0), x.min(1, True), m.min(x, y), m.max(x)], [X, Y]),
    ("axis", lambda m, x: [x.max(axis=1, keepdims=True), x.std(axis=0)], [X]),
    ("max ties", lambda m, x: x.max(), [torch.tensor([2.0, 1.0, 2.0]).double()]),
    ("max of a number", lambda m, x: x[0].max(0), [V]),
    ("aminmax", lambda m, x: [x.aminmax(), x.aminmax(dim=1)], [X]),
    ("sort", lambda m, x: [x.sort(), x.sort(0, descending=True), x.argsort(), m.sort(x, 0)], [X]),
    ("sort names", lambda m, x: [x.sort().values, x.sort(0).indices, x.topk(2).indices], [X]),
    ("argsort", lambda m, x: [x.argsort(0), x.argsort(-1, True), m.argsort(x, 1)], [X]),
    ("topk", lambda m, x: [x.topk(2), x.topk(1, 0), x.topk(3, largest=False)], [X]),
    ("median", lambda m, x: [x.median(), x.median(0), x.median(1, True)], [X]),
    ("median without number", lambda m, x: [x.median(), *x.median(0), *x.median(1, True)],
     [torch.tensor([[2.0, NAN, 1, 2], [NAN, 1, 3, 5], [NAN, 0, 2, 1]])]),
    ("median of equals", lambda m, x: [x.median(), x[:0].sum()],
     [torch.tensor([2.0, 1, 2, -3, 2, 5], dtype=torch.float64)]),
    ("kthvalue", lambda m, x: [x.kthvalue(2), x.kthvalue(1, 0), x.kthvalue(3, 1, True)], [X]),
    ("count_nonzero", lambda m, x: [x.count_nonzero(), x.count_nonzero(0)], [I64]),
    # contractions
    ("mm", lambda m, x, y: [x.mm(y.t()), m.mm(x, y.t())], [X, Y]),
    ("bmm", lambda m, x: x.bmm(x.transpose(1, 2)), [Z]),
    ("vectors", lambda m, x, v, w: [x.mv(v), v.dot(w), v.outer(w), m.outer(v, w)], [X, V, W]),
    ("inner", lambda m, x, v: [x.inner(v), v.inner(v), m.inner(x, x)], [X, V]),
    ("addmm", lambda m, x, y, v: [v.addmm(x.t(), y), v.addmm(x.t(), y, beta=2, alpha=0.5)],
     [X, Y, V]),
    ("addmm beta 0", lambda m, x, y, v: (v * NAN).detach().addmm(x.t(), y, beta=0), [X, Y, V]),
    ("addmv", lambda m, x, v: x[:, 0].addmv(x, v), [X, V]),
    ("addr", lambda m, x, v: x.addr(x[:, 0], v), [X, V]),
    ("baddbmm", lambda m, z: m.baddbmm(z[:, :, :3], z, z.transpose(1, 2), beta=0.5), [Z]),
    ("tensordot", lambda m, x, z: [m.tensordot(z, x, ([1, 2], [0, 1])), m.tensordot(z, x.t(), 1)],
     [X, Z]),
    *[
        (f"einsum {text}", lambda m, *a, text=text: m.einsum(text, *a), inputs)
        for text, inputs in [
            ("ij,jk->ik", [X, Y.t().contiguous()]), ("ij,kj", [X, Y]), ("ij->ji", [X]),
            ("ij->", [X]), ("ij->j", [X]), ("ij,ij->i", [X, Y]), ("i,j->ij", [V, W]),
            ("bij,bkj->bik", [Z, Z]), ("bij,ij->b", [Z, X]), ("...ij,...kj->...ik", [Z, X]),
            ("ii->i", [normal(3, 3)]), ("ii", [normal(3, 3)]), ("ij,jk,kl->il",
            [X, Y.t().contiguous(), X]), ("b i j -> b j", [Z]), ("...", [Z]), ("...i->...", [Z]),
            ("bhqd,bhkd->bhqk", [normal(2, 2, 3, 4), normal(2, 2, 5, 4, seed=2)]),
            ("ij,j->i", [X, V]), ("i,i", [V, W]), ("ba,ca", [X, Y]), ("ij,kl->ijkl", [X, Y]),
            ("bij,bij->", [Z, Z]), ("aij,bjk->abik", [Z, normal(5, 4, 2)]),
            ("ij,ij->ij", [X, X[:1].contiguous()]),
        ]
    ],
    # selection
    ("nonzero", lambda m, x: [x.nonzero(), m.nonzero(x), x.nonzero(as_tuple=True)], [MASK]),
    ("nonzero of numbers", lambda m, x: [(x > 0.2).nonzero(), (x > 9).nonzero()], [Z]),
    ("nonzero of a number", lambda m, x: [x[0].nonzero(), (x[0] * 0).nonzero()], [V]),
    ("argwhere", lambda m, x: x.argwhere(), [I64]),
    ("masked_select", lambda m, x, k: [x.masked_select(k), m.masked_select(x, k[0])], [X, MASK]),
    ("take_along_dim", lambda m, x: [x.take_along_dim(x.argsort(1), 1), x.take_along_dim(
        x.argmax(0, keepdim=True), dim=0)], [X]),
    ("take", lambda m, x, i: x.take(i), [X, torch.tensor([[0, 5], [11, 5]])]),
    ("index_copy", lambda m, x, i, y: [x.index_copy(0, i, y[:2]),
                                       x.index_copy(1, i, y[:, :2])],
     [X, torch.tensor([2, 0]), Y]),
    ("index_fill", lambda m, x, i: [x.index_fill(0, i, 2.0), x.index_fill(-1, i, 0.5)],
     [X, torch.tensor([2, 0])]),
    ("index_put", lambda m, x, i, v: [x.index_put((i,), v), x.index_put((i, i), v[0], True),
                                      x.index_put((x > 9,), v[0])],
     [X, torch.tensor([2, 0]), V]),
    ("equal", lambda m, x: [x.equal(x), x.equal(x + 1), m.equal(x, x[0])], [X]),
    ("allclose", lambda m, x: [x.allclose(x + 1e-9), m.allclose(x, x + 1)], [X]),
    ("bincount", lambda m, x: [m.bincount(x), x.bincount(minlength=9)],
     [torch.tensor([1, 5, 5, 0])]),
    ("bincount weights", lambda m, x, w: m.bincount(x, w.detach()),
     [torch.tensor([1, 5, 5, 0]), V]),
    # joining
    ("cat", lambda m, x, y: [m.cat([x, y]), m.cat((x, y), -1), m.cat([x, y], dim=1)], [X, Y]),
    ("stack", lambda m, x, y: [m.stack([x, y]), m.stack((x, y), -1)], [X, Y]),
    ("stacks", lambda m, x, v: [m.hstack([x, x]), m.vstack([x, v]), m.hstack([v, v])], [X, V]),
    ("dstack", lambda m, x, v: [m.dstack([x, x]), m.column_stack([v, v]), m.vstack([v, v])],
     [X, V]),
    ("broadcast_tensors", lambda m, x, v: m.broadcast_tensors(x, v), [X, V]),
    ("meshgrid", lambda m, v, w: [m.meshgrid(v, w, indexing="ij"), m.meshgrid(
        [v[:3], w], indexing="xy")], [V, W]),
    ("one_hot", lambda m, i: [m.one_hot(i), m.one_hot(i, 9)], [torch.tensor([[1, 5], [0, 2]])]),
    ("triangles", lambda m, x: [m.tril_indices(3, 4), m.triu_indices(4, 3, 1),
                                m.tril_indices(3, 3, -1)], [X]),
]  # fmt: skip


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("name", "function", "inputs"), EXPRESSIONS, ids=[row[0] for row in EXPRESSIONS]
)
def test_expression(name: str, function: Callable[..., object], inputs: list[torch.Tensor]) -> None:
    check(function, inputs)


INPLACE: list[tuple[str, Callable[..., object]]] = [
    ("arithmetic", lambda m, x, y: x.add_(y).mul_(2).sub_(1).div_(y)),
    ("alpha", lambda m, x, y: x.add_(y, alpha=3).sub_(y, alpha=2)),
    ("unary", lambda m, x, y: x.neg_().mul_(0.5).exp_()),
    ("relu", lambda m, x, y: x.relu_()),
    ("clamp", lambda m, x, y: x.clamp_(-0.5, 0.5)),
    ("clamp_min", lambda m, x, y: x.clamp_min_(0)),
    ("fused", lambda m, x, y: x.addcmul_(y, y, value=0.5).addcdiv_(y, y.abs() + 1, value=2)),
    ("fill", lambda m, x, y: x.fill_(3)),
    ("zero", lambda m, x, y: x.zero_()),
    ("copy", lambda m, x, y: x.copy_(y[0])),
    ("masked_fill", lambda m, x, y: x.masked_fill_(y > 0, 2.0)),
    ("pow", lambda m, x, y: x.pow_(2)),
    ("lerp", lambda m, x, y: x.lerp_(y, 0.3)),
    ("logit", lambda m, x, y: x.mul_(0.1).add_(0.5).logit_()),
    ("logit eps", lambda m, x, y: x.logit_(0.1)),
    ("cumprod", lambda m, x, y: x.cumprod_(1)),
    ("sinh", lambda m, x, y: x.sinh_().mul_(y)),
]


@pytest.mark.parametrize(("name", "function"), INPLACE, ids=[row[0] for row in INPLACE])
def test_inplace(name: str, function: Callable[..., object]) -> None:
    """The value is written, the same object is returned, and gradients flow through."""

    def written(m: Namespace, x: object, y: object) -> object:
        target = x * 1
        out = function(m, target, y)
        assert out is target
        return target

    check(written, [X, Y])


WITHOUT_INPUT: list[tuple[str, Callable[..., object]]] = [
    ("addmm", lambda x, a, b: x.addmm(a[0], b[0], beta=0)),
    ("addmv", lambda x, a, b: x[0].addmv(a[0], b[0, :, 0], beta=0)),
    ("addr", lambda x, a, b: x.addr(a[0, :, 0], b[0, 0], beta=0)),
    ("baddbmm", lambda x, a, b: x.baddbmm(a, b, beta=0)),
]


@pytest.mark.parametrize(("name", "function"), WITHOUT_INPUT, ids=[row[0] for row in WITHOUT_INPUT])
def test_what_beta_0_leaves_out_has_a_gradient_of_zeros(
    name: str, function: Callable[..., object]
) -> None:
    """The gradient is PyTorch's, not None; NaN in the operand reaches nothing."""
    inputs = [torch.full((3, 3), NAN, dtype=torch.float64), normal(2, 3, 4), normal(2, 4, 3)]
    grads = []
    for kind in (upload, lambda x: x.clone().requires_grad_()):
        x, a, b = map(kind, inputs)
        total = function(x, a, b).sum()
        total.backward()
        assert not total.isnan().item()
        grads.append(x.grad.tolist())
    assert grads[0] == grads[1] == [[0.0] * 3] * 3


BAD: list[tuple[type[Exception], Callable[..., object]]] = [
    (IndexError, lambda m, x: x.unsqueeze(4)),
    (IndexError, lambda m, x: x.transpose(0, 2)),
    (RuntimeError, lambda m, x: x.flatten(1, 0)),
    (RuntimeError, lambda m, x: x.unsqueeze(0).t()),
    (RuntimeError, lambda m, x: x.split([1, 1], 1)),
    (RuntimeError, lambda m, x: x.split(-1)),
    (RuntimeError, lambda m, x: x.chunk(0)),
    (RuntimeError, lambda m, x: x.narrow(0, 0, 9)),
    (IndexError, lambda m, x: x.narrow(0, 9, 1)),
    (RuntimeError, lambda m, x: x.mm(x[0])),
    (RuntimeError, lambda m, x: x.bmm(x)),
    (RuntimeError, lambda m, x: x[0].dot(x[0][:2])),
    (ValueError, lambda m, x: m.cat([])),
    (TypeError, lambda m, x: m.stack(3) if m.torch_side else m.stack(x)),
    (RuntimeError, lambda m, x: m.stack([x, x[0]])),
    (RuntimeError, lambda m, x: x.detach().add_(m.zeros(2, 3, 4))),
    (RuntimeError, lambda m, x: m.zeros(2, dtype=m.int64).add_(1.5)),
    (ValueError, lambda m, x: m.tensor([[1, 2], [3]])),
    (TypeError, lambda m, x: m.tensor([[1, 2], 3])),
    (TypeError, lambda m, x: m.tensor("abc")),
    (TypeError, lambda m, x: m.from_numpy([1])),
    (RuntimeError, lambda m, x: m.tensor([None])),
    (RuntimeError, lambda m, x: m.zeros(2).to("nowhere")),
    (RuntimeError, lambda m, x: m.zeros(0).max()),
    (NotImplementedError, lambda m, x: x.long().std()),
    (RuntimeError, lambda m, x: m.zeros(2).multinomial(3)),
    (RuntimeError, lambda m, x: m.einsum("ij,jk", x)),
    (RuntimeError, lambda m, x: m.randint(3, 3, (2,))),
    (RuntimeError, lambda m, x: m.one_hot(x)),
    (ValueError, lambda m, x: m.tensor(["a"])),
    (ValueError, lambda m, x: m.as_tensor([["a"], [1]])),
    (TypeError, lambda m, x: m.tensor([1, "a"])),
    (TypeError, lambda m, x: m.tensor([b"a"])),
    (TypeError, lambda m, x: x.imag),
    (TypeError, lambda m, x: m.view_as_real(x)),
    (TypeError, lambda m, x: m.rand(2, generator=3)),
    (RuntimeError, lambda m, x: m.Generator().manual_seed("x")),
    (RuntimeError, lambda m, x: m.Generator().manual_seed(1.5)),
    (RuntimeError, lambda m, x: m.arange(3).bincount(minlength=-1)),
    (RuntimeError, lambda m, x: m.einsum("ij->k", m.ones(2, 2))),
    (RuntimeError, lambda m, x: m.ones(2).repeat_interleave(m.tensor([1, -1]))),
    (RuntimeError, lambda m, x: m.tril_indices(-1, 2)),
    (RuntimeError, lambda m, x: m.triu_indices(2, -1)),
]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("kind", "function"), BAD, ids=range(len(BAD)))
def test_error(kind: type[Exception], function: Callable[..., object]) -> None:
    """PyTorch's class; and a class of GT's."""
    with pytest.raises(kind):
        function(THEIRS, X)
    with pytest.raises(kind) as caught:
        function(OURS, upload(X))
    assert isinstance(caught.value, errors.Error)


@pytest.mark.parametrize("name", gt.autograd.forward_ad.__all__)
def test_forward_mode_says_what_to_use(name: str) -> None:
    function = getattr(gt.autograd.forward_ad, name)
    given = {"make_dual": (X, X), "unpack_dual": (X,)}.get(name, ())
    with pytest.raises(NotImplementedError, match=rf"^forward_ad.{name}: .* gt.func.jvp"):
        function(*given)


def test_a_broadcast_shape_is_a_size() -> None:
    assert type(gt.broadcast_shapes((2, 1), (3,))) is gt.Size


SAME_TEXT = [3, 4, 5, 6, 7, 9, 11, 17, 19, 20, 21, 23]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("number", SAME_TEXT)
def test_error_text(number: int) -> None:
    """PyTorch's text."""
    texts = []
    for m, x in ((THEIRS, X), (OURS, upload(X))):
        try:
            BAD[number][1](m, x)
        except Exception as error:  # noqa: BLE001, PERF203
            texts.append(str(error).replace("torch.", "").replace("gt.", ""))
    assert texts[1].startswith(texts[0].splitlines()[0][:60])


@pytest.mark.parametrize(
    "copied",
    [
        lambda x: x.roll(0, 0),
        lambda x: x.roll(-3, 0),
        lambda x: x.roll((0, 4), (0, 1)),
        lambda x: x.roll(12),
        lambda x: x.repeat_interleave(1),
        lambda x: x.repeat_interleave(1, -1),
        lambda x: x[:1].repeat_interleave(2, 0),
        lambda x: x.repeat(1, 1),
    ],
)
def test_a_copy_is_no_view(copied: Callable[..., Tensor]) -> None:
    """Not even where nothing moves: what is written into it stays there."""
    x = upload(X)
    copied(x).fill_(7)
    assert x.tolist() == X.tolist()


def test_every_inplace_name_has_a_functional_one() -> None:
    from gt.composite import inplace

    for name in (*inplace.DIRECT, *inplace.GENERAL):
        assert f"{name}_" in dir(_core.Tensor), name
        assert f"{name}_" in dir(torch.Tensor), name


def test_dtype_of_a_cast_name() -> None:
    x = call("full", size=(2,), value=1, dtype=_core.float32)
    assert x.type() == "gt.FloatTensor"
    assert x.type("torch.LongTensor").dtype == _core.int64


@pytest.mark.parametrize(
    ("equation", "shapes", "actions"),
    [
        ("ij,jk->ik", [(2, 3), (3, 4)], ["matmul"]),
        ("ij,kj->ik", [(2, 3), (4, 3)], ["permute", "matmul"]),
        ("bij,bjk->bik", [(5, 2, 3), (5, 3, 4)], ["matmul"]),
        ("i,i->", [(3,), (3,)], ["reshape", "reshape", "matmul", "reshape"]),
        ("ij->ji", [(2, 3)], ["permute"]),
        ("ij->ij", [(2, 3)], ["permute"]),
        ("ii->", [(3, 3)], ["diagonal", "sum"]),
    ],
)
def test_an_equation_takes_no_step_that_changes_nothing(
    equation: str, shapes: list[tuple[int, ...]], actions: list[str]
) -> None:
    steps = importlib.import_module("gt.composite.einsum").planned(equation, tuple(shapes), False)
    assert [step.action for step in steps] == actions
    ours, theirs = (
        m.einsum(equation, *(m.arange(math.prod(shape)).reshape(shape) * 1.0 for shape in shapes))
        for m in (gt, torch)
    )
    assert ours.tolist() == theirs.tolist()


def test_a_tensor_of_many_entries_is_taken_apart() -> None:
    entries = gt.arange(70_000).unbind()
    assert len(entries) == 70_000
    assert entries[69_999].item() == 69_999


ONE_HOT: list[tuple[object, ...]] = [
    ([0, 2, 1],),
    ([0, 2, 1], 5),
    (2, 4),
    ([[0, 1]], 2),
    ([0, 2, 1], 2),
    ([-1, 1],),
]
ONE_HOT += [([-1, 1], 3), ([-2, -3],), ([0, 1], 0), ([0, 1], -2), ([], 3), ([],)]
ONE_HOT += [([0.0, 1.0], 2), ([True], 2)]


@pytest.mark.parametrize("case", ONE_HOT, ids=str)
def test_one_hot_takes_classes_only(case: tuple[object, ...]) -> None:
    outcomes: list[object] = []
    for t in (gt, torch):
        classes = t.tensor(case[0]) if case[0] != [] else t.zeros(0, dtype=t.int64)
        try:
            rows = t.nn.functional.one_hot(classes, *case[1:])
            outcomes.append((rows.tolist(), rows.shape, str(rows.dtype).split(".")[1]))
        except RuntimeError:
            outcomes.append(RuntimeError)
    assert outcomes[0] == outcomes[1]
