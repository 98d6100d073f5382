"""Calls around arithmetic in every script: devices, conversions, copies, numpy, sessions."""

import copy
import operator
import pickle
import subprocess
import sys
import weakref
from collections.abc import Callable

import numpy as np
import pytest
import torch
from cluster import Cluster

import gt
from gt import nn

VALUES = [[1.0, 2.0], [3.0, 4.0]]
DEVICES = ["cpu", "cuda", "cuda:0", "gt", 0, gt.device("cpu"), gt.device("cuda", 1)]


def raised(act: Callable[[], object]) -> Exception:
    with pytest.raises(Exception) as caught:  # noqa: PT011 - the caller looks at class and text
        act()
    return caught.value


def check_raises(act: Callable[..., object]) -> None:
    """`act(library)` raises PyTorch's class and text in both."""
    ours, theirs = raised(lambda: act(gt)), raised(lambda: act(torch))
    assert isinstance(ours, type(theirs))
    assert str(ours) == str(theirs)


def check_value(ours: gt.Tensor, theirs: torch.Tensor) -> None:
    assert str(ours.dtype) == str(theirs.dtype).replace("torch.", "gt.")
    np.testing.assert_array_equal(ours.detach().numpy(), theirs.detach().numpy(), strict=True)


@pytest.mark.parametrize("device", DEVICES, ids=str)
def test_a_device_is_accepted_and_places_nothing(device: object) -> None:
    x = gt.tensor(VALUES, device=device)
    moved = [x.to(device), x.to(device=device), x.to(x.device), x.cuda(), x.cuda(0), x.cpu()]
    assert all(one is x for one in moved)
    assert x.to(device, gt.float64).dtype == gt.float64
    assert x.to(device, non_blocking=True).tolist() == VALUES


@pytest.mark.parametrize("device", DEVICES, ids=str)
def test_factories_and_modules_accept_a_device(device: object) -> None:
    factories = [gt.zeros, gt.ones, gt.rand, gt.randn, gt.empty]
    assert all(tuple(make(2, 3, device=device).shape) == (2, 3) for make in factories)
    assert gt.arange(3, device=device).tolist() == [0, 1, 2]
    layer = nn.Linear(2, 3, device=device)
    assert layer.to(device) is layer
    assert layer.cuda().cpu() is layer


def test_a_word_that_is_no_device_is_refused() -> None:
    x, layer = gt.ones(1), nn.Linear(1, 1)
    wrong = [
        lambda: gt.device("nonsense"),
        lambda: x.to("nonsense"),
        lambda: gt.ones(1, device="nonsense"),
        lambda: layer.to("nonsense"),
    ]
    for act in wrong:
        error = raised(act)
        assert isinstance(error, RuntimeError)
        assert str(error).startswith("Expected one of cpu, cuda, ")
        assert " device type at start of device string: nonsense" in str(error)


@pytest.mark.parametrize(
    "make",
    [
        lambda m: m.device("cpu"),
        lambda m: m.device("cuda"),
        lambda m: m.device("cuda:1"),
        lambda m: m.device("cuda", 1),
        lambda m: m.device(type="cuda", index=2),
        lambda m: m.device(m.device("cuda:3")),
    ],
)
def test_device_reads_as_pytorchs(make: Callable[..., object]) -> None:
    ours, theirs = make(gt), make(torch)
    assert (str(ours), repr(ours)) == (str(theirs), repr(theirs))
    assert (ours.type, ours.index) == (theirs.type, theirs.index)
    assert ours == make(gt)
    assert hash(ours) == hash(make(gt))
    assert ours != gt.device("cuda", 7)
    assert ours != str(ours)


def test_a_number_is_a_gpu() -> None:
    # PyTorch's is one of its accelerator's, which is `mux` once gt.torch is imported.
    assert (str(gt.device(0)), repr(gt.device(0))) == ("cuda:0", repr(torch.device("cuda:0")))


