"""Tensors of the device `mux` as programs use them, beside the host's."""

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from front_devices import Program, assert_same_on_both, ramp
from front_paths import front_path  # noqa: F401 - runs each test in both ways
from torch import nn
from torch.nn import functional as F
from torch_session import torch_workers

import gt.torch  # noqa: F401 - names the device

PROGRAMS: dict[str, Program] = {}


def program(function: Program) -> Program:
    PROGRAMS[function.__name__] = function
    return function


@pytest.fixture(scope="module", autouse=True)
def _workers() -> Iterator[None]:
    with torch_workers(1):
        yield


VIEWS = {
    "view": lambda x: x.view(-1),
    "t": lambda x: x.t(),
    "T": lambda x: x.T,
    "select": lambda x: x[1],
    "slice": lambda x: x[:, 1:3],
    "step": lambda x: x[::2],
    "neg": lambda x: x[-2:],
    "unsq": lambda x: x.unsqueeze(1),
    "perm": lambda x: x.permute(1, 0),
    "diag": lambda x: x.diagonal(),
    "unfold": lambda x: x.unfold(0, 2, 2),
    "chunk": lambda x: x.chunk(2, 1)[1],
    "split": lambda x: x.split([1, 3], 1)[1],
    "unbind": lambda x: x.unbind(0)[2],
    "narrow": lambda x: x.narrow(1, 1, 2),
    "strided": lambda x: x.as_strided((2, 2), (4, 1), 1),
    "flatten": lambda x: x.flatten(),
    "reshape": lambda x: x.reshape(2, -1),
    "detach": lambda x: x.detach(),
    "data": lambda x: x.data,
    "real": lambda x: x.real,
    "swap": lambda x: x.swapaxes(0, 1),
    "movedim": lambda x: x.movedim(0, 1),
    "squeeze": lambda x: x.unsqueeze(0).squeeze(0),
    "view_as": lambda x: x.view_as(torch.empty(2, 8, device=x.device)),
    "tt": lambda x: x.t()[1:].t(),
    "hsplit": lambda x: x.hsplit(2)[0],
    "ellipsis": lambda x: x[..., 0],
    "unflat": lambda x: x.unflatten(0, (2, 2)),
    "tsplit": lambda x: x.tensor_split(2)[1],
    "contig": lambda x: x.contiguous(),
    "exp": lambda x: x[:1].expand(1, 4),
    "alias": torch.ops.aten.alias,
}

# Functions that return several views, which must not be written while recorded.
SEVERAL = {"chunk", "split", "unbind"}


@program
def data(device: str) -> Any:
    p = nn.Parameter(ramp(2).to(device))
    q = p.data
    p.data = ramp(2).to(device) + 5
    r = p.clone().detach()
    p.data.mul_(2)
    p.data[0] = 9.0
    return (p, q, r, p.data.requires_grad)


@program
def resize(device: str) -> Any:
    x = ramp(6).to(device)
    x.resize_(2, 3)
    y = ramp(4).to(device)
    y.unsqueeze_(0).t_()
    z = ramp(2, 2).to(device)
    w = z.view(4)
    z.transpose_(0, 1)
    z.mul_(2)
    s = ramp(1, 2).to(device)
    s.squeeze_()
    return (x, y, z, w, s, y.shape, s.shape, z.stride())


@program
def outs(device: str) -> Any:
    o = torch.empty(0, device=device)
    torch.add(ramp(2).to(device), 1, out=o)
    m = torch.empty(2, 2, device=device)
    torch.mm(ramp(2, 2).to(device), ramp(2, 2).to(device), out=m)
    v, i = (torch.empty(2, device=device), torch.empty(2, device=device, dtype=torch.long))
    torch.max(ramp(2, 2).to(device), 1, out=(v, i))
    c = torch.cat([ramp(2).to(device)] * 2, out=torch.empty(4, device=device))
    return (o, m, v, i, c, torch.sum(ramp(2, 2).to(device), 0, out=torch.empty(2, device=device)))


