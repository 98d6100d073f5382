"""Values that come from PyTorch and go back: tensors, checkpoints, DLPack, and torch's loader."""

import subprocess
import sys
import textwrap
from collections import OrderedDict
from typing import NamedTuple

import numpy as np
import pytest
import torch

import gt

DTYPES = ["bool", "uint8", "int8", "int16", "int32", "int64", "float16", "bfloat16", "float32"]
DTYPES += ["float64"]


@pytest.mark.parametrize("name", DTYPES)
def test_a_tensor_goes_over_and_back(name):
    given = torch.tensor([[0, 1], [2, 3]]).to(getattr(torch, name))
    ours = gt.from_torch(given)
    assert ours.dtype == getattr(gt, name)
    back = gt.to_torch(ours)
    assert back.dtype == given.dtype
    assert torch.equal(back, given)
    back.add_(1) if name != "bool" else back.logical_not_()
    assert gt.to_torch(ours).tolist() == given.tolist()  # a copy


def test_what_goes_over_belongs_to_no_graph():
    theirs = torch.ones(2, requires_grad=True)
    assert not gt.from_torch(theirs * 2).requires_grad
    assert not gt.to_torch(gt.ones(2, requires_grad=True) * 2).requires_grad
    for call, given in ((gt.from_torch, np.ones(2)), (gt.from_torch, gt.ones(2)), (gt.to_torch, 1)):
        with pytest.raises(TypeError, match="expected"):
            call(given)


@pytest.mark.parametrize("name", [name for name in DTYPES if name != "bfloat16"])
def test_dlpack_both_ways(name):
    x = gt.arange(4).to(getattr(gt, name)).reshape(2, 2)
    over = torch.from_dlpack(x)
    assert over.dtype == getattr(torch, name)
    assert over.tolist() == x.tolist()
    assert np.from_dlpack(x).tolist() == x.tolist()
    assert gt.from_dlpack(over).tolist() == x.tolist()
    assert gt.from_dlpack(over).dtype == x.dtype
    assert gt.from_dlpack(np.asarray(over)).dtype == x.dtype


def test_a_bare_capsule_is_read():
    values = [[1.0, 2.0], [3.0, 4.0]]
    theirs = torch.tensor(values)
    assert gt.from_dlpack(torch.utils.dlpack.to_dlpack(theirs)).tolist() == values
    assert gt.from_dlpack(theirs.__dlpack__()).tolist() == values
    assert gt.utils.dlpack.from_dlpack(gt.tensor(values).__dlpack__()).tolist() == values
    assert gt.from_dlpack(theirs.T.long().__dlpack__()).tolist() == [[1, 3], [2, 4]]


def test_dlpack_refuses_what_pytorch_refuses():
    for m in (gt, torch):
        with pytest.raises(BufferError, match="Can't export tensors that require gradient"):
            m.ones(2, requires_grad=True).__dlpack__()
    with pytest.raises(TypeError, match="__dlpack__"):
        gt.from_dlpack([1])
    with pytest.raises(BufferError, match="bfloat16"):
        gt.ones(2, dtype=gt.bfloat16).__dlpack__()


def models(m):
    m.manual_seed(0)
    return m.nn.Sequential(m.nn.Linear(3, 4), m.nn.BatchNorm1d(4), m.nn.ReLU(), m.nn.Linear(4, 2))


def test_a_state_dict_of_pytorch_loads_and_goes_back():
    theirs, ours = models(torch), models(gt)
    assert str(ours.load_state_dict(theirs.state_dict())) == "<All keys matched successfully>"
    x = np.random.default_rng(0).normal(size=(5, 3)).astype("float32")
    expected = theirs(torch.tensor(x)).detach().numpy()
    np.testing.assert_allclose(ours(gt.tensor(x)).detach().numpy(), expected, rtol=1e-5, atol=1e-6)
    back = {name: gt.to_torch(value) for name, value in ours.state_dict().items()}
    theirs.load_state_dict(back)
    for name, value in theirs.state_dict().items():
        assert value.dtype == back[name].dtype
    for m, model in ((gt, ours), (torch, theirs)):
        with pytest.raises(RuntimeError, match=r"expected torch.Tensor or Tensor-like object"):
            model.load_state_dict({"0.weight": np.ones((4, 3))}, strict=False)
        del m


class Point(NamedTuple):
    x: object
    y: int


@pytest.mark.parametrize("old", [False, True], ids=["zip", "pickle"])
def test_a_checkpoint_of_pytorch_is_read(tmp_path, old):
    file = tmp_path / "x.pt"
    saved = {
        "model": models(torch).state_dict(),
        "step": 3,
        "list": [torch.tensor([1, 2]), (torch.ones(2, dtype=torch.bfloat16), "text", None)],
    }
    torch.save(saved, file, _use_new_zipfile_serialization=not old)
    read = gt.load(file, map_location="cuda")
    assert isinstance(read["model"], OrderedDict)
    assert read["step"] == 3
    assert read["list"][0].tolist() == [1, 2]
    assert read["list"][1][0].dtype == gt.bfloat16
    assert read["list"][1][1:] == ("text", None)
    for name, value in saved["model"].items():
        assert isinstance(read["model"][name], gt.Tensor)
        assert read["model"][name].tolist() == value.tolist()
    models(gt).load_state_dict(read["model"])


def test_weights_only_holds_for_a_checkpoint_of_pytorch(tmp_path):
    file = tmp_path / "x.pt"
    torch.save({"point": Point(torch.ones(2), 3)}, file)
    with pytest.raises(Exception, match=r"[Ww]eights.only"):
        gt.load(file)
    read = gt.load(file, weights_only=False)["point"]
    assert isinstance(read, Point)
    assert read.x.tolist() == [1.0, 1.0]
    with gt.serialization.safe_globals([Point]):
        assert gt.load(file)["point"].y == 3
    assert gt.serialization.get_safe_globals() == []


def test_without_pytorch_a_checkpoint_is_read_or_says_what_to_do(tmp_path):
    saved = {"a": torch.ones(2)}
    torch.save(saved, tmp_path / "x.pt")
    torch.save(saved, tmp_path / "old.pt", _use_new_zipfile_serialization=False)
    code = """
    import sys, gt
    sys.modules["torch"] = None
    print(gt.load("x.pt")["a"].tolist())
    gt.load("old.pt")
    """
    command = [sys.executable, "-c", textwrap.dedent(code)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=50)
    assert done.stdout == "[1.0, 1.0]\n"
    assert "NotSupported: load: old.pt" in done.stderr
    assert "PyTorch is not installed here" in done.stderr
    assert "save_file" in done.stderr


def test_a_module_is_saved_by_its_state_dict(tmp_path):
    for obj in (gt.nn.Linear(1, 1), {"model": gt.nn.Linear(1, 1)}):
        with pytest.raises(TypeError, match=r"is a Linear.*save its state_dict\(\)"):
            gt.save(obj, tmp_path / "x")
    assert not list(tmp_path.iterdir())


class Items(torch.utils.data.Dataset):
    def __len__(self):
        return 4

    def __getitem__(self, place):
        return gt.tensor([place, 1.0]), {"label": gt.tensor(place)}


def test_the_loader_of_pytorch_collates_tensors_of_gt():
    batches = list(torch.utils.data.DataLoader(Items(), batch_size=2))
    assert [type(batch[0]) for batch in batches] == [gt.Tensor, gt.Tensor]
    assert batches[1][0].tolist() == [[2.0, 1.0], [3.0, 1.0]]
    assert batches[1][1]["label"].tolist() == [2, 3]