@pytest.mark.parametrize("text", ["cuda:x", "cuda:", "cpu:-1"])
def test_a_device_with_a_wrong_number(text: str) -> None:
    check_raises(lambda m: m.device(text))


def test_every_tensor_has_the_same_device() -> None:
    x = gt.ones(2)
    assert isinstance(x.device, gt.device)
    assert x.device == x.cuda().device == (x + 1).device == nn.Linear(1, 1).weight.device
    assert str(x.device) == "gt"
    assert x.is_cuda is False


def test_cuda_answers_without_gpus_or_with() -> None:
    assert gt.cuda.is_available() is (gt.cuda.device_count() > 0)
    assert gt.cuda.empty_cache() is None
    gt.cuda.synchronize()
    draws = []
    for _ in range(2):
        gt.cuda.manual_seed_all(7)
        draws.append(gt.randn(3).tolist())
    assert draws[0] == draws[1]


def test_events_measure_what_runs_between_them() -> None:
    start, end = (gt.cuda.Event(enable_timing=True) for _ in range(2))
    with pytest.raises(RuntimeError, match="must be recorded before calculating elapsed time"):
        start.elapsed_time(end)
    start.record()
    gt.ones(300, 300) @ gt.ones(300, 300)
    end.record(stream=None)
    end.synchronize()
    assert end.query()
    assert 0 < start.elapsed_time(end) == -end.elapsed_time(start)
    with pytest.raises(RuntimeError, match="must be created with argument 'enable_timing=True'"):
        gt.cuda.Event().elapsed_time(end)


@pytest.mark.parametrize("name", ["float16", "float32", "float64", "int32", "int64", "bool"])
def test_to_a_dtype(name: str) -> None:
    ours, theirs = gt.tensor(VALUES), torch.tensor(VALUES)
    check_value(ours.to(getattr(gt, name)), theirs.to(getattr(torch, name)))
    check_value(ours.to(dtype=getattr(gt, name)), theirs.to(dtype=getattr(torch, name)))
    check_value(ours.to(gt.zeros(1).to(getattr(gt, name))), theirs.to(getattr(torch, name)))


def test_to_the_same_dtype_is_the_same_tensor_unless_a_copy_is_asked_for() -> None:
    x = gt.tensor(VALUES)
    assert x.to(gt.float32) is x
    copied = x.to(gt.float32, copy=True)
    copied += 1
    assert x.tolist() == VALUES


def test_a_modules_dtype() -> None:
    layer = nn.Linear(2, 2).to("cuda", gt.float64)
    assert layer.weight.dtype == layer.bias.dtype == gt.float64
    assert isinstance(layer.weight, nn.Parameter)
    assert layer.float().weight.dtype == gt.float32


@pytest.mark.parametrize("value", [2.5, -1.25, 3, 0, True])
def test_numbers_from_a_tensor_of_one_element(value: float) -> None:
    for ours, theirs in (
        (gt.tensor(value), torch.tensor(value)),
        (gt.tensor([[value]]), torch.tensor([[value]])),
    ):
        for convert in (float, int, bool, complex):
            assert convert(ours) == convert(theirs)
        assert type(ours.item()) is type(theirs.item())
        assert ours.item() == theirs.item()


@pytest.mark.parametrize("spec", [".3f", "8.2e", ">10", ".1%", "g"])
def test_format(spec: str) -> None:
    assert f"{gt.tensor(2.5):{spec}}" == f"{torch.tensor(2.5):{spec}}"
    assert f"{gt.tensor(VALUES)}" == f"{torch.tensor(VALUES)}"


def test_an_integer_tensor_is_an_index() -> None:
    assert [10, 20, 30][gt.tensor(1)] == 20
    assert list(range(gt.tensor([3]))) == [0, 1, 2]