@program
def factories(device: str) -> Any:
    k = {"device": device}
    return (
        torch.zeros(2, **k),
        torch.ones(2, 2, **k, dtype=torch.int32),
        torch.full((2,), 3.0, **k),
        torch.arange(1, 7, 2, **k),
        torch.arange(0, 1, 0.25, **k),
        torch.eye(2, 3, **k),
        torch.linspace(0, 1, 5, **k),
        torch.tensor([[1, 2]], **k),
        torch.logspace(0, 2, 3, **k),
        torch.tril_indices(3, 3, **k),
        torch.triu_indices(3, 3, **k),
        torch.as_tensor([1.0, 2.0], **k),
        torch.scalar_tensor(2.0, **k),
        torch.hann_window(4, **k),
        torch.bartlett_window(4, **k),
        torch.hamming_window(4, **k),
        torch.full((2,), True, **k),
        torch.arange(5, device=device, dtype=torch.float16),
        torch.zeros(2, dtype=torch.bfloat16, **k),
        torch.tensor(3, **k),
        torch.tensor(2 + 1j, **k),
        torch.empty(2, 3, **k).shape,
        torch.kaiser_window(4, **k),
        torch.blackman_window(4, **k),
        torch.fft.fftfreq(4, **k),
        torch.complex(ramp(2).to(device), ramp(2).to(device)),
        torch.vander(ramp(3).to(device)),
        torch.cartesian_prod(ramp(2).to(device), ramp(2).to(device)),
        torch.meshgrid(ramp(2).to(device), ramp(3).to(device), indexing="ij"),
    )


@program
def likes(device: str) -> Any:
    x = ramp(2, 2).to(device)
    return (
        torch.zeros_like(x),
        torch.ones_like(x, dtype=torch.int64),
        torch.full_like(x, 2),
        x.new_zeros(3),
        x.new_ones(2, 2),
        x.new_full((2,), 7.0),
        x.new_tensor([1.0, 2.0]),
        torch.zeros_like(x, device="cpu").device.type,
        torch.ones_like(ramp(2), device=device),
        x.new_zeros(2, device="cpu").device.type,
        torch.empty_like(x).shape,
        x.new_empty(3).shape,
    )


@program
def scalars(device: str) -> Any:
    x = ramp(3).to(device)
    return (
        x[1].item(),
        bool(x[1] > 0),
        float(x[2]),
        int(x[2]),
        len(x),
        [v.item() for v in x],
        x.tolist(),
        (x >= 0).all().item(),
        torch.equal(x, x),
        torch.allclose(x, x + 1e-09),
        2.0 in x,
        x.argmax().item(),
        f"{x[1]:.2f}",
        x.nelement(),
        [1, 2, 3][torch.tensor(1, device=device)],
        range(3)[x[1].long()] if True else 0,
    )


@program
def indexing(device: str) -> Any:
    x = ramp(4, 4).to(device)
    i = torch.tensor([0, 2])
    j = i.to(device)
    m = x > 5
    x2 = x.clone()
    x2[m] = 0
    x2[0] = 7
    x2[:, 1] = ramp(4).to(device)
    x2[j] = 1.0
    x2[j, i.to(device)] = torch.tensor([3.0, 4.0], device=device)
    x3 = x.clone()
    x3[i] = 5.0
    x3[1, 2] = torch.tensor(8.0)
    x4 = x.clone()
    x4.index_put_((j, j), torch.ones(2, device=device), accumulate=True)
    x4[:, j] += 1
    return (
        x[j],
        x[i],
        x[m],
        x[j, j],
        x[:, j],
        x[None, 1],
        x[..., -1],
        x[[0, 1]],
        x[j][:, j],
        x2,
        x3,
        x4,
        x[torch.tensor(1)],
        x[torch.tensor([True, False, True, False])],
        x.nonzero(),
        torch.where(m)[0],
        x.take(j),
        x[1:3, j],
        x.masked_fill(m, -1),
        x.masked_select(m),
        x[[[0]], [[1]]],
    )


