"""gt.save and gt.load: round trips, files of and for the safetensors package, hostile files."""

import io
import json
import random
import tracemalloc

import numpy as np
import pytest
import safetensors.numpy
import safetensors.torch
import torch

import gt

DTYPES = [
    "float64",
    "float32",
    "float16",
    "bfloat16",
    "int64",
    "int32",
    "int16",
    "int8",
    "uint8",
    "bool",
]


def equal(ours, other):
    """True where structure, dtypes and values are equal."""
    if isinstance(other, gt.Tensor):
        return (
            isinstance(ours, gt.Tensor)
            and ours.dtype == other.dtype
            and tuple(ours.shape) == tuple(other.shape)
            and ours.tolist() == other.tolist()
        )
    if isinstance(other, dict):
        return list(ours) == list(other) and all(equal(ours[key], other[key]) for key in other)
    if isinstance(other, list | tuple):
        return (
            type(ours) is type(other) and len(ours) == len(other) and all(map(equal, ours, other))
        )
    return type(ours) is type(other) and ours == other


def tensor(dtype, shape=(2, 3)):
    values = np.arange(np.prod(shape)).reshape(shape) % 5
    return gt.tensor(values.tolist(), dtype=getattr(gt, dtype)).reshape(shape)


def trained():
    model = gt.nn.Linear(3, 2)
    optimizer = gt.optim.AdamW([{"params": [model.weight]}, {"params": [model.bias], "lr": 0.1}])
    model(gt.ones(1, 3)).sum().backward()
    optimizer.step()
    return model, optimizer


OBJECTS = {
    "tensor": lambda: gt.arange(5),
    "scalar": lambda: gt.tensor(2.5),
    "empty": lambda: gt.zeros(0, 3),
    "transposed": lambda: {"t": tensor("float32").T},
    "all dtypes": lambda: {dtype: tensor(dtype) for dtype in DTYPES},
    "nothing": dict,
    "dotted": lambda: {"a.b": gt.ones(1), "a.c": gt.zeros(2)},
    "nested": lambda: {"a": {"b": gt.ones(1), 3: [gt.zeros(2), None, (1, 2.5, "x", True)]}},
    "colliding": lambda: {"a": {"b": gt.ones(1)}, "a.b": gt.zeros(1)},
    "the metadata's name": lambda: {"__metadata__": gt.ones(1)},
    "no tensor": lambda: {"step": 3, "nan": [float("inf"), -1e300], "text": "zwölf"},
    "state dictionary": lambda: dict(trained()[0].state_dict()),
    "checkpoint": lambda: {
        "model": dict(trained()[0].state_dict()),
        "optimizer": trained()[1].state_dict(),
        "step": 7,
    },
}


@pytest.mark.parametrize("name", OBJECTS)
def test_round_trip(name, tmp_path):
    saved = OBJECTS[name]()
    gt.save(saved, tmp_path / "file")
    assert equal(gt.load(str(tmp_path / "file")), saved)
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_what_is_loaded_is_used(tmp_path):
    model, optimizer = trained()
    gt.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, tmp_path / "file")
    loaded = gt.load(tmp_path / "file")
    model.load_state_dict(loaded["model"])
    optimizer.load_state_dict(loaded["optimizer"])
    assert optimizer.state[model.weight]["step"] == 1
    assert optimizer.param_groups[0]["betas"] == (0.9, 0.999)


def test_pytorch_reads_a_state_dictionary(tmp_path):
    saved = {**{dtype: tensor(dtype) for dtype in DTYPES}, "scalar": gt.tensor(1.5)}
    gt.save(saved, tmp_path / "file")
    read = safetensors.torch.load_file(tmp_path / "file")
    assert set(read) == set(saved)
    for name, ours in saved.items():
        assert str(read[name].dtype).split(".")[1] == str(ours.dtype).split(".")[1]
        assert read[name].tolist() == ours.tolist()


