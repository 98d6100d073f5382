"""Complex tensors: creation, promotion, reading, text, operators, gradients, layouts."""

import pickle

import numpy as np
import pytest
from spread_session import workers

import gt

torch = pytest.importorskip("torch")

DTYPES = [(gt.complex64, torch.complex64), (gt.complex128, torch.complex128)]
VALUES = [[1 + 2j, 3 - 1.5j, -0.5j], [0, 2, -1 - 1j]]


def both(values=VALUES, *, dtype="complex64", requires_grad=False):
    """Equal values in GT and in PyTorch."""
    ours = gt.tensor(values, dtype=getattr(gt, dtype), requires_grad=requires_grad)
    return ours, torch.tensor(values, dtype=getattr(torch, dtype), requires_grad=requires_grad)


def same(ours, theirs, tolerance=1e-6):
    """Dtype, shape and values are PyTorch's."""
    assert str(ours.dtype).replace("gt.", "torch.") == str(theirs.dtype)
    assert tuple(ours.shape) == tuple(theirs.shape)
    theirs = theirs.detach().resolve_conj().resolve_neg().numpy()
    np.testing.assert_allclose(ours.detach().numpy(), theirs, rtol=tolerance, atol=tolerance)


def test_creation_and_reading():
    assert gt.tensor(VALUES).dtype is gt.complex64
    assert gt.tensor(VALUES).tolist() == VALUES
    assert gt.tensor(1 + 2j).item() == 1 + 2j
    assert type(gt.tensor(2, dtype=gt.complex128).item()) is complex
    array = np.array(VALUES)
    assert gt.from_numpy(array).dtype is gt.complex128
    assert (gt.from_numpy(array).numpy() == array).all()
    assert gt.from_torch(torch.tensor(VALUES)).tolist() == VALUES
    assert gt.to_torch(gt.tensor(VALUES)).tolist() == VALUES
    assert gt.full((2,), 1j).tolist() == [1j, 1j]
    assert gt.zeros(2, dtype=gt.cfloat).tolist() == [0j, 0j]
    assert gt.ones(2, dtype=complex).dtype is gt.complex128
    assert gt.eye(2, dtype=gt.cdouble).tolist() == [[1, 0], [0, 1]]
    assert gt.complex(gt.ones(2), gt.zeros(2)).tolist() == [1, 1]
    assert pickle.loads(pickle.dumps(gt.tensor(VALUES))).tolist() == VALUES
    assert complex(gt.tensor(3 - 1j)) == 3 - 1j
    x = gt.tensor([1.0, 2.0])
    assert x.to(gt.complex64).tolist() == [1, 2]
    assert x.cdouble().dtype is gt.complex128
    assert gt.complex64.is_complex
    assert not gt.complex64.is_floating_point
    assert (gt.complex64.itemsize, gt.complex128.itemsize) == (8, 16)


def test_default_float_decides_of_python_numbers():
    gt.set_default_dtype(gt.float64)
    try:
        assert gt.tensor([1j]).dtype is gt.complex128
        assert (gt.tensor([1, 2]) * 1j).dtype is gt.complex128
        assert (gt.ones(2, dtype=gt.float32) * 1j).dtype is gt.complex64
    finally:
        gt.set_default_dtype(gt.float32)


NAMES = ["bool", "uint8", "int64", "float32", "float64", "complex64", "complex128"]


@pytest.mark.parametrize("other", NAMES)
def test_promotion_is_pytorchs(other):
    for name in ("complex64", "complex128"):
        for size, other_size in (((2,), (2,)), ((2,), ()), ((), (2,)), ((), ())):
            pairs = [
                (m.ones(size, dtype=getattr(m, name)), m.ones(other_size, dtype=getattr(m, other)))
                for m in (gt, torch)
            ]
            ours, theirs = pairs[0][0] + pairs[0][1], pairs[1][0] + pairs[1][1]
            assert ours.dtype.name == str(theirs.dtype)[6:], (name, other, size, other_size)
            assert gt.result_type(*pairs[0]).name == str(torch.result_type(*pairs[1]))[6:]
            assert (pairs[0][0] * pairs[0][1]).dtype == ours.dtype
        assert (
            gt.promote_types(getattr(gt, name), getattr(gt, other)).name
            == str(torch.promote_types(getattr(torch, name), getattr(torch, other)))[6:]
        )
    a = gt.ones(2, dtype=getattr(gt, other)) * 1j
    assert a.dtype.name == str((torch.ones(2, dtype=getattr(torch, other)) * 1j).dtype)[6:]


