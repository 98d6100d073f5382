"""Attributes of tensors beside PyTorch's: which copies have them, what is refused and collected."""

import copy
import gc
import pickle
import weakref

import pytest
import torch

import gt

BOTH = [gt, torch]


def named(library, kind):
    """A tensor with attributes, one of which is a tensor."""
    tensor = library.ones(2)
    if kind != "tensor":
        tensor = getattr(library.nn, kind)(tensor)
    tensor.foo, tensor.bar = [1], library.zeros(1)
    return tensor


COPIES = {
    "copy": copy.copy,
    "deepcopy": copy.deepcopy,
    "in a list": lambda t: copy.deepcopy([t, t])[1],
    "pickle": lambda t: pickle.loads(pickle.dumps(t)),
    "detach": lambda t: t.detach(),
    "clone": lambda t: t.clone(),
    "data": lambda t: t.data,
    "view": lambda t: t.view(2),
    "item": lambda t: t[0],
    "sum": lambda t: t + 1,
    "in place": lambda t: t.detach().add_(1),
    "requires_grad_": lambda t: t.requires_grad_(),
    "float": lambda t: t.float(),
    "contiguous": lambda t: t.contiguous(),
    "cpu": lambda t: t.cpu(),
}


@pytest.mark.parametrize("name", COPIES)
@pytest.mark.parametrize("kind", ["tensor", "Parameter"])
def test_which_copies_have_them(kind, name):
    seen = []
    for library in BOTH:
        tensor = named(library, kind)
        made = COPIES[name](tensor)
        shares = getattr(made, "foo", None) is tensor.foo
        seen.append(
            (type(made).__name__, sorted(vars(made)), shares, made.tolist(), made.requires_grad)
        )
    assert seen[0] == seen[1]


def test_a_parameter_is_made_without_them():
    for library in BOTH:
        assert vars(library.nn.Parameter(named(library, "tensor"))) == {}


STATEMENTS = """\
t.add = 1
t.nope
del t.nope
t.a = 1; del t.a; t.a
t.shape = 1
t.dtype = 1
t.is_leaf = 1
t.ndim = 1
t.device = 1
t.grad_fn = 1
del t.shape
t.grad = 1
t.requires_grad = True; assert t.requires_grad
t.data = t + 1; assert t.tolist() == [2, 2]
t.grad = t.detach(); del t.grad; assert t.grad is None
t.__dict__ = 3
t.__dict__ = {'q': 1}; assert t.q == 1
setattr(t, 'a b', 1)
t.__len__ = 3; assert len(t) == 2
t.b = 1; assert vars(t) == {'b': 1} == t.__dict__
vars(t)['c'] = 2; assert t.c == 2 and hasattr(t, 'c')
t.add = 1; assert t.add == 1; del t.add; t.add(1)
assert 'x' not in dir(t); t.x = 1; assert 'x' in dir(t)
""".splitlines()


@pytest.mark.parametrize("statement", STATEMENTS)
def test_setting_and_deleting(statement):
    seen = []
    for library in BOTH:
        try:
            exec(statement, {"t": library.ones(2)})
            seen.append(None)
        except Exception as error:  # noqa: BLE001, PERF203 - compared
            kind = next(one for one in type(error).__mro__ if one.__module__ == "builtins")
            text = (
                str(error).replace("torch._C.TensorBase", "Tensor").replace("gt.Tensor", "Tensor")
            )
            seen.append((kind, text))
    assert seen[0] == seen[1]


def own(tensor):
    tensor.me = tensor


def through_dictionary(tensor):
    vars(tensor)["me"] = tensor


def through_list(tensor):
    tensor.others = [tensor.detach()]
    tensor.others[0].back = tensor


@pytest.mark.parametrize("tie", [own, through_dictionary, through_list])
@pytest.mark.parametrize("make", [lambda: gt.ones(2), lambda: gt.nn.Parameter(gt.ones(2))])
def test_cycles_are_collected(make, tie):
    tensor = make()
    tie(tensor)
    ended = weakref.ref(tensor)
    del tensor
    gc.collect()
    assert ended() is None


def test_one_without_attributes_is_not_visited():
    tensor = gt.ones(2) + 1
    assert not gc.is_tracked(tensor)
    tensor.foo = 1
    assert gc.is_tracked(tensor)


def test_memory_of_one_that_is_gone_brings_nothing_along():
    places = set()
    ended = []
    for turn in range(8):
        tensor = gt.ones(2) + turn
        places.add(id(tensor))
        assert vars(tensor) == {}
        assert not weakref.getweakrefs(tensor)
        tensor.turn = turn
        ended.append(weakref.ref(tensor))
        del tensor
        assert ended[-1]() is None
    assert len(places) < len(ended), "no memory was used again"
    assert not gc.is_tracked(gt.ones(2) + 1)
    parameter = gt.nn.Parameter(gt.ones(2))
    assert type(parameter) is gt.nn.Parameter
    assert gc.is_tracked(parameter)
