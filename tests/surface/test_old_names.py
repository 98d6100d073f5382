"""Names and paths that programs of PyTorch have used since its first years, in both."""

import importlib
import sys
import warnings

import numpy as np
import pytest
import torch
from test_first_hour import check, error_of, shown

import gt

# Sizes give zeros here and whatever memory holds in PyTorch: of these the shape is compared.
LINES = """
m.ones(2).add(2, other=m.ones(2))
m.add(m.ones(2), 2, other=m.ones(2))
m.ones(2).sub(2.5, other=m.ones(2))
m.ones(2).add_(2, other=m.ones(2))
m.ones(2).add(alpha=2, other=m.ones(2))
m.ones(2).add(2, m.ones(2))
m.ones(2).add(m.ones(2), other=m.ones(2))
m.ones(2).add(m.ones(2), 2)
m.ones(2).add(alpha=2)
m.addmm(2, m.ones(2, 2), 3, m.ones(2, 2), m.ones(2, 2))
m.ones(2, 2).addmm(3, mat1=m.ones(2, 2), mat2=m.ones(2, 2))
m.tensor(10**400, dtype=m.float32)
m.tensor([[-10**400]], dtype=m.float16)
m.tensor([10**400, 2.0])
m.tensor([1j, 10**400])
m.tensor([10**400], dtype=m.complex64)
m.tensor(10**400)
m.tensor([1, 10**400])
m.tensor([10**400], dtype=m.int32)
m.tensor([10**400, 0, 1], dtype=m.bool)
m.tensor([2**63], dtype=m.float64)
m.tensor([2**70, 1.5])
m.ones(2) + 10**400
m.ones(2).fill_(10**30)
m.full((2,), 10**400)
m.Tensor([1, 2.5])
m.Tensor((2, 3))
m.Tensor([[1, 2], [3, 4]])
m.Tensor([])
m.Tensor()
m.Tensor(2, 3).shape
m.Tensor(m.Size([2, 3])).shape
m.Tensor(size=(1, 2)).shape
m.Tensor(np.int64(3), 2).shape
m.Tensor(2, 3, device='cpu').dtype
m.Tensor(range(3))
m.Tensor(np.array([1, 2]))
m.Tensor(data=[1, 2])
m.Tensor(m.tensor([1, 2]))
m.Tensor(-1)
m.Tensor(5.5)
m.Tensor(True)
m.Tensor(None)
m.Tensor('a')
m.Tensor(2.0, 3)
m.Tensor({1: 2})
m.FloatTensor([1, 2])
m.FloatTensor(2, 3).shape
m.FloatTensor()
m.FloatTensor(np.array([1.5, 2]))
m.FloatTensor([m.tensor(1), m.tensor(2)])
m.FloatTensor([[1, 2], [3]])
m.LongTensor([1.5, -2.5])
m.LongTensor(2, 3).dtype
m.LongTensor(np.array([1.5, 2]))
m.IntTensor([1, 2])
m.ShortTensor([1, 2])
m.CharTensor([1, 2])
m.ByteTensor([1, 255])
m.ByteTensor([300])
m.BoolTensor([0, 0.5, 2])
m.HalfTensor([1.5])
m.BFloat16Tensor([1.5])
m.DoubleTensor([1.5])
m.FloatTensor.dtype
isinstance(m.ones(1), m.FloatTensor)
isinstance(m.ones(1), m.LongTensor)
isinstance(m.ones(1, dtype=m.int64), (m.IntTensor, m.LongTensor))
m.ones(1).type(m.DoubleTensor)
m.ones(1).type(m.LongTensor)
m.ones(1, dtype=m.int64).type(m.Tensor)
m.ones(1).new(2, 3).shape
m.ones(1, dtype=m.int64).new([2, 3])
m.ones(1, dtype=m.int64).new()
m.set_default_tensor_type(m.LongTensor)
m.autograd.Variable(m.ones(2), requires_grad=True)
m.autograd.Variable(m.ones(2), True).requires_grad
m.autograd.Variable(m.ones(2, requires_grad=True)).requires_grad
m.autograd.Variable([1, 2])
m.autograd.Variable(m.ones(2, dtype=m.int64), requires_grad=True)
isinstance(m.ones(1), m.autograd.Variable)
m.ones(1).is_sparse
m.ones(1).is_quantized
m.set_num_threads(0)
m.get_float32_matmul_precision()
m.are_deterministic_algorithms_enabled()
m.set_deterministic_debug_mode('x')
m.asarray([1, 2.5])
m.asarray(np.array([1, 2]), dtype=m.float32)
m.asarray(m.ones(2), copy=True)
m.asarray([1, 2], copy=False)
m.frombuffer(bytearray([1, 2, 3]), dtype=m.uint8, offset=1)
m.from_dlpack(np.arange(3))
m.from_dlpack(m.ones(2))
m.jit.is_scripting()
m.jit.script(m.nn.ReLU())(m.tensor([-1.0, 1.0]))
m.onnx.is_in_onnx_export()
m.compile(lambda x: x + 1, backend='eager')(m.ones(2))
m.device('cuda', 1)
m.device('meta')
m.nn.modules.utils._pair(3)
m.nn.modules.utils._triple((1, 2, 3))
m.mps.is_available()
m.optim.adamw.AdamW is m.optim.AdamW
issubclass(m.optim.lr_scheduler._LRScheduler, m.optim.lr_scheduler.LRScheduler)
isinstance(m.nn.BatchNorm2d(1), m.nn.modules.batchnorm._BatchNorm)
isinstance(m.nn.InstanceNorm2d(1), m.nn.modules.batchnorm._BatchNorm)
isinstance(m.nn.Conv2d(1, 1, 1), m.nn.modules.conv._ConvNd)
isinstance(m.nn.MSELoss(), m.nn.modules.loss._Loss)
isinstance(m.nn.LSTM(1, 1), m.nn.modules.rnn.RNNBase)
"""