@program
def mixed(device: str) -> Any:
    x = ramp(3).to(device)
    return [
        x * torch.tensor(2.0),
        torch.tensor(2.0) * x,
        x + torch.tensor(1),
        x * 2.5,
        2 - x,
        x / 2,
        x**2,
        2**x,
        x // 2,
        x % 2,
        -x,
        abs(x),
        x > 1,
        ~(x > 1),
        x.long() & 1,
        x @ x,
    ]


def error(function: Any) -> str:
    """The builtin class of what a call raises; of a failed value when it is read."""
    with pytest.raises(Exception, match=r".") as raised:
        function().cpu()
    return next(x.__name__ for x in raised.type.__mro__ if x.__module__ == "builtins")


@program
def errors(device: str) -> Any:
    x = ramp(2, 3).to(device)
    functions = (
        lambda: x @ x,
        lambda: x.view(4),
        lambda: x + ramp(4).to(device),
        lambda: x[5],
        lambda: torch.cat([x, ramp(2, 2).to(device)]),
        lambda: x.sum(5),
        lambda: F.cross_entropy(x, torch.tensor([0], device=device)),
        lambda: x.t().view(-1),
        lambda: F.embedding(torch.tensor([9], device=device), x),
        lambda: x.requires_grad_().add_(1),
        lambda: ramp(2).to(device).backward(),
    )
    return [error(function) for function in functions]


@program
def versions(device: str) -> Any:
    x = ramp(3).to(device).requires_grad_()
    y = x * 1
    y.exp()
    z2 = y * y
    y.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        z2.sum().backward()
    return x.grad


@program
def moves(device: str) -> Any:
    x = ramp(2, 2)
    y = x.to(device)
    return (
        y.to("cpu"),
        y.cpu(),
        y.to(torch.float64),
        y.double(),
        y.half(),
        y.to(device) is y,
        y.to(y),
        y.type(torch.int32),
        x.to(y),
        y.to("cpu", torch.float64),
        y.bool(),
        y.to(dtype=torch.bfloat16),
        y.float() is y,
        y.to(device, copy=True) is y,
        x.type_as(y),
        torch.empty(2, 2).copy_(y),
        y.contiguous(memory_format=torch.contiguous_format),
    )


@program
def reprs(device: str) -> Any:
    return (
        repr(ramp(2, 2).to(device)).replace(", device='mux:0'", ""),
        repr(ramp(2).to(device).requires_grad_()).replace(", device='mux:0'", ""),
        repr(nn.Parameter(ramp(2).to(device))).replace(", device='mux:0'", ""),
        repr(ramp(2).to(device).requires_grad_() * 2).replace(", device='mux:0'", ""),
        str(torch.zeros(0, device=device)).replace(", device='mux:0'", ""),
        repr(torch.tensor(3, device=device)).replace(", device='mux:0'", ""),
        repr(ramp(3).to(device).double()).replace(", device='mux:0'", ""),
    )


@program
def complex_numbers(device: str) -> Any:
    x = torch.complex(ramp(3), ramp(3) + 1).to(device)
    return (
        x.real,
        x.imag,
        x.conj(),
        x.abs(),
        x.angle(),
        torch.view_as_real(x),
        (x * x.conj()).real,
        x.conj().resolve_conj(),
        torch.fft.fft(ramp(4).to(device)),
        x.conj() + x,
        x.conj().imag,
    )


@program
def sets(device: str) -> Any:
    x = ramp(3).to(device)
    y = ramp(4).to(device)
    x.set_(y)
    y.add_(1)
    return x


@program
def swap_grad(device: str) -> Any:
    x = ramp(3).to(device).requires_grad_()
    x.grad = torch.ones(3, device=device)
    x.grad.mul_(2)
    x.grad = None
    (x * 2).sum().backward()
    x.grad.zero_()
    return x.grad