@pytest.mark.parametrize(
    "act",
    [
        lambda m: bool(m.ones(2)),
        lambda m: m.ones(2).item(),
        lambda m: f"{m.ones(2):.3f}",
        lambda m: len(m.tensor(1.0)),
        lambda m: list(m.tensor(1.0)),
        lambda m: m.ones(2, requires_grad=True).numpy(),
        lambda m: np.asarray(m.ones(2, requires_grad=True)),
        lambda m: copy.deepcopy(m.ones(2, requires_grad=True) * 2),
    ],
)
def test_conversions_that_fail(act: Callable[..., object]) -> None:
    ours, theirs = raised(lambda: act(gt)), raised(lambda: act(torch))
    assert isinstance(ours, type(theirs))
    assert str(ours).split("  If you")[0] == str(theirs).split("  If you")[0]


def test_length_and_iteration() -> None:
    x = gt.tensor(VALUES)
    assert len(x) == 2
    assert [row.tolist() for row in x] == VALUES
    first, second = x
    assert (first + second).tolist() == [4.0, 6.0]
    assert len(gt.zeros(0, 3)) == 0
    assert list(gt.zeros(0, 3)) == []


def test_iteration_gives_views_with_gradients() -> None:
    x = gt.tensor(VALUES, requires_grad=True)
    total = gt.zeros(2)
    for index, row in enumerate(x):
        total = total + row * (index + 1)
    total.sum().backward()
    assert x.grad.tolist() == [[1.0, 1.0], [2.0, 2.0]]


def test_hash_is_the_objects() -> None:
    x, same = gt.ones(2), gt.ones(2)
    assert hash(x) == hash(x)
    assert len({x, x, same}) == 2
    assert {x: "x", same: "same"}[x] == "x"


def test_deepcopy_of_a_tensor() -> None:
    x = gt.tensor(VALUES, requires_grad=True)
    (x * x).sum().backward()
    twin = copy.deepcopy(x)
    assert twin.requires_grad
    assert twin.is_leaf
    assert twin.grad.tolist() == x.grad.tolist()
    with gt.no_grad():
        twin += 1
        twin.grad.zero_()
    assert x.tolist() == VALUES
    assert x.grad.tolist() == [[2.0, 4.0], [6.0, 8.0]]


def test_deepcopy_keeps_one_object_one() -> None:
    x = gt.ones(2)
    first, second = copy.deepcopy([x, x])
    assert first is second
    assert first is not x


def test_deepcopy_of_a_module() -> None:
    model = nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 1))
    model[2].weight.requires_grad_(False)
    twin = copy.deepcopy(model)
    before = [p.tolist() for p in model.parameters()]
    assert [p.tolist() for p in twin.parameters()] == before
    assert all(isinstance(p, nn.Parameter) for p in twin.parameters())
    assert not twin[2].weight.requires_grad
    twin(gt.ones(4, 2)).sum().backward()
    with gt.no_grad():
        twin[0].weight -= 1
    assert model[0].weight.grad is None
    assert [p.tolist() for p in model.parameters()] == before


def test_deepcopy_keeps_tied_weights_tied() -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    model[1].weight = model[0].weight
    twin = copy.deepcopy(model)
    assert twin[0].weight is twin[1].weight
    assert twin[0].weight is not model[0].weight


def test_a_parameter_is_a_tensor() -> None:
    parameter = nn.Parameter(gt.ones(2))
    assert issubclass(nn.Parameter, gt.Tensor)
    assert isinstance(parameter, gt.Tensor)
    assert parameter.requires_grad
    assert parameter.is_leaf
    assert type(parameter * 2) is gt.Tensor
    assert type(parameter.detach()) is gt.Tensor
    assert not isinstance(gt.ones(2), nn.Parameter)
    assert repr(parameter).startswith("Parameter containing:\ntensor(")
    assert type(copy.deepcopy(parameter)) is nn.Parameter


