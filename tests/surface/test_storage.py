"""The memory behind a tensor: data_ptr, untyped_storage, set_, as_strided_."""

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

import gt


def addresses(m: Any) -> Iterator[object]:
    x = m.arange(6.0)
    start = x.data_ptr()
    yield [
        part.data_ptr() - start for part in (x[1:], x[::2], x.reshape(2, 3).t(), x.view(3, 2)[1])
    ]
    yield [other.data_ptr() == start for other in (x.detach(), x.data, x.clone(), x + 0, x[1:])]
    x.mul_(2)
    x[1:].zero_()
    yield x.data_ptr() == start
    yield [m.ones(0).data_ptr(), x[6:].data_ptr(), start % 16, m.ones(2).data_ptr() == 0]
    yield [x.is_set_to(x), x.is_set_to(x[:]), x.is_set_to(x[1:]), x.is_set_to(x.clone())]


def addresses_of_others(m: Any) -> Iterator[object]:
    tensors = [m.ones(n, dtype=m.float64) for n in (1000, 1, 30, 1)]
    ranges = sorted((t.data_ptr(), t.data_ptr() + t.nbytes) for t in tensors)
    yield all(end <= start for (_, end), (start, _) in itertools.pairwise(ranges))
    layer, tied = m.nn.Linear(2, 2), m.nn.Linear(2, 2)
    tied.weight = layer.weight
    yield len({p.data_ptr() for one in (layer, tied) for p in one.parameters()})


def storages(m: Any) -> Iterator[object]:
    x = m.arange(3.0)
    storage, same = x.untyped_storage(), x[1:].untyped_storage()
    yield [len(storage), storage.nbytes(), storage.size(), storage.element_size()]
    yield [storage == same, hash(storage) == hash(same), storage._cdata == same._cdata]
    yield [storage == x.clone().untyped_storage(), storage.data_ptr() == x.data_ptr()]
    yield [storage.tolist(), storage[3], storage.clone() == storage, storage.is_cuda]
    x.fill_(2)
    yield [storage.tolist(), storage.resize_(12) is storage]


def bases(m: Any) -> Iterator[object]:
    x = m.arange(6.0)
    yield x._base
    yield [x[1:]._base.data_ptr() == x.data_ptr(), x[1:][1:]._base, x.view(2, 3)._base]
    yield [x.detach()._base, (x + 1)._base]
    x[1:]._base.fill_(3)
    yield x


def taken(m: Any) -> Iterator[object]:
    y, x = m.arange(6.0), m.ones(3)
    yield [x.set_(y) is x, x._version, x._is_view()]
    x[0] = 9
    yield y
    yield x.set_(y, 1, (2, 2), (1, 2))
    yield m.ones(3).set_(y.untyped_storage(), 2, (2, 2))
    yield [x.set_(y.untyped_storage()), x.set_(y[1:]), x.storage_offset()]
    x.fill_(4)
    yield [y, x.set_(), y]


def taken_by_a_view(m: Any) -> Iterator[object]:
    y, x = m.arange(6.0), m.ones(4)
    part = x[1:]
    part.set_(y)
    part.mul_(2)
    yield [x, y, part, part._is_view(), part._base, part._version]


def taken_by_a_leaf(m: Any) -> Iterator[object]:
    y, weight = m.arange(2.0), m.nn.Parameter(m.ones(2))
    with m.no_grad():
        weight.set_(y)
        weight.mul_(3)
    (weight * weight).sum().backward()
    yield [y, weight.grad, weight._version, weight.is_leaf]
    weight.set_(y)


def of_another_dtype(m: Any) -> Iterator[object]:
    yield m.ones(3).set_(m.ones(3, dtype=m.float64))


def strided_in_place(m: Any) -> Iterator[object]:
    x = m.arange(6.0)
    part = x[1:]
    yield [x.as_strided_((2, 2), (1, 2), 1) is x, x._version, x.stride(), x.storage_offset()]
    x.mul_(3)
    yield [x, part]
    yield m.as_strided_(part, (2,), (3,))


def strided_in_place_with_gradients(m: Any) -> Iterator[object]:
    leaf = m.arange(4.0).requires_grad_()
    x = leaf * 2
    part = x[1:]
    x.as_strided_((2,), (2,))
    x.mul_(5)
    (x * x).sum().backward()
    yield [x, part, leaf.grad]


def described(value: Any) -> object:
    if isinstance(value, list | tuple):
        return [described(item) for item in value]
    return value.tolist() if isinstance(value, torch.Tensor | gt.Tensor) else value


def outcome(program: Callable[[Any], Iterator[object]], m: Any) -> list[object]:
    values: list[object] = []
    try:
        values.extend(described(value) for value in program(m))
    except RuntimeError as error:
        values.append(str(error).partition(". ")[0].rstrip("."))
    return values


@pytest.mark.parametrize(
    "program",
    [
        addresses, addresses_of_others, storages, bases, taken, taken_by_a_view, taken_by_a_leaf,
        of_another_dtype, strided_in_place, strided_in_place_with_gradients,
    ],
)  # fmt: skip
def test_programs(program: Callable[[Any], Iterator[object]]) -> None:
    assert outcome(program, gt) == outcome(program, torch)


def test_what_is_recorded_takes_no_other_memory() -> None:
    x = gt.ones(2, requires_grad=True) * 2
    with pytest.raises(gt.errors.NotSupported, match="whose gradient is recorded"):
        x.set_(gt.zeros(2))
    with gt.no_grad(), pytest.raises(gt.errors.NotSupported, match="whose gradient is recorded"):
        x.set_(gt.zeros(3))
    with pytest.raises(gt.errors.NotSupported, match="from 8 to 0 bytes"):
        x.untyped_storage().resize_(0)