def evaluated(module, line):
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return shown(eval(line, {"m": module, "np": np})), None
    except Exception as error:  # noqa: BLE001 - whichever it is, the other must raise it too
        return None, error_of(error)


@pytest.mark.parametrize("line", LINES.strip().splitlines())
def test_a_line_gives_what_it_gives_in_pytorch(line):
    check(evaluated(gt, line), evaluated(torch, line))


def test_sizes_give_zeros():
    assert gt.Tensor(2, 2).tolist() == [[0.0, 0.0], [0.0, 0.0]]
    assert gt.LongTensor(2).fill_(3).tolist() == [3, 3]


def test_a_constructed_tensor_trains_as_a_leaf():
    for m in (gt, torch):
        w = m.nn.Parameter(m.Tensor(2, 2).fill_(3))
        (w * m.FloatTensor([1, 2])).sum().backward()
        assert w.grad.tolist() == [[1.0, 2.0]] * 2
        v = m.autograd.Variable(m.Tensor([1, 2]), requires_grad=True)
        (v * v).sum().backward()
        assert v.grad.tolist() == [2.0, 4.0]


def test_another_dtype_is_refused_by_a_class_of_tensors():
    for m in (gt, torch):
        with pytest.raises(TypeError, match=r"^expected TensorOptions\(dtype="):
            m.FloatTensor(m.tensor([1, 2]))


def test_the_default_follows_a_class():
    before = gt.get_default_dtype()
    try:
        gt.set_default_tensor_type("torch.DoubleTensor")
        assert gt.get_default_dtype() == gt.float64
        assert gt.Tensor([1]).dtype == gt.float64
        gt.set_default_tensor_type(gt.FloatTensor)
        assert gt.Tensor([1]).dtype == gt.float32
    finally:
        gt.set_default_dtype(before)


MODULE_PATHS = [
    name.replace("torch", "gt", 1)
    for name in sys.modules
    if name.startswith("torch.nn.modules.") and "._" not in name and "_options" not in name
]


@pytest.mark.parametrize("path", MODULE_PATHS)
def test_paths_of_modules_lead_to_the_modules(path):
    ours = importlib.import_module(path)
    theirs = importlib.import_module(path.replace("gt", "torch", 1))
    for name, value in vars(theirs).items():
        if isinstance(value, type) and value.__module__ == theirs.__name__ and name in dir(gt.nn):
            assert getattr(ours, name) is getattr(gt.nn, name)
    with pytest.raises(AttributeError, match="no attribute 'zzz'"):
        ours.zzz  # noqa: B018


