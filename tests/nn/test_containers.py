"""Containers of modules and parameters: what their methods give, beside PyTorch's."""

from collections import OrderedDict

import pytest
import torch

import gt

BOTH = pytest.mark.parametrize("m", [gt, torch], ids=["gt", "torch"])


def chain(m, count=3):
    return m.nn.Sequential(*(m.nn.Linear(n + 1, n + 2) for n in range(count)))


def listed(m, count=3):
    return m.nn.ModuleList(m.nn.Linear(n + 1, n + 2) for n in range(count))


def shown(value):
    """Comparable form of a value: sizes of layers, names, texts, numbers."""
    if isinstance(value, (torch.nn.Module, gt.nn.Module)):
        text = repr(value).replace("torch.", "").replace("gt.", "")
        return (type(value).__name__, [n for n, _ in value.named_parameters()], text.split())
    if isinstance(value, (torch.Tensor, gt.Tensor)):
        return value.tolist(), type(value).__name__
    if isinstance(value, (list, tuple)):
        return [shown(x) for x in value]
    return value


def outcome(call, *args):
    """Result of a call, or the text of its error."""
    try:
        return shown(call(*args))
    except (IndexError, TypeError, ValueError, RuntimeError) as error:
        return str(error).replace("gt.nn.containers", "torch.nn.modules.container")


def last(*values):
    return values[-1]


MODULES = [
    lambda m, c: c.insert(1, m.nn.Tanh()) and c,
    lambda m, c: c.insert(0, m.nn.Tanh()) and c,
    lambda m, c: c.append(m.nn.Tanh()),
    lambda m, c: c.extend([m.nn.Tanh(), m.nn.ReLU()]),
    lambda m, c: (c.pop(1), c),
    lambda m, c: (c.pop(-1), c),
    lambda m, c: (c.pop(slice(0, 2)), c),
    lambda m, c: c[1:],
    lambda m, c: c[::-1],
    lambda m, c: c[-1],
    lambda m, c: last(c.__setitem__(-1, m.nn.Tanh()), c),
    lambda m, c: last(c.__delitem__(0), c),
    lambda m, c: last(c.__delitem__(slice(1, None)), c),
    lambda m, c: [len(c), *c],
    lambda m, c: c[3],
    lambda m, c: c[-4],
    lambda m, c: c.append(3),
    lambda m, c: c["0"],
]


@pytest.mark.parametrize("make", [chain, listed])
@pytest.mark.parametrize("call", MODULES)
def test_sequences_of_modules(make, call):
    if (call is MODULES[0] and make is listed) or (call is MODULES[1] and make is listed):
        call = lambda m, c, call=call: last(call(m, c), c)  # noqa: E731 - PyTorch's gives None
    assert outcome(call, gt, make(gt)) == outcome(call, torch, make(torch))


SUMS = [
    lambda m: chain(m) + chain(m, 2),
    lambda m: chain(m) * 2,
    lambda m: 2 * chain(m),
    lambda m: chain(m).__iadd__(chain(m, 1)),
    lambda m: chain(m).__imul__(3),
    lambda m: listed(m) + [m.nn.Tanh()],  # noqa: RUF005
    lambda m: listed(m).__iadd__([m.nn.Tanh()]),
    lambda m: chain(m) + [m.nn.Tanh()],  # noqa: RUF005
    lambda m: chain(m) * 0,
    lambda m: chain(m) * "a",
    lambda m: chain(m).insert(7, m.nn.Tanh()),
    lambda m: m.nn.ModuleList(3),
    lambda m: m.nn.ModuleDict(3),
    lambda m: m.nn.ModuleDict([3]),
    lambda m: m.nn.ModuleDict([("a", m.nn.Tanh(), 1)]),
    lambda m: m.nn.ModuleDict({"b": m.nn.Tanh(), "a": m.nn.ReLU()}),
    lambda m: m.nn.ModuleDict([("b", m.nn.Tanh()), ["a", m.nn.ReLU()]]),
    lambda m: m.nn.ModuleDict({"b": m.nn.Tanh()}).pop("b"),
    lambda m: m.nn.Sequential(OrderedDict(b=m.nn.Tanh(), a=m.nn.ReLU())),
]


