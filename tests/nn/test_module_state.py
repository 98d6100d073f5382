"""Names, state, registration and copies of modules beside PyTorch's."""

import copy
from collections import OrderedDict

import pytest
import torch

import gt

BOTH = pytest.mark.parametrize("m", [gt, torch], ids=["gt", "torch"])
# PyTorch's machinery of its compiler and of replicas, which nothing of the user's touches.
MACHINERY = {
    "T_destination", "_call_impl", "_compiled_call_impl", "_get_backward_hooks",
    "_get_backward_pre_hooks", "_maybe_warn_non_full_backward_hook",
    "_replicate_for_data_parallel", "_slow_forward", "_wrapped_call_impl", "dump_patches",
}  # fmt: skip


def test_a_module_has_the_names_of_pytorchs():
    theirs = {
        name for name in dir(torch.nn.Module) if not name.startswith("___")
    }  # torch.compile leaves marks
    theirs -= {"mux"}  # of gt.torch
    assert theirs - set(dir(gt.nn.Module)) == MACHINERY
    own = {name for name in vars(torch.nn.Module()) if not name.startswith("_")}
    assert own <= set(vars(gt.nn.Module()))
    tables = {name for name in vars(torch.nn.Module()) if name.endswith("_hooks")}
    assert tables <= set(vars(gt.nn.Module()))


def model(m):
    norm = m.nn.BatchNorm1d(3)
    norm.register_buffer("scratch", m.ones(1), persistent=False)
    return m.nn.Sequential(OrderedDict(a=m.nn.Linear(2, 3), b=m.nn.Sequential(norm)))


def test_metadata_say_versions():
    ours, theirs = model(gt).state_dict()._metadata, model(torch).state_dict()._metadata
    assert list(ours) == list(theirs)
    assert all(value["version"] >= 1 for value in ours.values())


@BOTH
def test_arguments_by_position(m):
    values = OrderedDict()
    with pytest.warns(FutureWarning, match="Positional args are being deprecated"):
        assert model(m).state_dict(values, "p.") is values
    assert "p.a.weight" in values


STATES = [
    lambda s: s.pop("a.weight"),
    lambda s: s.update({"a.more": s["a.bias"], "c.d": s["a.bias"], "more": s["a.bias"]}),
    lambda s: s.update({"b.0.weight.x": s["a.bias"], "a._extra_state": 1}),
    lambda s: s.update({"a.bias": s["a.bias"][:2], "b.0.bias": 3}),
    lambda s: (s.pop("b.0.running_mean"), s.update({"a.weight": s["a.bias"]}), s.pop("a.bias")),
]


@pytest.mark.parametrize("change", STATES)
@pytest.mark.parametrize("strict", [True, False])
def test_errors_of_loading(change, strict):
    texts = []
    for m in (gt, torch):
        net = model(m)
        values = dict(net.state_dict())
        change(values)
        try:
            texts.append(str(net.load_state_dict(values, strict=strict)))
        except RuntimeError as error:
            lines = [line.strip() for line in str(error).splitlines()]
            texts.append([line.split("expected torch.Tensor")[0] for line in lines])
    assert sorted(texts[0]) == sorted(texts[1])


@BOTH
def test_a_class_that_reads_its_older_states(m):
    seen = []

    class Renamed(m.nn.Linear):
        _version = 3

        def _load_from_state_dict(self, state_dict, prefix, local_metadata, *rest):
            seen.append((prefix, local_metadata.get("version"), len(rest), rest[0]))
            if local_metadata.get("version", 1) < 3:
                state_dict[prefix + "weight"] = state_dict.pop(prefix + "kernel")
            super()._load_from_state_dict(state_dict, prefix, local_metadata, *rest)

    net = m.nn.Sequential(m.nn.Sequential(Renamed(2, 3)))
    new = net.state_dict()
    net.load_state_dict(new)
    older = {"0.0.kernel": m.ones(3, 2), "0.0.bias": m.zeros(3)}
    assert str(net.load_state_dict(older)) == "<All keys matched successfully>"
    assert net[0][0].weight.tolist() == [[1.0, 1.0]] * 3
    assert seen == [("0.0.", 3, 4, True), ("0.0.", None, 4, True)]


@BOTH
def test_what_hooks_return(m):
    net = model(m)
    handle = net.register_state_dict_post_hook(lambda *given: {})
    with pytest.raises(RuntimeError, match="state_dict post-hook must return None"):
        net.state_dict()
    handle.remove()
    net._register_state_dict_hook(lambda *given: {"all": 1})
    assert net.state_dict() == {"all": 1}
    net.register_load_state_dict_post_hook(lambda *given: 1)
    with pytest.raises(AssertionError, match="not expected to return new values"):
        net.load_state_dict(dict(model(m).state_dict()))


