"""Whole modules and objects in files: refused with the remedy, written where that is asked for."""

import argparse
import io

import pytest
import torch

import gt


@pytest.mark.parametrize("is_open", [False, True])
@pytest.mark.parametrize("kind", ["module", "options", "nested", "tensor"])
def test_whole_objects_come_back(kind, is_open, tmp_path):
    gt.manual_seed(0)
    layers = gt.nn.Sequential(gt.nn.Linear(3, 4), gt.nn.BatchNorm1d(4), gt.nn.Dropout(0.5)).eval()
    options = argparse.Namespace(lr=0.1, layers=[1, 2])
    tensor = gt.arange(4)
    values = {
        "module": layers, "options": options, "nested": {"m": layers, "o": options, "s": {1}},
        "tensor": tensor,
    }  # fmt: skip
    value = values[kind]
    file = io.BytesIO() if is_open else tmp_path / "whole.pt"
    if kind != "tensor":
        with pytest.raises(gt.errors.InvalidType, match=r"gt\.save\(obj, f, pickle=True\)"):
            gt.save(value, file)
    gt.save(value, file, pickle=True)
    if is_open:
        file.seek(0)
    with pytest.raises(gt.errors.InvalidUse, match="weights_only=False"):
        gt.load(file)
    back = gt.load(file, weights_only=False)
    assert type(back) is type(value)
    if kind == "tensor":
        assert back.tolist() == value.tolist()
    if kind == "nested":
        assert back["s"] == {1}
    if kind in ("options", "nested"):
        assert (back if kind == "options" else back["o"]) == options
    if kind in ("module", "nested"):
        module = back if kind == "module" else back["m"]
        x = gt.randn(2, 3)
        assert not module.training
        assert module(x).tolist() == layers(x).tolist()


def test_a_limit_of_shards_is_refused():
    with pytest.raises(gt.errors.InvalidValue, match="max_shard_size"):
        gt.save([1], io.BytesIO(), pickle=True, max_shard_size=10)


@pytest.mark.parametrize("is_open", [False, True])
def test_pytorch_reads_what_is_written_in_its_format(is_open, tmp_path):
    layers = gt.nn.Sequential(gt.nn.Linear(3, 4), gt.nn.BatchNorm1d(4))
    theirs = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4))
    file = io.BytesIO() if is_open else tmp_path / "weights.pt"
    halves = gt.tensor([1.5, 2.0], dtype=gt.bfloat16)
    value = {"model": layers.state_dict(), "epoch": 3, "more": [halves, (gt.arange(2), "x")]}
    gt.save(value, file, format="torch")
    if is_open:
        file.seek(0)
    read = torch.load(file)
    theirs.load_state_dict(read["model"])
    for name, tensor in theirs.state_dict().items():
        assert tensor.tolist() == layers.state_dict()[name].tolist()
    assert read["epoch"] == 3
    assert read["more"][0].dtype == torch.bfloat16
    assert read["more"][1][0].tolist() == [0, 1]
    assert read["more"][1][1] == "x"


@pytest.mark.parametrize("options", [{"format": "onnx"}, {"format": "torch", "pickle": True}])
def test_other_formats_are_refused(options):
    with pytest.raises(gt.errors.InvalidValue, match="format"):
        gt.save([gt.ones(1)], io.BytesIO(), **options)