@pytest.mark.parametrize(
    "values",
    [
        VALUES, [1 + 2j, 3 - 1j], 1 + 2.5j, [1e5 + 1j], [complex("nan"), complex(1, np.inf)], [],
        [[1.5j * k for k in range(40)]], list(np.linspace(0, 1, 1200) * (1 - 2j)),
        [1 + 2j, 3e4 - 1e-5j, 5], [10.5 + 2j, 3 - 123j, complex(-0.0, -0.0)],
    ],
    ids=range(10),
)  # fmt: skip
@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
def test_text_is_pytorchs(values, dtype):
    ours, theirs = both(values, dtype=dtype)
    assert repr(ours) == repr(theirs).replace("torch.", "gt.")


FUNCTIONS = {
    "arithmetic": lambda m, z: (z + 1j) * z - z / (2 - 1j) + 2 / (z + 3) - (1j - z) * -z,
    "powers": lambda m, z: (z + 3) ** 2 + (z + 3) ** (1 + 1j) + 2**z,
    "functions": lambda m, z: z.exp() + z.sin() * m.cos(z) + (z + 5).log() + (z + 5).sqrt(),
    "abs": lambda m, z: (z + 5).abs(),
    "angle": lambda m, z: (z + 5).angle(),
    "sgn": lambda m, z: m.sgn(z + 5),
    "parts": lambda m, z: z.real * 2 + z.imag,
    "conj": lambda m, z: z.conj() * z + m.conj_physical(z),
    "matmul": lambda m, z: z @ z.mH + m.mm(z, z.T),
    "linear": lambda m, z: m.nn.functional.linear(z, z),
    "vdot": lambda m, z: m.vdot(z[0], z[1]),
    "sums": lambda m, z: z.sum(0) + z.mean() + z.prod(1).sum() + z.cumsum(0)[0],
    "spread": lambda m, z: z.var() + z.std(0) + z.norm() + z.norm(1, dim=0),
    "views": lambda m, z: m.stack([z, z]).permute(2, 0, 1).reshape(6, 2)[1:4].flip(0),
    "joined": lambda m, z: m.cat([z, z.real], 1),
    "where": lambda m, z: m.where(z.real > 0, z, 1.0) + z.masked_fill(z.imag > 0, 0),
    "looked up": lambda m, z: z[:, [0, 2, 0]] + z.gather(1, m.tensor([[0, 1, 1], [2, 2, 0]])),
    "parts again": lambda m, z: m.view_as_complex(m.view_as_real(z) * 2),
    "fft": lambda m, z: m.fft.ifft(m.fft.fft(z, n=5).abs()),
    "eigenvalues": lambda m, z: m.linalg.eigvals(z[:, :2] + m.eye(2) * 3).abs().sort()[0],
    "solve": lambda m, z: m.linalg.solve(z[:, :2] + m.eye(2) * 3, z),
    "of reals": lambda m, z: m.complex(z.real, z.imag) + m.polar(z.abs() + 1, z.real),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_values_and_gradients_are_pytorchs(name):
    (ours, theirs), function = both(dtype="complex128", requires_grad=True), FUNCTIONS[name]
    results = function(gt, ours), function(torch, theirs)
    same(*results, 1e-9)
    weights = torch.linspace(1, 2, results[1].numel()).reshape(results[1].shape).double()
    loss = (results[1] * weights).abs().sum()
    loss.backward()
    (results[0] * gt.from_torch(weights)).abs().sum().backward()
    same(ours.grad, theirs.grad, 1e-9)
    with gt.no_grad():
        same(function(gt, both()[0]), function(torch, both()[1]).detach(), 1e-5)


def test_gradient_of_a_real_operand_is_real():
    x, t = gt.tensor([1.0, 2.0], requires_grad=True), torch.tensor([1.0, 2.0], requires_grad=True)
    for m, a in ((gt, x), (torch, t)):
        ((a * (1 + 2j)).exp() + m.tensor([1j, 2]) * a + a.to(m.complex64)).abs().sum().backward()
    same(x.grad, t.grad, 1e-5)


def test_second_derivative():
    ours, theirs = both(dtype="complex128", requires_grad=True)
    for m, z in ((gt, ours), (torch, theirs)):
        (first,) = m.autograd.grad((z * z * z).abs().sum(), z, create_graph=True)
        first.abs().sum().backward()
    same(ours.grad, theirs.grad, 1e-9)


def test_written_in_place():
    ours, theirs = both()
    for m, z in ((gt, ours), (torch, theirs)):
        z.add_(1).mul_(1j)
        z[0, 1] = 5 - 2j
        z[:, m.tensor([2])] = 3j
        z[1].mul_(2).add_(m.ones(3))
        z[0].fill_(1 + 1j)
        z.real = m.tensor([1.0, 2.0, 3.0])
        z.imag = 4
    same(ours, theirs)


@pytest.fixture
def two_workers():
    with workers(2):
        yield


@pytest.mark.usefixtures("two_workers")
def test_layouts():
    values = np.arange(24).reshape(4, 6) * (1 - 0.5j) + 1
    theirs = torch.tensor(values, requires_grad=True)
    for dim in (0, 1):
        ours = gt.distribute(gt.tensor(values), dim=dim).requires_grad_()
        for function in (
            lambda m, z: (z * z + 1j).exp().abs().log().sum(),
            lambda m, z: (z @ z.mH).abs().sum() + z.sum().abs() + z.mean(0).abs().sum(),
            lambda m, z: (m.cat([z, z.conj()]).T.reshape(-1)[3:] * 2j).real.sum(),
            lambda m, z: m.fft.fft(z).abs().sum() + z.prod(0).abs().sum() + z.abs().amax(),
        ):
            ours.grad = theirs.grad = None
            result, expected = function(gt, ours), function(torch, theirs)
            same(result, expected, 1e-9)
            result.backward()
            expected.backward()
            np.testing.assert_allclose(ours.grad.numpy(), theirs.grad.numpy(), rtol=1e-9)


REFUSED = {
    "backward of a complex loss": (
        lambda m, z: z.requires_grad_().sum().backward(),
        "grad can be implicitly created only for real scalar outputs but got",
    ),
    "abs in place": (lambda m, z: z.abs_(), "In-place abs is not supported for complex"),
    "order": (lambda m, z: (z < 1).tolist(), "lt"),
    "extremes": (lambda m, z: z.amax().tolist(), "not implemented for 'ComplexFloat'"),
    "sort": (lambda m, z: z.sort()[0].tolist(), "ort"),
    "imag of reals": (lambda m, z: m.ones(2).imag, "imag is not implemented for tensors with non"),
    "real result": (lambda m, z: m.ones(2, 3).add_(z), "result type ComplexFloat can't be cast"),
    "float": (lambda m, z: float(z[0, 0]), "without overflow"),
    "real data": (lambda m, z: m.tensor([1j], dtype=m.float32), "must be real number"),
    "fill": (lambda m, z: m.ones(2).fill_(1j), "without overflow"),
    "floor": (lambda m, z: z.floor().tolist(), "floor"),
    "parts": (lambda m, z: m.view_as_real(m.ones(2)), "only supported for complex"),
    "polar": (
        lambda m, z: m.complex(m.ones(2), m.ones(2).double()).tolist(),
        "Expected object of scalar",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused_as_pytorch_does(name):
    act, text = REFUSED[name]
    ours, theirs = both()
    kinds = (RuntimeError, TypeError, ValueError)
    with pytest.raises(kinds, match=text):
        act(torch, theirs)
    with pytest.raises(kinds, match=text):
        act(gt, ours)


def test_a_part_is_not_written_in_silence():
    z = gt.tensor(VALUES)
    for part in (z.real, z.imag, gt.view_as_real(z), z.real[0]):
        with pytest.raises(RuntimeError, match="a part of a complex tensor is a value of its own"):
            part.add_(1)
    with pytest.raises(RuntimeError, match="a part of a complex tensor"):
        z.real[0] = 1.0
    assert z.tolist() == VALUES


def test_half_precision_has_no_complex_dtype():
    with pytest.raises(NotImplementedError, match="complex32"):
        (gt.ones(2, dtype=gt.float16) * 1j).tolist()


@pytest.mark.parametrize("name", ["complex64", "complex128"])
def test_draws_have_both_parts(name):
    """Means and deviations of each part as PyTorch's; 20,000 numbers, five standard errors."""
    dtype, count = getattr(gt, name), 20_000
    gt.manual_seed(3)
    torch.manual_seed(3)
    draws = {
        "rand": lambda library, kind: library.rand(count, dtype=kind),
        "randn": lambda library, kind: library.randn(count, dtype=kind),
        "rand_like": lambda library, kind: library.rand_like(library.zeros(count, dtype=kind)),
        "randn_like": lambda library, kind: library.randn_like(library.zeros(count, dtype=kind)),
        "normal_": lambda library, kind: library.zeros(count, dtype=kind).normal_(1.0, 2.0),
        "uniform_": lambda library, kind: library.zeros(count, dtype=kind).uniform_(-1.0, 2.0),
    }
    for draw, function in draws.items():
        found = function(gt, dtype)
        wanted = function(torch, getattr(torch, name))
        assert found.dtype == dtype
        for part in ("real", "imag"):
            ours, theirs = (getattr(x.numpy(), part) for x in (found, wanted))
            assert ours.mean() == pytest.approx(theirs.mean(), abs=0.07), (draw, part)
            assert ours.std() == pytest.approx(theirs.std(), rel=0.05), (draw, part)


def test_a_complex_layer_is_made_and_trained():
    layer = gt.nn.Linear(3, 2, dtype=gt.complex64)
    x = gt.randn(4, 3, dtype=gt.complex64)
    layer(x).abs().sum().backward()
    weight = torch.tensor(layer.weight.detach().numpy(), requires_grad=True)
    bias = torch.tensor(layer.bias.detach().numpy(), requires_grad=True)
    torch.nn.functional.linear(torch.tensor(x.numpy()), weight, bias).abs().sum().backward()
    assert np.allclose(layer.weight.grad.numpy(), weight.grad.numpy(), atol=1e-5)
    assert np.allclose(layer.bias.grad.numpy(), bias.grad.numpy(), atol=1e-5)


def test_a_signal_comes_back_from_its_frequencies():
    found = []
    for lib in (gt, torch):
        x = lib.linspace(-1, 1, 64, dtype=lib.float64).sin().requires_grad_()
        window = lib.hann_window(16, dtype=lib.float64)
        options = {"hop_length": 4, "window": window}
        spectrum = x.stft(16, return_complex=True, **options)
        back = spectrum.istft(16, length=64, **options)
        (back * back).sum().backward()
        found.append([back.tolist(), x.grad.tolist()])
    torch.testing.assert_close(*map(torch.tensor, found))


PARTS = ["view_as_real(z)", "z.real", "z.imag", "view_as_complex(x)", "z.real[1:]"]
FILLINGS = {
    "copy_": lambda m, module, new: copied(m, module.p, new),
    "data": lambda m, module, new: module.p.data.copy_(new),
    "load_state_dict": lambda m, module, new: module.load_state_dict({"p": new}),
    "init": lambda m, module, new: m.nn.init.constant_(module.p, 0.5),
    "step": lambda m, module, new: stepped(m, module.p),
}


def copied(m, parameter, new):
    with m.no_grad():
        parameter.copy_(new)


def stepped(m, parameter):
    optimizer = m.optim.SGD([parameter], lr=0.5)
    (parameter * parameter.conj()).sum().abs().backward()
    optimizer.step()


CASES = [(part, filling) for part in PARTS for filling in FILLINGS]
CASES.remove(("view_as_complex(x)", "step"))  # the optimizers are of real numbers


@pytest.mark.parametrize(("part", "filling"), CASES)
def test_a_parameter_made_of_a_part_is_written(part, filling):
    def run(m):
        names = {"m": m, "z": m.tensor([1 + 2j, 3 - 1j]), "x": m.tensor([[1.0, 2.0], [3.0, -1.0]])}
        call = part if part[0] == "z" else f"m.{part}"
        module = m.nn.Module()
        module.p = m.nn.Parameter(eval(call, names))
        FILLINGS[filling](m, module, m.ones_like(module.p.detach()) * 2)
        return module.p.tolist()

    assert run(gt) == run(torch)
