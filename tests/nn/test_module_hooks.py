"""Hooks around saving and loading a module, extra state, and its tree: as in PyTorch."""

import copy

import pytest
import torch

import gt

BOTH = pytest.mark.parametrize("m", [gt, torch], ids=["gt", "torch"])


def model(m):
    return m.nn.Sequential(m.nn.Linear(2, 3), m.nn.Sequential(m.nn.BatchNorm1d(3)))


def saving(m):
    """Calls of the hooks of a save, in order, and the saved state."""
    seen, net = [], model(m)

    def before(module, prefix, keep_vars):
        seen.append(("before", type(module).__name__, prefix, keep_vars))

    def after(module, state_dict, prefix, metadata):
        del metadata
        seen.append(("after", type(module).__name__, prefix, sorted(state_dict)))
        state_dict[prefix + "more"] = 1

    handles = []
    for module in net.modules():
        handles.append(module.register_state_dict_pre_hook(before))
        handles.append(module.register_state_dict_post_hook(after))
    names = list(net.state_dict(prefix="p.", keep_vars=True))
    for handle in handles:
        handle.remove()
    assert len(seen) == 8
    net.state_dict()
    assert len(seen) == 8
    return seen, names


def test_hooks_of_saving():
    assert saving(gt) == saving(torch)


def loading(m):
    seen, net, older = [], model(m), model(m).state_dict()
    older["0.kernel"] = older.pop("0.weight")

    def before(module, state_dict, prefix, metadata, strict, missing, unexpected, errors):
        del metadata
        seen.append((type(module).__name__, prefix, strict, missing[:], unexpected[:], errors[:]))
        if prefix + "kernel" in state_dict:
            state_dict[prefix + "weight"] = state_dict.pop(prefix + "kernel")

    def after(module, keys):
        seen.append((type(module).__name__, keys.missing_keys[:], keys.unexpected_keys[:]))
        keys.missing_keys.clear()

    net[0].register_load_state_dict_pre_hook(before)
    net.register_load_state_dict_post_hook(after)
    del older["0.bias"]
    assert "0.kernel" in older
    seen.append(str(net.load_state_dict(older)))
    assert "0.kernel" in older  # the hook changed a copy
    return seen


def test_hooks_of_loading():
    assert loading(gt) == loading(torch)


@BOTH
def test_a_hook_without_the_module(m):
    net, seen = model(m), []
    net._register_load_state_dict_pre_hook(lambda *given: seen.append(given[1]))
    net.load_state_dict(net.state_dict())
    assert seen == [""]


@BOTH
def test_an_override_of_a_child_is_called(m):
    class Child(m.nn.Linear):
        def state_dict(self, *args, **kwargs):
            values = super().state_dict(*args, **kwargs)
            values.pop(kwargs["prefix"] + "bias")
            return values

    assert list(m.nn.Sequential(Child(1, 1)).state_dict()) == ["0.weight"]


@BOTH
def test_extra_state(m):
    class Counting(m.nn.Module):
        def __init__(self):
            super().__init__()
            self.count = 0
            self.inner = m.nn.Linear(1, 1)

        def get_extra_state(self):
            return {"count": self.count}

        def set_extra_state(self, state):
            self.count = state["count"]

    one, other = (m.nn.Sequential(Counting()) for _ in range(2))
    one[0].count = 5
    saved = one.state_dict()
    assert list(saved) == ["0._extra_state", "0.inner.weight", "0.inner.bias"]
    other.load_state_dict(saved)
    assert other[0].count == 5
    del saved["0._extra_state"]
    with pytest.raises(RuntimeError, match=r"Missing key\(s\) in state_dict: \"0._extra_state\""):
        other.load_state_dict(saved)


@BOTH
def test_the_tree_by_dotted_names(m):
    net = model(m)
    net.set_submodule("1.0", m.nn.Identity())
    assert isinstance(net[1][0], m.nn.Identity)
    net.set_submodule("1.more", m.nn.ReLU())
    assert isinstance(net.get_submodule("1.more"), m.nn.ReLU)
    with pytest.raises(AttributeError, match="`7`"):
        net.set_submodule("7", m.nn.ReLU(), strict=True)
    with pytest.raises(ValueError, match="without a target"):
        net.set_submodule("", m.nn.ReLU())
    with pytest.raises(AttributeError, match=r"`weight` is not an nn\.Module"):
        net.set_submodule("0.weight", m.nn.ReLU())
    assert net.to_empty(device="cpu") is net
    assert net.get_parameter("0.weight").shape == (3, 2)


@BOTH
def test_hooks_go_with_a_copy(m):
    net, seen = model(m), []
    net.register_forward_hook(lambda *given: seen.append(len(given)))
    copy.deepcopy(net)(m.ones(2, 2))
    assert seen == [3]
