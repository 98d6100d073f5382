"""Rules by parameter path: what they mean, how parameters are distributed, the same numbers."""

import os
import subprocess
import sys

import numpy as np
import pytest
from spread_session import workers

import gt
from gt import nn
from gt.config.layout import ShardConfig
from gt.config.rules import Rule, rule_for
from gt.nn.placing import _rule, _text


@pytest.mark.fast
@pytest.mark.parametrize(
    ("pattern", "path", "expected"),
    [
        ("model.layers.*.mlp.up_proj", "layers.3.mlp.up_proj.weight", True),
        ("layers.*.mlp.up_proj", "layers.3.mlp.up_proj.weight", True),
        ("layers.*.mlp.up_proj", "layers.3.mlp.up_proj.bias", True),
        ("layers.*.mlp.up_proj.weight", "layers.3.mlp.up_proj.weight", True),
        ("layers.*.mlp.up_proj.weight", "layers.3.mlp.up_proj.bias", False),
        ("layers.*.mlp", "layers.3.mlp.up_proj.weight", False),
        ("layers.*.up*", "layers.3.up_proj.weight", True),
        ("**", "a.b.c", True),
        ("**.up", "layers.3.mlp.up.weight", True),
        ("layers.**.weight", "layers.3.mlp.up.weight", True),
        ("layers.**.weight", "layers.weight", True),
        ("layers.**.weight", "head.weight", False),
        ("*", "head.weight", True),
        ("*", "weight", True),
        ("model.weight", "weight", True),
        ("Head", "head.weight", False),
    ],
)
def test_what_a_pattern_means(pattern, path, expected):
    rule = Rule(pattern=pattern, style="replicate", shard=ShardConfig(), file="here")
    assert rule.matches(path) is expected
    assert (rule_for(path, [rule]) is rule) is expected


@pytest.mark.fast
def test_of_rules_that_match_the_last_holds():
    rules = [_rule("**", "replicate"), _rule("*.up", "colpar"), _rule("*.down", "rowpar")]
    styles = {
        path: rule_for(path, rules).style for path in ("a.up.weight", "a.down.bias", "norm.b")
    }
    assert styles == {"a.up.weight": "colpar", "a.down.bias": "rowpar", "norm.b": "replicate"}


@pytest.mark.fast
@pytest.mark.parametrize(
    ("layout", "rank", "stored", "expected"),
    [
        ("colpar", 2, "[in, out]", "shard(1)"),
        ("colpar", 2, "[out, in]", "shard(0)"),
        ("colpar", 1, "[out, in]", "shard(0)"),
        ("rowpar", 2, "[in, out]", "shard(0)"),
        ("rowpar", 2, "[out, in]", "shard(1)"),
        ("rowpar", 1, "[out, in]", "replicate"),
        ("colpar", 3, "[in, out]", "shard(2)"),
        ("vocab", 2, "table", "shard(0)"),
        ("colpar", 2, "table", "shard(1)"),
        ("vocab", 2, "[out, in]", "shard(0)"),
        ("replicate", 2, "[out, in]", "replicate"),
        ("colpar", 0, "[in, out]", "replicate"),
        ("shard(-1)", 2, "[out, in]", "shard(1)"),
        ("shard(0)", 0, "[in, out]", "replicate"),
        (["replicate"], 2, "[out, in]", "replicate"),
    ],
)
def test_the_layout_of_a_parameter(layout, rank, stored, expected):
    assert _rule("p", layout).layout_of(rank, weight=stored, name="p").placements == (expected,)


@pytest.mark.fast
def test_a_style_cuts_along_the_tensor_parallel_dimension():
    for mesh, expected in [
        ({"tp": 2, "dp": 3}, ("shard(0)", "replicate")),
        ({"dp": 3, "x": 2}, ("replicate", "shard(0)")),
    ]:
        rule = Rule(pattern="p", style="vocab", shard=ShardConfig(mesh=mesh), file="here")
        assert rule.layout_of(2, weight="table", name="p").placements == expected