@BOTH
def test_older_batch_norms_load(m):
    net = m.nn.BatchNorm1d(3)
    values = dict(net.state_dict())
    del values["num_batches_tracked"]
    assert str(net.load_state_dict(values)) == "<All keys matched successfully>"
    assert net.num_batches_tracked.item() == 0


@BOTH
def test_buffers(m):
    net = m.nn.Module()
    net.kept = m.nn.Buffer(m.ones(2))
    net.left = m.nn.Buffer(m.ones(2), persistent=False)
    assert isinstance(net.kept, m.nn.Buffer)
    assert [name for name, _ in net.named_buffers()] == ["kept", "left"]
    assert list(net.state_dict()) == ["kept"]
    net.kept = m.zeros(2)
    assert list(net.state_dict()) == ["kept"]
    net.kept = None
    assert net.kept is None
    with pytest.raises(TypeError, match="as buffer 'left'"):
        net.left = 3
    net.plain = 1
    with pytest.raises(KeyError, match="attribute 'plain' already exists"):
        net.plain = m.nn.Buffer(m.ones(1))
    assert copy.deepcopy(net).left.tolist() == [1.0, 1.0]
    assert net.get_buffer("left").tolist() == [1.0, 1.0]
    with pytest.raises(AttributeError, match="Module has no attribute `other`"):
        net.get_buffer("other")
    with pytest.raises(AttributeError, match="`training` is not a buffer"):
        net.get_buffer("training")


@BOTH
def test_arguments_of_the_base_class(m):
    class Next:
        def __init__(self, x=0):
            self.x = x

    class Both(m.nn.Module, Next):
        call_super_init = True

    assert Both(x=3).x == 3
    with pytest.raises(TypeError, match=r"takes 1 positional argument but 2 were given"):
        m.nn.Module(1)
    with pytest.raises(TypeError, match="got an unexpected keyword argument 'x'"):
        m.nn.Module(x=1)


@BOTH
def test_a_copy_is_a_model_of_its_own(m):
    net = model(m)
    net.a.weight.requires_grad_(False)
    other = copy.deepcopy(net)
    with m.no_grad():
        other.a.bias.fill_(7.0)
    assert net.a.bias.tolist() != [7.0] * 3
    assert not other.a.weight.requires_grad
    shallow = copy.copy(net)
    assert shallow.a is net.a
    twin = type(net).__new__(type(net))
    twin.__setstate__(dict(net.__dict__))
    assert list(twin.state_dict()) == list(net.state_dict())


@BOTH
@pytest.mark.parametrize("name", ["half", "bfloat16", "double", "float"])
def test_casts(m, name):
    net = getattr(model(m), name)()
    wanted = {"half": "float16", "float": "float32", "double": "float64"}.get(name, name)
    assert {str(p.dtype).rpartition(".")[2] for p in net.parameters()} == {wanted}
    assert str(net.b[0].num_batches_tracked.dtype).endswith("int64")
    assert net.type(m.float64) is net
    names = []
    assert net.apply(lambda module: names.append(type(module).__name__)) is net
    assert names == ["Linear", "BatchNorm1d", "Sequential", "Sequential"]


def test_a_module_is_not_saved_but_its_state(tmp_path):
    net, other = model(gt), model(gt)
    with pytest.raises(TypeError, match=r"save its state_dict\(\), and load that into one"):
        gt.save(net, tmp_path / "net")
    gt.save({"model": net.state_dict(), "step": [3, {"lr": 0.1}]}, tmp_path / "state")
    loaded = gt.load(tmp_path / "state")
    assert str(other.load_state_dict(loaded["model"])) == "<All keys matched successfully>"
    assert other.a.weight.tolist() == net.a.weight.tolist()
    assert loaded["step"] == [3, {"lr": 0.1}]


@BOTH
def test_a_users_lazy_module(m):
    from_path = m.nn.modules.lazy

    class LazyScale(from_path.LazyModuleMixin, m.nn.Module):
        def __init__(self):
            super().__init__()
            self.scale = m.nn.UninitializedParameter()

        def initialize_parameters(self, x):
            if self.has_uninitialized_params():
                with m.no_grad():
                    self.scale.materialize(x.shape[-1:])
                    self.scale.fill_(2.0)

        def forward(self, x):
            return x * self.scale

    net = LazyScale()
    assert from_path.is_lazy(net.scale)
    assert m.nn.Sequential(net)(m.ones(1, 2)).tolist() == [[2.0, 2.0]]
    assert not from_path.is_lazy(net.scale)