@program
def sorting(device: str) -> Any:
    x = torch.tensor([3.0, 1.0, 2.0]).to(device)
    return (
        x.sort(),
        x.topk(2),
        x.argsort(),
        x.unique(),
        torch.unique(x, return_inverse=True, return_counts=True),
        x.kthvalue(2),
        x.median(),
        x.cumsum(0),
        x.msort(),
        torch.bincount(x.long()),
        torch.histc(x, 3),
        x.max(0),
        x.min(),
        x.aminmax(),
        x.quantile(0.5),
        torch.searchsorted(x.sort()[0], x),
        x.mode(),
        x.logcumsumexp(0),
        torch.isin(x, x[:1]),
        x.diff(),
    )


@program
def lists(device: str) -> Any:
    x = ramp(4, 2).to(device)
    return (
        torch.stack([x, x]),
        torch.cat([x, x], 1),
        torch.vstack([x, x]),
        torch.block_diag(x, x),
        torch.broadcast_tensors(x, x[:1]),
        torch.atleast_2d(x[0]),
        x.repeat(2, 1),
        x.tile(2),
        x.roll(1, 0),
        x.flip(0),
        x.rot90(),
        torch.einsum("ij,kj->ik", x, x),
        x.repeat_interleave(2, 0),
        torch.tensordot(x, x, ([0], [0])),
        torch.kron(x, x),
        x.gather(0, torch.zeros(1, 2, dtype=torch.long, device=device)),
        x.scatter(0, torch.zeros(1, 2, dtype=torch.long, device=device), 9.0),
        x.index_add(0, torch.tensor([0], device=device), x[:1]),
        torch.trapz(x),
        x.tril(),
        x.outer(x) if False else x[:, 0].outer(x[:, 1]),
        torch.linalg.norm(x),
        x.norm(),
        torch.linalg.inv(x[:2] + torch.eye(2, device=device)),
        torch.linalg.qr(x),
        x.cov(),
        torch.cdist(x, x),
        torch.baddbmm(x[None], x[None] @ x.t() @ x * 0, torch.eye(2, device=device)[None])
        if False
        else 0,
    )


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_is_the_same_on_both(name: str) -> None:
    assert_same_on_both(PROGRAMS[name])


@pytest.mark.parametrize("name", VIEWS)
def test_writes_show_in_views_and_in_what_they_are_of(name: str) -> None:
    def write(device: str) -> Any:
        x = ramp(4, 4).to(device)
        y = VIEWS[name](x)
        y.mul_(2)
        seen = x.clone()
        x.add_(1)
        facts = (y.stride(), y.storage_offset(), y._is_view(), y.is_contiguous())
        return x, y, seen, facts

    assert_same_on_both(write)


@pytest.mark.parametrize("name", VIEWS)
def test_gradients_pass_writes_to_views(name: str) -> None:
    def differentiate(device: str) -> Any:
        x = ramp(4, 4).to(device).requires_grad_()
        z = x * 2
        y = VIEWS[name](z)
        if name in SEVERAL:
            with pytest.raises(RuntimeError, match="a function that returns multiple views"):
                y.mul_(3)
            return None
        with torch.no_grad() if name in ("data", "detach") else torch.enable_grad():
            y.mul_(3)
        (z * z).sum().backward()
        return z, x.grad

    assert_same_on_both(differentiate)


def test_tensors_of_other_devices_are_refused() -> None:
    x = ramp(3).to("mux")
    for function in (
        lambda: x + ramp(3),
        lambda: torch.cat([x, ramp(3)]),
        lambda: F.linear(x[None], ramp(2, 3)),
    ):
        with pytest.raises(RuntimeError, match="Expected all tensors to be on the same device"):
            function()
    with pytest.raises(TypeError, match="can't convert mux:0 device type tensor to numpy"):
        x.numpy()
