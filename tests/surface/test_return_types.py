"""Return types of operators with several results: PyTorch's types, names and text in GT."""

import copy
import pickle

import pytest
import torch

import gt

THEIRS = {t.__name__: t for t in torch.return_types.all_return_types}


def test_the_names_and_fields_are_pytorchs():
    kinds = {name: t for name, t in THEIRS.items() if not name.endswith("_out")}
    assert dir(gt.return_types) == sorted(kinds)
    for name, theirs in kinds.items():
        ours = getattr(gt.return_types, name)
        assert ours.__name__ == name
        assert ours.__match_args__ == theirs.__match_args__
        assert (ours.n_fields, ours.n_sequence_fields) == (theirs.n_fields, theirs.n_fields)


@pytest.mark.parametrize(
    "act",
    [
        lambda m, x: m.max(x, 1),
        lambda m, x: x.min(dim=0),
        lambda m, x: m.sort(x),
        lambda m, x: x.topk(2),
        lambda m, x: m.kthvalue(x, 1),
        lambda m, x: m.kthvalue(x[0, 0], 1),
        lambda m, x: m.median(x, 1),
        lambda m, x: m.median(x.long(), 1),
        lambda m, x: m.aminmax(x),
        lambda m, x: m.cummax(x, 0),
        lambda m, x: m.nanmedian(x, 0),
        lambda m, x: m.linalg.svd(x),
        lambda m, x: m.linalg.slogdet(x),
        lambda m, x: m.slogdet(x),
        lambda m, x: m.frexp(x),
    ],
)
def test_results_print_as_pytorchs(act):
    values = [[3.0, 1.0, 2.0], [4.0, 9.0, 6.0], [7.0, 8.0, 5.0]]
    ours, theirs = act(gt, gt.tensor(values)), act(torch, torch.tensor(values))
    assert repr(ours) == repr(theirs).replace("torch.", "gt.")
    assert type(ours) is getattr(gt.return_types, type(theirs).__name__)
    assert isinstance(ours, tuple)
    assert not hasattr(ours, "_fields")
    for name, result in zip(type(ours).__match_args__, ours, strict=True):
        assert getattr(ours, name) is result


def test_a_result_is_made_of_one_sequence():
    kind = gt.return_types.max
    assert kind((1, 2)) == (1, 2)
    assert type(pickle.loads(pickle.dumps(kind((1, 2))))) is kind
    assert copy.deepcopy(kind((1, 2))).indices == 2
    for given in [(1,), 5]:
        with pytest.raises(TypeError) as theirs:
            torch.return_types.max(given)
        with pytest.raises(TypeError) as ours:
            kind(given)
        assert str(ours.value) == str(theirs.value).replace("torch.", "gt.")


def test_results_travel_to_torch_and_back():
    theirs = gt.to_torch({"best": gt.tensor([[1.0, 2.0]]).max(1)})
    assert theirs["best"][0].tolist() == [2.0]
    assert theirs["best"][1].dtype == torch.int64
