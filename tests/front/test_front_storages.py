"""Files of tensors of the device `mux` in both of PyTorch's formats, storages, pinned batches."""

import io
import pickle
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset
from torch_session import torch_workers

import gt.torch  # noqa: F401 - the device

TENSORS = {
    "matrix": torch.arange(12.0).reshape(3, 4),
    "transposed": torch.arange(12.0).reshape(3, 4).t(),
    "slice": torch.arange(6)[1:4],
    "number": torch.tensor(2.5),
    "empty": torch.zeros(0, 3),
    "bfloat16": torch.ones(2, 2).bfloat16(),
    "bool": torch.tensor([True, False]),
    "complex": torch.arange(3.0) * 1j,
}
# The map_location of a load, and the device of the loaded tensors.
PLACES: dict[str, tuple[Any, str]] = {
    "where they were": (None, "mux"),
    "cpu": ("cpu", "cpu"),
    "mux": ("mux", "mux"),
    "a device": (torch.device("mux"), "mux"),
    "a function": (lambda storage, _place: storage, "cpu"),
    "a mapping": ({"mux:0": "cpu"}, "cpu"),
}


@pytest.fixture(scope="module", autouse=True)
def _workers() -> Iterator[None]:
    with torch_workers(1):
        yield


def file_of(value: object, is_zip: bool) -> io.BytesIO:
    file = io.BytesIO()
    torch.save(value, file, _use_new_zipfile_serialization=is_zip)
    file.seek(0)
    return file


@pytest.mark.parametrize("is_zip", [True, False])
@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("name", TENSORS)
def test_a_saved_tensor_is_loaded_where_it_is_wanted(name: str, place: str, is_zip: bool) -> None:
    expected, (location, device) = TENSORS[name], PLACES[place]
    for value in (expected, expected.to("mux")):
        held = {"x": value, "p": torch.nn.Parameter(value, requires_grad=False)}
        for weights_only in (True, False):
            read = torch.load(file_of(held, is_zip), location, weights_only=weights_only)
            is_local = value is expected and place in ("where they were", "a mapping")
            assert read["x"].device.type == ("cpu" if is_local else device)
            assert read["x"].dtype == expected.dtype
            assert torch.equal(read["x"].cpu(), expected)
            assert torch.equal(read["p"].cpu(), expected)
            assert isinstance(read["p"], torch.nn.Parameter)


@pytest.mark.parametrize("name", TENSORS)
def test_a_pickled_tensor_is_on_the_device_again(name: str) -> None:
    read = pickle.loads(pickle.dumps(TENSORS[name].to("mux")))
    assert read.device.type == "mux"
    assert torch.equal(read.cpu(), TENSORS[name])


def test_storages_tell_which_tensors_share_memory() -> None:
    x = torch.zeros(4, 4, device="mux")
    rows, other = x[1:], torch.zeros(4, 4, device="mux")
    memory = x.untyped_storage()
    assert memory.data_ptr() == rows.untyped_storage().data_ptr() == rows.data_ptr() - 16
    assert memory.data_ptr() != other.untyped_storage().data_ptr()
    assert memory.nbytes() == len(memory) == rows.untyped_storage().size() == 64
    assert memory.device == x.device


READS: dict[str, Callable[[Any], object]] = {
    "tolist": lambda memory: memory.tolist(),
    "__getitem__": lambda memory: memory[0],
    "cpu": lambda memory: memory.cpu(),
    "resize_": lambda memory: memory.resize_(0),
    "fill_": lambda memory: memory.fill_(0),
    "copy_": lambda memory: memory.copy_(torch.UntypedStorage(64)),
    "clone": lambda memory: memory.clone(),
}


@pytest.mark.parametrize("name", READS)
def test_a_storage_does_not_pretend_to_hold_elements(name: str) -> None:
    with pytest.raises(NotImplementedError, match=f"UntypedStorage.{name} is not implemented"):
        READS[name](torch.zeros(4, 4, device="mux").untyped_storage())


@pytest.mark.parametrize("workers", [0, 2])
def test_a_loader_pins_its_batches(workers: int) -> None:
    data = TensorDataset(torch.arange(8.0), torch.arange(8))
    batches = DataLoader(data, batch_size=4, pin_memory=True, num_workers=workers)
    read = [x.to("mux", non_blocking=True).tolist() for x, _ in batches]
    assert read == [[0.0, 1.0, 2.0, 3.0], [4.0, 5.0, 6.0, 7.0]]
    pinned = torch.arange(3.0).pin_memory()
    assert pinned.tolist() == [0.0, 1.0, 2.0]