def test_weak_references_end_with_the_tensor() -> None:
    for x in (gt.ones(2), nn.Parameter(gt.ones(2))):
        weak = weakref.ref(x)
        assert weak() is x
    ended = []
    y = gt.ones(2)
    weakref.finalize(y, ended.append, True)
    del y
    assert ended == [True]


OPERATORS = [
    operator.add, operator.sub, operator.mul, operator.truediv, operator.floordiv, operator.mod,
    operator.pow, operator.lt, operator.le, operator.gt, operator.ge, operator.eq, operator.ne,
]  # fmt: skip


@pytest.mark.parametrize("operation", OPERATORS, ids=lambda operation: operation.__name__)
@pytest.mark.parametrize("scalar", [np.float32(2), np.float64(2), np.int64(2)], ids=repr)
def test_numpy_scalars_on_either_side(
    operation: Callable[..., gt.Tensor], scalar: np.generic
) -> None:
    ours, theirs, number = gt.tensor(VALUES), torch.tensor(VALUES), scalar.item()
    check_value(operation(scalar, ours), operation(number, theirs))
    check_value(operation(ours, scalar), operation(theirs, number))


@pytest.mark.parametrize("operation", OPERATORS, ids=lambda operation: operation.__name__)
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int64])
def test_numpy_arrays_on_either_side(
    operation: Callable[..., gt.Tensor], dtype: type[np.generic]
) -> None:
    ours, theirs = gt.tensor(VALUES), torch.tensor(VALUES)
    array = np.array([[2, 1], [3, 5]], dtype=dtype)
    check_value(operation(array, ours), operation(torch.tensor(array), theirs))
    check_value(operation(ours, array), operation(theirs, torch.tensor(array)))


def test_a_numpy_array_times_a_matrix_keeps_the_gradient() -> None:
    x = gt.tensor(VALUES, requires_grad=True)
    product = np.array([[1, 2]], dtype=np.float32) @ x
    assert isinstance(product, gt.Tensor)
    assert product.tolist() == [[7.0, 10.0]]
    product.sum().backward()
    assert x.grad.tolist() == [[1.0, 1.0], [2.0, 2.0]]


def test_to_numpy() -> None:
    x = gt.tensor(VALUES)
    for array in (x.numpy(), np.asarray(x), np.array(x), x.detach().cpu().numpy()):
        assert array.dtype == np.float32
        assert array.tolist() == VALUES
    assert np.asarray(x, dtype=np.int64).dtype == np.int64
    assert np.asarray(gt.tensor(1.5)).shape == ()
    assert np.concatenate([x, np.zeros((1, 2), np.float32)]).shape == (3, 2)
    assert x.requires_grad_(True).numpy(force=True).tolist() == VALUES


SMALL: list[Callable[..., object]] = [
    lambda m: m.tensor(VALUES).size(),
    lambda m: m.tensor(VALUES).size(-1),
    lambda m: m.tensor(VALUES).dim(),
    lambda m: m.tensor(VALUES).ndim,
    lambda m: m.tensor(VALUES).numel(),
    lambda m: m.tensor(VALUES).element_size(),
    lambda m: m.tensor(VALUES).T.tolist(),
    lambda m: m.ones(2, 3, 4).mT.shape,
    lambda m: m.tensor(VALUES).t().tolist(),
    lambda m: m.tensor(VALUES).clone().tolist(),
    lambda m: m.tensor(VALUES).detach().clone().tolist(),
    lambda m: m.tensor(VALUES).shape[0],
    lambda m: m.tensor(VALUES).is_contiguous(),
    lambda m: m.tensor(VALUES).stride(),
    lambda m: m.tensor(VALUES).stride(-1),
    lambda m: m.is_tensor(m.ones(1)),
    lambda m: m.is_tensor(np.ones(1)),
]