def test_a_nested_file_is_readable_by_dotted_names(tmp_path):
    gt.save({"model": {"weight": gt.ones(2)}, "step": 3}, tmp_path / "file")
    assert safetensors.numpy.load_file(tmp_path / "file")["model.weight"].tolist() == [1, 1]


def test_reads_what_pytorch_wrote(tmp_path):
    written = {dtype: torch.arange(6).reshape(2, 3).to(getattr(torch, dtype)) for dtype in DTYPES}
    safetensors.torch.save_file(written, tmp_path / "file", metadata={"format": "pt"})
    read = gt.load(tmp_path / "file")
    assert set(read) == set(written)
    for name, theirs in written.items():
        assert str(read[name].dtype) == f"gt.{name}"
        assert read[name].tolist() == theirs.tolist()


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ({"a": {"b": object()}}, "a.b is a object"),
        ({"a": {1.5: gt.ones(1)}}, "a has a key 1.5"),
        ({"a": {True: gt.ones(1)}}, "a has a key True"),
        ([np.ones(1)], "0 is a ndarray"),
    ],
)
def test_what_cannot_be_saved_is_named(value, text, tmp_path):
    (tmp_path / "file").write_text("kept")
    with pytest.raises(TypeError, match=text):
        gt.save(value, tmp_path / "file")
    assert (tmp_path / "file").read_text() == "kept"


def test_too_deep(tmp_path):
    value = gt.ones(1)
    for _ in range(100):
        value = [value]
    with pytest.raises(TypeError, match="deeper than 64"):
        gt.save(value, tmp_path / "file")


def file_of(header, data=b""):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + data


def entry(dtype="F32", shape=(1,), offsets=(0, 4)):
    return {"dtype": dtype, "shape": list(shape), "data_offsets": list(offsets)}


def structured(structure):
    text = structure if isinstance(structure, str) else json.dumps(structure)
    return file_of({"__metadata__": {"gt.structure": text}, "a": entry()}, bytes(4))