@pytest.mark.parametrize(
    "name", [name for name in gt.optim.__all__ if hasattr(torch.optim, name) and name[0].isupper()]
)
def test_paths_of_optimizers_lead_to_the_classes(name):
    path = getattr(torch.optim, name).__module__.replace("torch", "gt", 1)
    assert getattr(importlib.import_module(path), name) is getattr(gt.optim, name)


def test_switches_are_taken_and_answered():
    gt.set_num_threads(3)
    gt.set_float32_matmul_precision("high")
    gt.use_deterministic_algorithms(True, warn_only=True)
    try:
        assert gt.get_num_threads() == 3
        assert gt.get_float32_matmul_precision() == "high"
        assert gt.is_deterministic_algorithms_warn_only_enabled()
        assert gt.get_deterministic_debug_mode() == 1
        with pytest.warns(UserWarning, match=r"x is not one of 'highest', 'high', or 'medium'"):
            gt.set_float32_matmul_precision("x")
    finally:
        gt.set_float32_matmul_precision("highest")
        gt.use_deterministic_algorithms(False)
    gt.set_default_device("cuda")
    assert gt.get_default_device() == gt.device("cuda")
    gt.set_default_device(None)
    assert gt.get_default_device() == gt.ones(1).device
    with gt.device("cuda:0"), gt.cuda.device(0), gt.backends.cudnn.flags(enabled=False):
        assert gt.backends.cudnn.enabled is False
    assert gt.backends.cudnn.enabled
    with pytest.raises(RuntimeError, match="Expected one of cpu, cuda, gt, meta, mps, xpu"):
        gt.device("gpu")
    assert gt.ones(2, device="mps").to("mps").device == gt.ones(2).device
    assert gt.ones(2, device=torch.device("cpu")).tolist() == [1.0, 1.0]
    kind = gt.accelerator.current_accelerator()
    assert (kind is not None) == gt.accelerator.is_available() == gt.cuda.is_available()


def test_what_has_no_file_format_says_what_to_do():
    for call in (gt.jit.save, gt.onnx.export):
        with pytest.raises(NotImplementedError, match="state_dict"):
            call(gt.nn.Linear(1, 1), "x")
    with pytest.raises(NotImplementedError, match="state_dict"):
        gt.jit.load("x")


def test_a_torch_tensor_in_a_layer_says_what_to_call():
    with pytest.raises(
        TypeError, match=r"torch.Tensor: gt.from_torch\(x\) makes a GT tensor of it"
    ):
        gt.nn.Linear(2, 2)(torch.ones(1, 2))


MIXED = {
    "right": lambda x, t: x + t,
    "left": lambda x, t: t * x,
    "product": lambda x, t: x @ t,
    "product, left": lambda x, t: t @ x,
    "comparison": lambda x, t: x == t,
    "method": lambda x, t: x.add(t),
    "in place": lambda x, t: x.mul_(t),
    "operator": lambda x, t: x.__iadd__(t),
    "function": gt.matmul,
    "first": lambda x, t: gt.exp(t),
    "cat": lambda x, t: gt.cat([x, t]),
    "stack": lambda x, t: gt.stack([x, t]),
    "einsum": lambda x, t: gt.einsum("ij,ij->i", x, t),
    "generic": gt.linalg.solve,
    "generic, overloaded": lambda x, t: gt.linalg.norm(t),
    "layer": lambda x, t: gt.nn.Linear(2, 2)(t),
    "convolution": lambda x, t: gt.nn.Conv1d(2, 2, 1)(t),
    "loss": gt.nn.MSELoss(),
    "parameter": lambda x, t: x + torch.nn.Parameter(t),
    "index": lambda x, t: x[t.long()],
    "mask": lambda x, t: x[t > 0],
    "copy": lambda x, t: x.copy_(t),
    "save": lambda x, t: gt.save({"a": t}, "x"),
}


@pytest.mark.parametrize("act", MIXED.values(), ids=MIXED)
def test_a_torch_tensor_beside_one_of_gt_says_what_to_call(act):
    with pytest.raises(TypeError, match=r"torch.[TP]\w+: gt.from_torch\(x\).* gt.to_torch\(x\)"):
        act(gt.ones(2, 2), torch.ones(2, 2))