@pytest.mark.parametrize("act", SMALL, ids=range(len(SMALL)))
def test_small_methods(act: Callable[..., object]) -> None:
    ours, theirs = act(gt), act(torch)
    assert ours == theirs
    assert not isinstance(theirs, int) or type(ours) is type(theirs)


def test_a_stride_along_no_dimension() -> None:
    check_raises(lambda m: m.tensor(VALUES).stride(5))
    check_raises(lambda m: m.tensor(1.0).stride(0))


def test_detach_shares_and_clone_copies() -> None:
    for library in (gt, torch):
        x = library.ones(2, requires_grad=True)
        shared, own = x.detach(), x.detach().clone()
        shared += 1
        own += 5
        assert x.tolist() == [2.0, 2.0]
        assert not shared.requires_grad
        assert x.clone().requires_grad
        assert not x.clone().is_leaf


def program(code: str) -> str:
    ended = subprocess.run(
        [sys.executable, "-c", f"import gt\n{code}"],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert ended.stderr == ""
    return ended.stdout


def test_the_first_operation_opens_a_session() -> None:
    code = """
print(gt.is_connected())
x = gt.ones(2)
print((x + 1).tolist(), gt.is_connected())
gt.disconnect()
print(gt.is_connected())
gt.disconnect()
print((gt.ones(2) * 3).tolist(), gt.is_connected())
"""
    assert program(code).splitlines() == ["False", "[2.0, 2.0] True", "False", "[3.0, 3.0] True"]


ONE_AFTER_THE_OTHER = """
first = gt.ones(2)
gt.disconnect()
print(gt.is_connected())
gt.connect(ADDRESS)
second = gt.ones(2)
print(gt.is_connected())
for act in (first.tolist, lambda: first + second, lambda: second + first):
    try: print(act())
    except gt.Error as error: print(error)
print((second + 1).tolist())
"""


OTHER_SESSION = "belongs to another session (gt.connect or gt.disconnect was called since)"
REFUSED = [
    f"read: the tensor {OTHER_SESSION}; bring its data along by .numpy() and gt.tensor()",
    *2 * [f"add: an operand {OTHER_SESSION}; bring its data along by .numpy() and gt.tensor()"],
]


def test_a_session_after_another() -> None:
    with Cluster(1) as cluster:
        code = ONE_AFTER_THE_OTHER.replace("ADDRESS", repr(cluster.address))
        lines = cluster.run(code).splitlines()
    assert lines == ["False", "True", *REFUSED, "[2.0, 2.0]"]


@pytest.mark.parametrize("convert", [float, int, complex], ids=["float", "int", "complex"])
@pytest.mark.parametrize("count", [0, 2])
def test_a_python_number_of_several_elements_or_none(
    convert: Callable[[object], object], count: int
) -> None:
    check_raises(lambda m: convert(m.ones(count)))


FORMATTED: list[Callable[..., str]] = [
    lambda m: f"{m.tensor(1.5)}",
    lambda m: f"{m.tensor(1.5, requires_grad=True)}",
    lambda m: f"{m.tensor(1.5):.3f}",
    lambda m: f"{m.tensor(3):5d}",
    lambda m: f"{m.tensor(True)}",
    lambda m: f"{m.tensor(1.5, dtype=m.bfloat16):g}",
    lambda m: f"{m.tensor([1.5])}",
    lambda m: f"{m.nn.Parameter(m.tensor(2.0))}",
    lambda m: f"{m.nn.Parameter(m.ones(2))}",
    lambda m: "%s %.2f" % (m.tensor(1.5), m.tensor(1.5)),  # noqa: UP031 - what is tested
]


@pytest.mark.parametrize("show", FORMATTED, ids=range(len(FORMATTED)))
def test_a_tensor_in_a_formatted_string(show: Callable[..., str]) -> None:
    assert show(gt) == show(torch)


def test_a_format_that_does_not_fit() -> None:
    check_raises(lambda m: f"{m.ones(2):.3f}")
    check_raises(lambda m: f"{m.tensor([1.5]):.3f}")
    check_raises(lambda m: f"{m.nn.Parameter(m.ones(2)):.3f}")
    check_raises(lambda m: f"{m.nn.Parameter(m.tensor(1.0)):.3f}")
    check_raises(lambda m: f"{m.tensor(1.5):d}")


@pytest.mark.parametrize("dtype", ["bool", "uint8", "int64", "float16", "bfloat16", "float64"])
def test_a_pickled_tensor_comes_back(dtype: str) -> None:
    def pickled(m: object) -> object:
        return pickle.loads(pickle.dumps(m.tensor([[0, 1], [2, 3]], dtype=getattr(m, dtype))))

    ours, theirs = pickled(gt), pickled(torch)
    assert ours.tolist() == theirs.tolist()
    assert str(ours.dtype) == f"gt.{dtype}"


def test_a_pickled_parameter_stays_one_and_leaves_its_gradient_behind() -> None:
    weight = nn.Parameter(gt.ones(2), requires_grad=True)
    (weight * 3).sum().backward()
    back = pickle.loads(pickle.dumps(weight))
    assert type(back) is nn.Parameter
    assert (back.tolist(), back.requires_grad, back.grad) == ([1.0, 1.0], True, None)
    frozen = pickle.loads(pickle.dumps(nn.Parameter(gt.ones(1), requires_grad=False)))
    assert not frozen.requires_grad


def test_a_pickled_tensor_is_read_by_another_program() -> None:
    words = pickle.dumps({"x": gt.arange(3), "w": gt.ones(2, requires_grad=True)})
    code = f"import pickle; print(pickle.loads({words!r}))"
    printed = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    ).stdout
    assert printed == "{'x': tensor([0, 1, 2]), 'w': tensor([1., 1.], requires_grad=True)}\n"