@pytest.mark.fast
@pytest.mark.parametrize(
    ("shard", "there", "expected"),
    [
        ({"placements": ["shard(0)"]}, [0, 1, 2], "shard(0)@[0,1,2]"),
        ({"placements": ["shard(0)"]}, [1, 3, 7], "shard(0)@[1,3,7]"),
        ({"placements": ["shard(0)"], "blocks": 3}, [0, 1], "shard(0,blocks=3)@[0,1]"),
        ({"placements": ["replicate"], "workers": [1, 0]}, [0, 1], "replicate@[1,0]"),
        ({"placements": ["shard(1)"], "workers": [1, 5]}, [0, 1], "shard(1)@[1]"),
        ({"placements": ["shard(1)"], "workers": [5, 6]}, [0, 1], "shard(1)@[0,1]"),
        ({"placements": ["replicate", "shard(1)"], "mesh": {"dp": 2, "tp": 2}}, [0, 1, 2, 3],
         "replicate,shard(1)@[[0,1],[2,3]]"),
        ({"placements": ["replicate", "shard(1)"], "mesh": {"dp": 2, "tp": 2}}, [0, 1, 2],
         "shard(1)@[0,1,2]"),
        ({"placements": ["shard(1)", "replicate", "shard(0)"], "mesh": {"a": 1, "b": 2, "c": 2}},
         [0, 1, 2, 3], "shard(1),replicate,shard(0)@[[[0,1],[2,3]]]"),
    ],
)  # fmt: skip
def test_a_layout_as_an_instruction_says_it(shard, there, expected):
    assert _text(ShardConfig(**shard), there) == expected


@pytest.mark.fast
def test_blocks_of_a_style():
    rule = Rule(pattern="p", style="colpar", shard=ShardConfig(), blocks=3, file="here")
    weight, bias = (rule.layout_of(rank, weight="[out, in]", name="p") for rank in (2, 1))
    assert (weight.placements, weight.blocks) == (("shard(0)",), 3)
    assert (bias.placements, bias.blocks) == (("shard(0)",), 3)
    rowpar = Rule(pattern="p", style="rowpar", shard=ShardConfig(), blocks=3, file="here")
    assert rowpar.layout_of(1, weight="[out, in]", name="p").blocks is None


PROGRAM = """
import gt
from gt import nn
gt.gpu_workers(2)

class Mlp(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(6, 10), nn.Linear(10, 6)
    def forward(self, x):
        return x + self.down(self.up(x).relu())

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(7, 6)
        self.layers = nn.ModuleList([Mlp(), Mlp()])
        self.norm, self.head = nn.LayerNorm(6), nn.Linear(6, 7, bias=False)
    def forward(self, x):
        x = self.embed(x)
        for layer in self.layers:
            x = layer(x)
        return self.head(self.norm(x))

gt.manual_seed(0)
model = Model()
optimizer = gt.optim.AdamW(model.parameters(), lr=0.05)
tokens = gt.arange(12).reshape(3, 4) % 7
losses = []
for _ in range(4):
    loss = nn.cross_entropy(model(tokens).reshape(-1, 7), ((tokens + 1) % 7).reshape(-1))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
print(losses)
for name, parameter in model.named_parameters():
    print(name, gt._core.layout(parameter))
"""
FILE = """
model.layers.*.up: colpar
model.layers.*.down: rowpar
parameters:
  model.embed: vocab
  head: {style: colpar}
  norm.*: replicate
"""


def test_a_model_without_signals_gets_its_layouts_from_a_file(tmp_path):
    """Losses are equal and parameters sharded, although the model's code knows nothing of it."""
    file = tmp_path / "layouts.yaml"
    file.write_text(FILE, encoding="utf-8")
    printed = {}
    for name, config in (("none", ""), ("file", str(file))):
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM],
            env=os.environ | {"GT_CONFIG": config, "GT_BACKEND": "numpy"},
            capture_output=True,
            text=True,
            timeout=50,
        )
        assert done.returncode == 0, done.stderr
        assert done.stderr == ""
        losses, *where = done.stdout.splitlines()
        printed[name] = [float(word) for word in losses.strip("[]").split(",")], where
    assert printed["file"][0] == pytest.approx(printed["none"][0], rel=1e-5)
    where = dict(line.split(" ") for line in printed["file"][1])
    assert where["embed.weight"] == "shard(0)@[0,1]"
    assert where["layers.1.up.weight"] == "shard(0)@[0,1]"  # stored [out, in]
    assert where["layers.1.up.bias"] == "shard(0)@[0,1]"
    assert where["layers.1.down.weight"] == "shard(1)@[0,1]"
    assert where["layers.1.down.bias"] == "replicate@[0,1]"
    assert where["norm.weight"] == "replicate@[0,1]"
    assert all("@[0,1]" not in line for line in printed["none"][1])


def test_parallelize_now():
    model = nn.Linear(4, 3)
    before, grads = model.weight.tolist(), model.weight.requires_grad
    assert gt.parallelize(model, {"weight": "colpar", "bias": "shard(0)"}) is model
    assert (model.weight.tolist(), model.weight.requires_grad) == (before, grads)
    model(gt.ones(2, 4)).sum().backward()
    assert model.weight.grad.tolist() == [[2.0] * 4] * 3