@pytest.mark.parametrize("call", SUMS)
def test_sums_products_and_dictionaries(call):
    assert outcome(call, gt) == outcome(call, torch)


def numbers(m):
    return [m.ones(2), m.nn.Parameter(m.zeros(1)), "text", m.tensor([3.0])]


LISTS = [
    lambda m, p: p,
    lambda m, p: repr(p).replace("torch.", "gt."),
    lambda m, p: [len(p), *p],
    lambda m, p: p[1:3],
    lambda m, p: p[-1],
    lambda m, p: p.append(m.ones(3)),
    lambda m, p: p.extend([m.ones(3), 1]),
    lambda m, p: last(p.__setitem__(-1, m.ones(3)), p),
    lambda m, p: p.__iadd__([m.ones(1)]),
    lambda m, p: list(p.state_dict()),
    lambda m, p: p[4],
    lambda m, p: p.extend(3),
    lambda m, p: p.extend(m.ones(3)),
    lambda m, p: p(),
]


@pytest.mark.parametrize("call", LISTS)
def test_lists_of_parameters(call):
    ours, theirs = (m.nn.ParameterList(numbers(m)) for m in (gt, torch))
    assert outcome(call, gt, ours) == outcome(call, torch, theirs)


DICTS = [
    lambda m, p: p,
    lambda m, p: list(p.state_dict()),
    lambda m, p: [*p.items(), *p.keys(), *p.values(), *reversed(p), len(p), "a" in p],
    lambda m, p: [p.get("a"), p.get("x"), p.get("x", 3), p.setdefault("a"), p.setdefault("n", 3)],
    lambda m, p: [p.pop("a"), *p],
    lambda m, p: [p.popitem(), *p],
    lambda m, p: last(p.clear(), [len(p), list(p.state_dict())]),
    lambda m, p: list((p | m.nn.ParameterDict({"z": m.ones(1)})).items()),
    lambda m, p: list(p.__ior__({"z": m.ones(1)}).items()),
    lambda m, p: list(p.copy().items()),
    lambda m, p: list(p.fromkeys(["x", "y"], 3).items()),
    lambda m, p: last(p.update([("x", m.ones(1))]), list(p)),
    lambda m, p: last(p.update(OrderedDict(y=1, x=2)), list(p)),
    lambda m, p: p.update([3]),
    lambda m, p: p.update([("a", 1, 2)]),
    lambda m, p: p.update(3),
    lambda m, p: p(m.ones(1)),
]


@pytest.mark.parametrize("call", DICTS)
def test_dictionaries_of_parameters(call):
    made = []
    for m in (gt, torch):
        given = {"b": m.ones(2), "a": m.nn.Parameter(m.zeros(1)), "c": "text"}
        made.append(m.nn.ParameterDict(given))
    assert outcome(call, gt, made[0]) == outcome(call, torch, made[1])


@BOTH
def test_what_an_optimizer_sees(m):
    class Net(m.nn.Module):
        def __init__(self):
            super().__init__()
            self.list = m.nn.ParameterList([m.ones(2), m.ones(3)])
            self.dict = m.nn.ParameterDict({"b": m.ones(1), "a": m.ones(4)})
            self.nested = m.nn.ModuleDict({"x": m.nn.ModuleList([m.nn.Linear(1, 1)])})

    names = [name for name, _ in Net().named_parameters()]
    assert names == ["list.0", "list.1", "dict.a", "dict.b", "nested.x.0.weight",
                     "nested.x.0.bias"]  # fmt: skip
    with pytest.raises(KeyError if m is gt else AttributeError):
        Net().dict["x"]
    with pytest.raises(TypeError, match="not a string"):
        Net().dict[3]