def test_a_shallow_copy_shares_its_values() -> None:
    for m in (gt, torch):
        x = m.ones(2)
        twin = copy.copy(x)
        x[0] = 5.0
        assert (twin.tolist(), twin.requires_grad) == ([5.0, 1.0], False)
        weight = m.nn.Parameter(m.ones(2))
        other = copy.copy(weight)
        assert type(other) is m.nn.Parameter
        assert other.is_leaf
        assert other.requires_grad
        derived = copy.copy(weight * 2)
        assert (derived.is_leaf, derived.requires_grad, derived.tolist()) == (True, True, [2, 2])


def test_on_no_gpu_of_its_own() -> None:
    assert gt.ones(2).get_device() == torch.ones(2).get_device() == -1


def test_what_asks_for_a_gpu_where_there_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    for ask in (gt.cuda.current_device, gt.cuda.get_device_name):
        with pytest.raises(RuntimeError, match="No CUDA GPUs are available"):
            ask()


def test_norms_stand_beside_tensors() -> None:
    values, weight = np.arange(6.0, dtype=np.float32).reshape(2, 3), [1.0, 2.0, 3.0]
    for name in ("layer_norm", "rms_norm"):
        ours, theirs = (
            getattr(m, name)(m.tensor(values), (3,), m.tensor(weight)) for m in (gt, torch)
        )
        np.testing.assert_allclose(ours.numpy(), theirs.numpy(), rtol=1e-6)


WHOLE = {
    "uint8": [0, 1, 200, 255],
    "int8": [-128, -5, 100, 127],
    "int32": [-(2**31), -5, 7, 2**31 - 1],
    "int64": [-(2**63), -5, 2**62, 2**63 - 1],
}
COUNTS = [0, 1, 7, 8, 31, 62, 63, 64, 100]


