"""Whole modules and objects in files: refused with the remedy, written where that is asked for."""

import argparse
import io

import pytest

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