OUT = {
    "add": lambda x: gt.add(x, x, out=x),
    "exp": lambda x: gt.exp(x, out=x),
    "mm": lambda x: gt.mm(x, x, out=x),
    "max": lambda x: gt.max(x, 1, out=(x, x)),
    "cat": lambda x: gt.cat([x, x], out=x),
    "stack": lambda x: gt.stack([x, x], 0, out=x),
    "zeros": lambda x: gt.zeros(2, 2, out=x),
    "randn": lambda x: gt.randn(2, 2, out=x),
    "full": lambda x: gt.full((2, 2), 1.0, out=x),
    "arange": lambda x: gt.arange(4, out=x),
    "erfc": lambda x: gt.erfc(x, out=x),
    "linalg.inv": lambda x: gt.linalg.inv(x, out=x),
}


@pytest.mark.parametrize("name", OUT)
def test_out_is_refused_with_what_to_write_instead(name):
    words = rf"^{name}\(\): out= is not taken, .*: write out = gt.{name}\(...\), or out.copy_\(gt."
    with pytest.raises(TypeError, match=words):
        OUT[name](gt.ones(2, 2))


def test_no_out_is_no_mistake():
    x = gt.ones(2)
    taken = [gt.add(x, x, out=None), gt.exp(x, out=None), gt.cat([x], out=None)]
    taken += [gt.zeros(2, out=None), gt.erfc(x, out=None), gt.arange(2, out=None)]
    assert [len(y) for y in taken] == [2] * 6


OLDER = """
x.add(2, y)
m.add(x, 2, y)
x.sub(0.5, y)
m.sub(x, 2, y)
x.add_(2, y)
m.addcmul(x, 2, x, y)
x.addcdiv(2, x, y)
x.addcdiv_(2, y, y)
m.addmm(2, x, 3, x, y)
m.addmm(2, x, x, y)
x.addmm(2, 3, x, y)
x.addmm(2, x, y)
x.addmm_(2, 3, y, y)
m.addmv(2, x[0], 3, x, y[0])
x[0].addmv(2, x, y[0])
m.addr(2, x, 3, x[0], y[0])
x.addr_(2, 3, y[0], y[0])
m.addbmm(2, x, 3, x[None], y[None])
x.addbmm(2, x[None], y[None])
m.baddbmm(2, x[None], 3, x[None], y[None])
x[None].baddbmm(2, x[None], y[None])
x.add(x, y)
x.add(x, 2)
x.sub(2, 3)
x.addcmul(x, y, 2)
x.addmm(x, y, 2, 3)
x.addmm(2, 3, 4, x, y)
x.addmm(2, 3, x, y, alpha=3)
x.add(2, y, alpha=3)
x.add(2, 3)
m.addmm(x, 3, x, y)
m.addmm(2, x, 3, x, y)
m.addmv(x[0], 3, x, y[0])
m.addr(x, 3, x[0], y[0])
m.addbmm(x, 3, x[None], y[None])
m.baddbmm(x[None], 3, x[None], y[None])
m.add(x, 2, y)
m.addcmul(x, 2, x, y)
"""


@pytest.mark.parametrize("line", OLDER.strip().splitlines())
@pytest.mark.filterwarnings("ignore:This overload:UserWarning")  # PyTorch's comes once a process
def test_factors_may_come_first_as_in_pytorch(line):
    outcomes = []
    for m in (gt, torch):
        names = {"m": m, "x": m.arange(4.0).reshape(2, 2), "y": m.full((2, 2), 2.0)}
        try:
            outcomes.append((eval(line, names).tolist(), names["x"].tolist()))
        except TypeError:
            outcomes.append(TypeError)
    assert outcomes[0] == outcomes[1]


def test_a_factor_that_comes_first_is_warned_of_at_the_users_line():
    x = gt.ones(2, 2)
    calls = [lambda: x.add(2, x), lambda: x.addmm(2, 3, x, x), lambda: gt.addcmul(x, 2, x, x)]
    for call in [*calls, lambda: x.clone().add_(2, x)]:
        with pytest.warns(UserWarning, match="^This overload of add\\w* is deprecated") as caught:
            call()
        assert caught[0].filename == __file__