@pytest.mark.parametrize("dtype", WHOLE)
@pytest.mark.parametrize("shift", [operator.lshift, operator.rshift])
def test_shifts_equal_pytorchs(shift: Callable[..., object], dtype: str) -> None:
    for count in [*COUNTS, -1]:
        x, y = (m.tensor(WHOLE[dtype], dtype=getattr(m, dtype)) for m in (gt, torch))
        check_value(shift(x, count), shift(y, count))
        check_value(shift(x, gt.tensor([count % 128])), shift(y, torch.tensor([count % 128])))
    check_value(shift(5, gt.tensor([0, 1])), shift(5, torch.tensor([0, 1])))
    check_value(shift(gt.tensor([True]), 1), shift(torch.tensor([True]), 1))


@pytest.mark.parametrize("shift", [operator.lshift, operator.rshift])
def test_what_shifts_refuse(shift: Callable[..., object]) -> None:
    check_raises(lambda m: shift(m.ones(2), 1))
    check_raises(lambda m: shift(m.tensor([1, 2]), 1.5))
    check_raises(lambda m: shift(m.tensor([1]), m.ones(1, dtype=m.float64)))
    check_raises(lambda m: shift(m.tensor([True]), m.tensor([True])))


def test_wrong_sizes_and_devices_of_factories() -> None:
    check_raises(lambda m: m.zeros(-1))
    check_raises(lambda m: m.zeros(2, -1))
    for device in (3.5, [1], {}):
        for name in ("ones", "zeros", "empty"):
            check_raises(lambda m, name=name, device=device: getattr(m, name)(2, device=device))
        check_raises(lambda m, device=device: m.tensor(1.0, device=device))
        check_raises(lambda m, device=device: m.full((2,), 1.0, device=device))
        check_raises(lambda m, device=device: m.zeros_like(m.ones(1), device=device))


SCATTERED = [
    ((3,), [0, 0], [2.0, 3.0], 0),
    ((3, 4), [[0, 2], [2, 2]], [[2.0, 3.0], [5.0, 7.0]], 0),
    ((3, 4), [[0, 3], [3, 3]], [[2.0, 3.0, 9.0], [5.0, 7.0, 9.0]], 1),
    ((2, 3, 2), [[[1], [1]]], [[[2.0], [3.0]]], -2),
    ((), 0, 4.0, 0),
]


@pytest.mark.filterwarnings("ignore:The reduce argument of torch.scatter")
@pytest.mark.parametrize(("size", "index", "source", "dim"), SCATTERED, ids=range(len(SCATTERED)))
def test_scatter_multiplies(size: object, index: object, source: object, dim: int) -> None:
    def run(m: object, *, number: bool, whole: bool) -> object:
        dtype = m.int32 if whole else m.float32
        x = m.full(size, 2, dtype=dtype)
        operand = 3 if number else m.tensor(source, dtype=dtype)
        return x.scatter(dim, m.tensor(index), operand, reduce="multiply")

    for number in (True, False):
        for whole in (True, False):
            ours, theirs = (run(m, number=number, whole=whole) for m in (gt, torch))
            check_value(ours, theirs)


def test_what_a_scatter_refuses() -> None:
    check_raises(lambda m: m.ones(3).scatter(0, m.tensor([0]), 2.0, reduce="mean"))


def test_an_embeddings_gradient_divided_by_how_often_its_row_is_named() -> None:
    def gradient(m: object, padding: int | None) -> object:
        table = m.nn.Embedding(4, 3, scale_grad_by_freq=True, padding_idx=padding)
        table.weight = m.nn.Parameter(m.arange(12, dtype=m.float32).reshape(4, 3))
        rows = table(m.tensor([[0, 1, 1], [3, 1, 0]]))
        (rows * m.arange(18, dtype=m.float32).reshape(2, 3, 3)).sum().backward()
        return rows, table.weight.grad

    for padding in (None, 1):
        ours, theirs = gradient(gt, padding), gradient(torch, padding)
        check_value(ours[0], theirs[0])
        np.testing.assert_allclose(ours[1].numpy(), theirs[1].numpy(), rtol=1e-6)