def test_what_parallelize_says():
    model = nn.Linear(4, 3)
    with pytest.raises(gt.ConfigError, match=r"bias has 1 dimensions and no dimension 1"):
        gt.parallelize(model, {"*": "shard(1)"})
    with pytest.warns(UserWarning, match=r"no parameter matches 'wieght'"):
        gt.parallelize(model, {"wieght": "colpar"})
    with pytest.raises(gt.ConfigError, match="'colpr' is no placement"):
        gt.parallelize(model, {"weight": "colpr"})


def test_modules_store_their_weights_otherwise(tmp_path):
    """A Linear's weight is [out, in]: column-parallel cuts dimension 0 of what is stored."""
    trace = tmp_path / "trace.txt"
    code = """
import gt
from gt import nn
for axis in (1, 0):
    gt.register_config(f"axis{axis}", gt.SignalConfig(shard=gt.ShardConfig(axis=axis, blocks=2)))
    with gt.signal.context(f"axis{axis}"):
        nn.Linear(2, 4)
        nn.LayerNorm(4)
        gt.ones(2, 4)
gt.synchronize()
"""
    env = os.environ | {"GT_INSTRUCTION_LOG": str(trace), "GT_BACKEND": "numpy"}
    subprocess.run([sys.executable, "-c", code], env=env, check=True, timeout=50)
    lines = trace.read_text(encoding="utf-8").splitlines()
    assert [line.split('text="')[1].split('"')[0] for line in lines if "configure" in line] == [
        "axis=0 blocks=2",  # the weight, column-parallel
        "axis=0 blocks=2",  # its bias
        "replicated=true",  # a norm's weight
        "axis=1 blocks=2",  # what the program made itself
        "axis=1 blocks=2",  # the weight, row-parallel
        "replicated=true",  # its bias
        "replicated=true",
        "axis=0 blocks=2",
    ]
    assert all(" @axis" in line for line in lines if " = " in line)


def test_a_cut_model_stays_cut_when_a_checkpoint_is_loaded():
    """A checkpoint of one worker continues identically, and weights and moments stay sharded."""

    def made():
        gt.manual_seed(0)
        model = nn.Linear(6, 4)
        return model, gt.optim.AdamW(model.parameters(), lr=0.1)

    def step(model, optimizer):
        optimizer.zero_grad()
        loss = (model(x) ** 2).mean()
        loss.backward()
        optimizer.step()
        return loss.item()

    values = np.random.default_rng(0).standard_normal((5, 6)).astype(np.float32)
    x = gt.tensor(values)
    model, optimizer = made()
    step(model, optimizer)
    saved = [_arrays(one.state_dict()) for one in (model, optimizer)]
    expected = [step(model, optimizer) for _ in range(3)]
    with workers(2):
        x = gt.tensor(values)
        model, optimizer = made()
        gt.parallelize(model, {"**": "shard(0)"})
        step(model, optimizer)
        layout = model.weight.layout
        assert str(layout) == "shard(0)@[0,1]"
        for one, state in zip((model, optimizer), saved, strict=True):
            one.load_state_dict(_tensors(state))
        moments = optimizer.state[model.weight]
        assert model.weight.layout == moments["exp_avg"].layout == layout
        assert moments["exp_avg_sq"].layout == layout
        assert [step(model, optimizer) for _ in range(3)] == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("layout", ["replicate@[1]", "replicate@[0,1]"])
def test_a_model_stays_where_it_is_when_a_checkpoint_is_loaded(layout):
    with workers(2):
        model = nn.Linear(6, 4)
        state = _tensors(_arrays(model.state_dict()))
        for name, parameter in model.named_parameters():
            there = gt.Layout.parse(layout, tuple(parameter.shape))
            parameter.data = gt.distribute(parameter.data + 1, there)
            assert str(parameter.layout) == layout, name
        model.load_state_dict(state)
        for name, parameter in model.named_parameters():
            assert str(parameter.layout) == layout
            np.testing.assert_array_equal(parameter.detach().numpy(), state[name].numpy())


def _arrays(state):
    """A state whose tensors are arrays, and so of no session."""
    if isinstance(state, dict):
        return {name: _arrays(value) for name, value in state.items()}
    return state.detach().numpy() if isinstance(state, gt.Tensor) else state


def _tensors(state):
    if isinstance(state, dict):
        return {name: _tensors(value) for name, value in state.items()}
    return gt.tensor(state) if isinstance(state, np.ndarray) else state