HOSTILE = {
    "empty": (b"", "header claims 0 bytes"),
    "short": (b"\1\0", "the file has 0 more"),
    "huge header": ((2**63).to_bytes(8, "little") + b"{}", "header claims 9223372036854775808"),
    "not json": (file_of(b"{..}"), "not JSON"),
    "not utf-8": (file_of(b"\xff\xfe"), "not UTF-8"),
    "a list": (file_of([]), "does not describe tensors: invalid type: sequence"),
    "nested": (file_of(b"[" * 200_000), "does not describe tensors"),
    "a nested entry": (file_of(b'{"a":' + b'{"x":' * 200_000), "EOF while parsing"),
    "a huge number": (file_of(b'{"a":' + b"9" * 10_000 + b"}"), "number out of range"),
    "a name twice": (
        file_of(b'{"a":%s,"a":%s}' % ((json.dumps(entry()).encode(),) * 2), bytes(4)),
        'names "a" twice',
    ),
    "a field twice": (file_of(b'{"a":{"shape":[],"shape":[]}}'), "duplicate field `shape`"),
    "metadata twice": (file_of(b'{"__metadata__":{"a":"1","a":"2"}}'), 'names "a" twice'),
    "metadata of a number": (file_of({"__metadata__": {"a": 1}}), "expected a string"),
    "not an entry": (file_of({"a": 1}), 'tensor "a": invalid type: integer'),
    "no fields": (file_of({"a": {}}), 'tensor "a": missing field `dtype`'),
    "a dtype of others": (
        file_of({"a": entry("F8_E4M3", [4])}, bytes(4)),
        'tensor "a" has dtype F8_E4M3, which GT does not have',
    ),
    "unknown dtype": (file_of({"a": entry("F80")}, bytes(4)), 'tensor "a": unknown variant `F80`'),
    "dtype of a wrong type": (
        file_of({"a": entry(["F32"])}, bytes(4)),
        'tensor "a": expected value',
    ),
    "negative size": (file_of({"a": entry(shape=[-1])}, bytes(4)), "integer `-1`, expected usize"),
    "size true": (file_of({"a": entry(shape=[True])}, bytes(4)), "boolean `true`, expected usize"),
    "wrong span": (
        file_of({"a": entry(shape=[2])}, bytes(4)),
        r'tensor "a" of dtype F32 and shape \[2\] has offsets \[0, 4\]',
    ),
    "wrong span of the second": (
        file_of({"a": entry(), "b": entry(shape=[2], offsets=[4, 8])}, bytes(8)),
        r'tensor "b" of dtype F32 and shape \[2\] has offsets \[4, 8\]',
    ),
    "backwards": (file_of({"a": entry(shape=[0], offsets=[4, 0])}, bytes(4)), r"offsets \[4, 0\]"),
    "overlap": (
        file_of({"a": entry(), "b": entry()}, bytes(4)),
        "overlaps",
    ),
    "gap": (file_of({"a": entry(offsets=[4, 8])}, bytes(8)), "leaves a gap"),
    "too little data": (file_of({"a": entry()}, bytes(3)), "the file has 3"),
    "too much data": (file_of({"a": entry()}, bytes(5)), "the file has 5"),
    "huge shape": (
        file_of({"a": entry(shape=[2**40], offsets=[0, 2**42])}, bytes(4)),
        "take 4398046511104 bytes and the file has 4",
    ),
    "a shape beyond 64 bits": (
        file_of({"a": entry(shape=[2**40, 2**40])}, bytes(4)),
        r'tensor "a" of .* shape \[1099511627776, 1099511627776\].*overflow',
    ),
    "offsets beyond 64 bits": (file_of({"a": entry(offsets=[0, 2**82])}, bytes(4)), 'tensor "a"'),
    "bool of 7": (file_of({"a": entry("BOOL", [1], [0, 1])}, b"\7"), "other than 0 and 1"),
    "structure not json": (structured("{"), "not JSON"),
    "structure of nothing": (structured({"what": 1}), "without meaning"),
    "structure with a tensor that is not there": (structured({"tensor": "b"}), "without meaning"),
    "structure with a broken item": (structured({"dict": [[1]]}), "without meaning"),
    "structure too deep": (
        structured('{"list":[' * 100 + "1" + "]}" * 100),
        "deeper than 64",
    ),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_file(name, tmp_path):
    data, text = HOSTILE[name]
    (tmp_path / "file").write_bytes(data)
    with pytest.raises(ValueError, match=text) as caught:
        gt.load(tmp_path / "file")
    assert isinstance(caught.value, gt.serialization.FileFormatError)
    assert str(tmp_path) in str(caught.value)


def test_no_such_file(tmp_path):
    with pytest.raises(FileNotFoundError):
        gt.load(tmp_path / "file")


def test_a_large_state_is_in_several_files_with_an_index(tmp_path):
    """The format of Hugging Face's libraries; each file alone is readable everywhere."""
    state = {f"layer{i}.weight": gt.full((10,), i) for i in range(5)} | {"big": gt.ones(100)}
    gt.save(state, tmp_path / "model.safetensors")
    gt.save(state, tmp_path / "model.safetensors", max_shard_size="200")
    index = json.loads((tmp_path / "model.safetensors.index.json").read_text())
    names = [f"model-{n:05}-of-00004.safetensors" for n in range(1, 5)]
    assert index["metadata"] == {"total_size": 5 * 80 + 400}
    assert list(index["weight_map"]) == list(state)
    assert list(index["weight_map"].values()) == [names[place // 2] for place in range(5)] + [
        names[3]
    ]
    written = sorted(path.name for path in tmp_path.iterdir())
    assert written == [*names, "model.safetensors.index.json"]
    for name in names:
        for key, value in safetensors.numpy.load_file(tmp_path / name).items():
            assert index["weight_map"][key] == name
            assert value.tolist() == state[key].tolist()
    for where in ("model.safetensors", "model.safetensors.index.json"):
        assert equal(gt.load(tmp_path / where), state)


def test_reads_the_index_and_shards_of_other_writers(tmp_path):
    """The format of Hugging Face's hub: `model.safetensors.index.json` beside its shards."""
    written = {
        "embed.weight": torch.arange(12, dtype=torch.bfloat16).reshape(4, 3),
        "layer.weight": torch.randn(3, 3, dtype=torch.float16),
        "layer.bias": torch.randn(3),
        "step": torch.tensor(7),
    }
    places = dict(zip(written, ("b", "a", "b", "a"), strict=True))
    for shard in "ab":
        tensors = {name: value for name, value in written.items() if places[name] == shard}
        path = tmp_path / f"model-{shard}.safetensors"
        safetensors.torch.save_file(tensors, path, metadata={"format": "pt"})
    weight_map = {name: f"model-{shard}.safetensors" for name, shard in places.items()}
    index = {"metadata": {"total_size": 62}, "weight_map": weight_map}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    for name in ("model.safetensors", "model.safetensors.index.json"):
        read = gt.load(tmp_path / name)
        assert list(read) == list(written)
        for key, theirs in written.items():
            assert str(read[key].dtype).split(".")[1] == str(theirs.dtype).split(".")[1]
            assert tuple(read[key].shape) == tuple(theirs.shape)
            assert read[key].tolist() == theirs.tolist()


def test_a_nested_object_in_several_files(tmp_path):
    model, optimizer = trained()
    state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": 3}
    gt.save(state, tmp_path / "all", max_shard_size=1)
    assert not (tmp_path / "all").exists()
    assert equal(gt.load(tmp_path / "all"), state)


def test_what_fits_in_one_file_has_no_index(tmp_path):
    gt.save({"a": gt.ones(3)}, tmp_path / "file", max_shard_size="5GB")
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


@pytest.mark.parametrize("size", ["5 parsecs", 0, -1, "", True, "GB"])
def test_a_size_that_is_none(size, tmp_path):
    with pytest.raises(ValueError, match="max_shard_size"):
        gt.save({"a": gt.ones(3)}, tmp_path / "file", max_shard_size=size)


WRONG_INDEX = {
    "not json": (b"{", "not JSON"),
    "not utf-8": (b"\xff", "not UTF-8"),
    "no map": (b"{}", "no weight_map"),
    "a map of nothing": (b'{"weight_map": 3}', "no weight_map"),
    "a list": (b"[]", "no weight_map"),
    "a number for a file": (b'{"weight_map": {"a": 3}}', "names no file"),
    "a path upwards": (b'{"weight_map": {"a": "../one"}}', "names no file"),
    "an absolute path": (b'{"weight_map": {"a": "/etc/passwd"}}', "names no file"),
    "a file that is missing": (b'{"weight_map": {"a": "two"}}', "two is missing"),
    "a tensor that is missing": (b'{"weight_map": {"b": "one"}}', "in one: it has no tensor 'b'"),
    "a name twice": (b'{"weight_map": {"a": "one", "a": "one"}}', "twice"),
    "a damaged file": (b'{"weight_map": {"a": "broken"}}', "in broken: its header claims"),
    "a structure of nothing": (
        b'{"metadata": {"gt.structure": "{}"}, "weight_map": {"a": "one"}}', "without meaning",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG_INDEX)
def test_a_wrong_index(name, tmp_path):
    text, error = WRONG_INDEX[name]
    gt.save({"a": gt.ones(3)}, tmp_path / "one")
    (tmp_path / "broken").write_bytes(b"\1")
    (tmp_path / "x.index.json").write_bytes(text)
    with pytest.raises(gt.serialization.FileFormatError, match=error):
        gt.load(tmp_path / "x")


MUTATIONS = 400
SPARE_BYTES = 200_000  # what parsing may take beside the file itself


def mutated(data, draw):
    """`data` with bytes changed, cut, inserted or repeated; half of the time in the header."""
    data = bytearray(data)
    for _ in range(draw.randint(1, 3)):
        at = draw.randrange(min(len(data), 300) if draw.random() < 0.5 else len(data))
        kind = draw.randrange(5)
        if kind == 0:
            data[at] ^= 1 << draw.randrange(8)
        elif kind == 1:
            data[at] = draw.choice(b'0123456789"[]{}:,-')
        elif kind == 2:
            del data[at : at + draw.randint(1, 9)]
        elif kind == 3:
            data[at:at] = draw.randbytes(draw.randint(1, 9))
        else:
            data[at:at] = data[at : at + draw.randint(1, 40)]
        if not data:
            break
    return bytes(data)


def test_damaged_files_are_refused_or_read_as_the_library_reads_them(tmp_path):
    """Whatever GT takes the library takes, with the same values; none allocates more than it is."""
    draw = random.Random(7)
    values = {"a": np.arange(6, dtype=np.float32).reshape(2, 3), "b": np.arange(4), "c": np.ones(3)}
    data, path, taken = safetensors.numpy.save(values), tmp_path / "file", 0
    gt.load(_written(path, data))  # what is made once
    for number in range(MUTATIONS):
        damaged = mutated(data, draw)
        tracemalloc.start()
        try:
            loaded = gt.load(_written(path, damaged))
        except gt.serialization.FileFormatError:
            loaded = None
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert peak < SPARE_BYTES, f"mutation {number}: {peak} bytes"
        if loaded is not None and isinstance(loaded, dict):
            taken += 1
            theirs = safetensors.numpy.load(damaged)
            assert loaded.keys() == theirs.keys(), f"mutation {number}"
            for name, value in theirs.items():
                ours = gt.Tensor.numpy(loaded[name])
                assert ours.tobytes() == value.tobytes(), f"mutation {number}: {name}"
    assert 0 < taken < MUTATIONS


@pytest.mark.parametrize("name", OBJECTS)
def test_open_files_are_written_and_read_from_where_they_are(name):
    value = OBJECTS[name]()
    file = io.BytesIO(b"before")
    file.seek(6)
    gt.save(value, file)
    gt.save({"next": gt.ones(2)}, end := io.BytesIO())
    assert file.getvalue().startswith(b"before")
    file.seek(6)
    assert equal(gt.load(file), value)
    assert not file.read()
    end.seek(0)
    assert equal(gt.load(end), {"next": gt.ones(2)})


def test_open_files_as_pytorch_has_them(tmp_path):
    torch.save({"w": torch.arange(3.0), "step": 2}, file := io.BytesIO())
    file.seek(0)
    assert equal(gt.load(file), {"w": gt.arange(3.0), "step": 2})
    with (tmp_path / "file").open("wb") as opened:
        gt.save(gt.ones(2, 2), opened)
    with (tmp_path / "file").open("rb") as opened:
        assert equal(gt.load(opened), gt.ones(2, 2))
    with pytest.raises(gt.serialization.FileFormatError, match="the BytesIO is no safetensors"):
        gt.load(io.BytesIO(b"no such thing at all"))
    with pytest.raises(ValueError, match="max_shard_size wants a path"):
        gt.save(gt.ones(2), io.BytesIO(), max_shard_size=10)
    with pytest.raises(TypeError, match="save: expected a path or an open binary file, got int"):
        gt.save(gt.ones(2), 3)
    with pytest.raises(TypeError, match="load: expected a path or an open binary file, got None"):
        gt.load(None)


def test_a_state_goes_to_pytorch_and_back():
    ours, theirs = gt.nn.Linear(3, 2), torch.nn.Linear(3, 2)
    theirs.load_state_dict(gt.to_torch(ours.state_dict()))
    assert theirs.weight.tolist() == ours.weight.tolist()
    nested = gt.to_torch({"a": [gt.ones(1), 2], "b": (gt.zeros(1), None)})
    assert torch.equal(nested["a"][0], torch.ones(1))
    assert (nested["a"][1], nested["b"][1]) == (2, None)
    assert torch.equal(nested["b"][0], torch.zeros(1))


def _written(path, data):
    path.write_bytes(data)
    return path
