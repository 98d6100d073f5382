"""gt.guava without a run: settings, how workers are divided, batches, tensor rules, stages."""

import dataclasses
import inspect

import numpy as np
import pytest
import torch

import gt
from gt.guava import DistributedConfig, NetworkWorker, batches, links, stages, tensor_rules
from gt.guava.split import split
from gt.worker import __main__ as command_line
from gt.worker.links import Links

DEFAULTS = {
    "vocab_size": 50257, "d_model": 768, "n_heads": 12, "n_layers": 12, "d_ff": 3072,
    "max_seq_len": 1024, "dropout": 0.1, "batch_size": 16, "learning_rate": 3e-4,
    "weight_decay": 0.01, "max_grad_norm": 1.0, "use_amp": False, "num_workers": 4,
    "master_ip": "localhost", "master_port": 29500, "data_parallel": True,
    "model_parallel": False, "pipeline_parallel": False, "tensor_parallel": False,
    "checkpoint_dir": "./checkpoints", "save_interval": 1000, "micro_batches": 4,
    "activation_timeout": 60.0, "ack_timeout": 30.0, "max_resends": 3,
    "resend_probe_interval": 5.0, "tensor_parallel_size": 2, "allow_act_reuse": False,
    "act_cache_steps": 256, "compact_log": True, "log_step_every": 100, "log_act": False,
    "gradient_checkpointing": False,
}  # fmt: skip
# Field, a word, its value, a word that means nothing, an argument.
VARIABLES = {
    "DATA_PARALLEL": ("data_parallel", "0", False, "2", True),
    "MODEL_PARALLEL": ("model_parallel", "1", True, "ja", False),
    "PIPELINE_PARALLEL": ("pipeline_parallel", "on", True, "-1", False),
    "TENSOR_PARALLEL": ("tensor_parallel", "true", True, "t", False),
    "MICRO_BATCHES": ("micro_batches", "8", 8, "0", 2),
    "TENSOR_PARALLEL_SIZE": ("tensor_parallel_size", "4", 4, "two", 3),
    "ACT_TIMEOUT_SEC": ("activation_timeout", "0", 0.0, "-1", 7.5),
    "ACK_TIMEOUT_SEC": ("ack_timeout", "1.5", 1.5, "nan", 3),
    "RESENDS_MAX": ("max_resends", "0", 0, "1.5", 9),
    "RESEND_PROBE_SEC": ("resend_probe_interval", "10", 10.0, "inf", 1),
    "ALLOW_ACT_REUSE": ("allow_act_reuse", "1", True, "5", False),
    "ACT_CACHE_STEPS": ("act_cache_steps", "16", 16, "", 32),
    "COMPACT_LOG": ("compact_log", "no", False, "maybe", True),
    "LOG_STEP_EVERY": ("log_step_every", "1", 1, "0", 5),
    "LOG_ACT": ("log_act", "yes", True, "2", False),
}


@pytest.fixture(autouse=True)
def no_variables(monkeypatch):
    for name in (*VARIABLES, "MASTER_IP", "MASTER_PORT"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.fast
def test_all_fields_are_optional_keywords_with_the_defaults():
    assert dataclasses.asdict(DistributedConfig()) == DEFAULTS
    kinds = {one.kind for one in inspect.signature(DistributedConfig).parameters.values()}
    assert kinds == {inspect.Parameter.KEYWORD_ONLY}
    assert dataclasses.asdict(DistributedConfig.from_env()) == DEFAULTS


@pytest.mark.fast
@pytest.mark.parametrize("name", VARIABLES)
def test_an_argument_beats_the_variable_and_that_the_default(name, monkeypatch):
    field, word, value, wrong, argument = VARIABLES[name]
    monkeypatch.setenv(name, word)
    assert getattr(DistributedConfig(), field) == value
    assert getattr(DistributedConfig.from_env(), field) == value
    assert getattr(DistributedConfig(**{field: argument}), field) == argument
    monkeypatch.setenv(name, wrong)
    if wrong:
        with pytest.raises(gt.errors.ConfigError, match=f"{name}={wrong}: expected "):
            DistributedConfig()
    else:
        assert getattr(DistributedConfig(), field) == DEFAULTS[field]
    assert getattr(DistributedConfig(**{field: argument}), field) == argument


@pytest.mark.fast
def test_the_orchestrators_place_comes_from_the_environment_by_from_env_alone(monkeypatch):
    monkeypatch.setenv("MASTER_IP", "10.0.0.7")
    monkeypatch.setenv("MASTER_PORT", "12345")
    assert DistributedConfig().master_ip == "localhost"
    config = DistributedConfig.from_env()
    assert (config.master_ip, config.master_port) == ("10.0.0.7", 12345)
    worker = NetworkWorker(gpu_id=1, config=config, master_port=7)
    assert (worker.master_ip, worker.master_port) == ("10.0.0.7", 7)
    monkeypatch.setenv("MASTER_PORT", "70000")
    with pytest.raises(gt.errors.ConfigError, match="MASTER_PORT=70000: expected a port"):
        DistributedConfig.from_env()


WRONG = {
    "vocab_size": (0, -1, 1.5, "many", True, None), "dropout": (1.5, -0.1, "a", True, None),
    "learning_rate": (-1e-3, float("nan"), float("inf"), None), "num_workers": (-1, 2.0, "4"),
    "max_grad_norm": (-1.0, "none"), "use_amp": (1, "yes", None), "master_ip": ("",),
    "master_port": (-1, 70000, "http"), "save_interval": (-1, 0.5), "checkpoint_dir": ("",),
    "micro_batches": (0,), "activation_timeout": (-1, None, 1e9), "ack_timeout": (-0.1, "30"),
    "resend_probe_interval": (-1, float("inf")), "max_resends": (-1, 2.5, 10**6),
    "allow_act_reuse": (1, "on"), "act_cache_steps": (0, -1, 1.5), "log_step_every": (0,),
}  # fmt: skip


@pytest.mark.fast
@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_value_is_refused_where_it_is_set(name):
    config = DistributedConfig()
    for value in WRONG[name]:
        with pytest.raises(gt.errors.ConfigError, match=rf"^{name}=.*: expected "):
            DistributedConfig(**{name: value})
        with pytest.raises(gt.errors.ConfigError, match=rf"^{name}=.*: expected "):
            setattr(config, name, value)
    assert dataclasses.asdict(config) == DEFAULTS
    with pytest.raises(AttributeError, match="no field 'batchsize'"):
        config.batchsize = 3


@pytest.mark.fast
def test_the_worker_count_adapts_to_the_gpus_that_there_are(capsys):
    config = DistributedConfig(num_workers=8, tensor_parallel=True, tensor_parallel_size=4)
    config.adapt_to_gpus(6)
    assert (config.num_workers, config.tensor_parallel_size) == (6, 2)
    assert capsys.readouterr().out == (
        "guava: num_workers 8 -> 6\nguava: tensor_parallel_size 4 -> 2\n"
    )
    config.adapt_to_gpus(6)
    assert capsys.readouterr().out == ""
    config.adapt_to_gpus(0)
    assert (config.num_workers, config.tensor_parallel_size) == (1, 1)
    for make in (lambda: DistributedConfig(num_workers=0), lambda: set_workers(config)):
        assert make().num_workers == 1
    assert "no GPU: one worker on the CPU" in capsys.readouterr().out


def set_workers(config):
    config.num_workers = 0
    return config


@pytest.mark.fast
def test_settings_of_links_are_options_of_the_processes_at_their_ends():
    config = DistributedConfig(resend_probe_interval=0.5, max_resends=0)
    config.ack_timeout, config.activation_timeout = 0.0, 120  # also after construction
    options = "--ask-seconds 0.5 --asks 0 --resume-seconds 0.0"
    assert links.dispatcher_options(config) == options.split()
    assert links.worker_options(config) == f"{options} --peer-seconds 120.0".split()
    start = command_line._start(command_line._arguments(["-p", "7", *links.worker_options(config)]))
    assert start.links == Links(ask_seconds=0.5, asks=0, resume_seconds=0.0, peer_seconds=120.0)


# Settings, then stages, data, tensor, micro-batches.
SPLITS = [
    ({"num_workers": 1}, (1, 1, 1, 1)),
    ({}, (1, 4, 1, 1)),
    ({"model_parallel": True}, (4, 1, 1, 1)),
    ({"model_parallel": True, "pipeline_parallel": True}, (4, 1, 1, 4)),
    ({"pipeline_parallel": True, "micro_batches": 7}, (4, 1, 1, 7)),
    ({"tensor_parallel": True}, (1, 2, 2, 1)),
    ({"tensor_parallel": True, "tensor_parallel_size": 4}, (1, 1, 4, 1)),
    ({"tensor_parallel": True, "model_parallel": True, "num_workers": 8}, (4, 1, 2, 1)),
    ({"tensor_parallel": True, "data_parallel": False, "num_workers": 2}, (1, 1, 2, 1)),
    ({"data_parallel": False, "model_parallel": True}, (4, 1, 1, 1)),
]


@pytest.mark.fast
@pytest.mark.parametrize(("settings", "expected"), SPLITS)
def test_workers_are_divided_by_the_rule(settings, expected):
    made = split(DistributedConfig(**settings))
    assert (made.stages, made.data, made.tensor, made.micro_batches) == expected
    everybody = [one for stage in range(made.stages) for one in made.workers_of(stage)]
    assert everybody == list(range(settings.get("num_workers", 4)))
    assert made.batches_a_step() == made.data * made.micro_batches


@pytest.mark.fast
@pytest.mark.parametrize(
    ("settings", "numbers"),
    [
        ({"tensor_parallel": True, "num_workers": 5}, "num_workers=5.*groups of 2, 1 would be"),
        ({"tensor_parallel": True, "tensor_parallel_size": 8}, "num_workers=4.*groups of 8, 4"),
        ({"data_parallel": False}, "num_workers=4: tensor 1 x stages 1 takes 1, 3 would be"),
        ({"data_parallel": False, "tensor_parallel": True}, "takes 2, 2 would be left over"),
    ],
)
def test_workers_that_are_left_over_are_an_error_with_the_numbers(settings, numbers):
    with pytest.raises(gt.errors.ConfigError, match=numbers):
        split(DistributedConfig(**settings))


# ---- batches ----


def pairs(sizes):
    return [(np.arange(size * 3.0).reshape(size, 3), np.arange(size)) for size in sizes]


@pytest.mark.fast
@pytest.mark.parametrize("count", [1, 2, 3, 4])
def test_a_step_takes_its_batches_in_order_and_the_last_what_is_left(count):
    loader = pairs([2, 2, 2, 2, 1])
    steps = list(batches.steps_of(loader, count))
    assert [len(step) for step in steps] == [count] * (5 // count) + [5 % count] * (5 % count > 0)
    assert [batch for step in steps for batch in step] == loader


@pytest.mark.fast
@pytest.mark.parametrize("parts", [1, 2, 3])
@pytest.mark.parametrize("count", [1, 2, 5])
@pytest.mark.parametrize("sizes", [[4], [2, 2, 2], [3, 1, 2, 2]])
def test_micro_batches_have_all_samples_once_and_shares_of_one(sizes, count, parts):
    step = pairs(sizes)
    made = batches.micro_batches(step, count, parts)
    x, y = (np.concatenate([batch[place] for batch in step]) for place in (0, 1))
    np.testing.assert_array_equal(np.concatenate([one.inputs for one in made]), x)
    np.testing.assert_array_equal(np.concatenate([one.target for one in made]), y)
    assert sum(one.share for one in made) == pytest.approx(1)
    assert [one.share for one in made] == [len(one.target) / len(y) for one in made]


TEXT = np.arange(12).reshape(2, 6)
FORMS = {
    "tuple": ((TEXT, TEXT[:, 0]), TEXT, TEXT[:, 0]),
    "list": ([TEXT, TEXT[:, 0]], TEXT, TEXT[:, 0]),
    "tokens": (TEXT, TEXT[:, :-1], TEXT[:, 1:]),
    "tokens of a TensorDataset": ([TEXT], TEXT[:, :-1], TEXT[:, 1:]),
    "PyTorch's": ((torch.from_numpy(TEXT), torch.ones(2)), TEXT, np.ones(2)),
    "dictionary": ({"ids": TEXT}, {"ids": TEXT}, None),
    "dictionary of arguments": (({"ids": TEXT}, TEXT), {"ids": TEXT}, TEXT),
}


@pytest.mark.fast
@pytest.mark.parametrize("name", FORMS)
def test_a_batch_may_have_these_forms(name):
    batch, inputs, target = FORMS[name]
    (made,) = batches.micro_batches([batch], 1, 1)
    np.testing.assert_equal(made.inputs, inputs)
    np.testing.assert_equal(made.target, target)
    assert batches.rows(batch) == 2


@pytest.mark.fast
@pytest.mark.parametrize(
    ("batch", "text"),
    [
        ((TEXT, TEXT, TEXT), "a batch has 3 parts"),
        (TEXT / 2, "a batch of one tensor is tokens"),
        (np.arange(3), "a batch of one tensor is tokens"),
        ((["a", "b"], TEXT), "a batch holds str"),
        ((TEXT, 3), "a batch holds int"),
    ],
)
def test_a_batch_that_no_model_takes_is_named(batch, text):
    with pytest.raises(gt.errors.InvalidType, match=text):
        batches.micro_batches([batch], 1, 1)


# ---- tensor rules ----


def cut_dims(model):
    return {path: (one.dim, one.blocks) for path, one in tensor_rules.cuts(model).items()}


@pytest.mark.fast
def test_attention_and_mlp_of_transformer_layers_are_cut(capsys):
    nn = torch.nn
    layers = nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2), 2, enable_nested_tensor=False)
    model = nn.ModuleDict({"embed": nn.Embedding(10, 8), "t": layers, "head": nn.Linear(8, 10)})
    found = cut_dims(model)
    assert found["embed.weight"] == (0, None)
    assert (found["head.weight"], found["head.bias"]) == ((0, None), (0, None))
    for layer in ("t.layers.0", "t.layers.1"):
        assert found[f"{layer}.self_attn.in_proj_weight"] == (0, 3)
        assert found[f"{layer}.self_attn.in_proj_bias"] == (0, 3)
        assert found[f"{layer}.self_attn.out_proj.weight"] == (1, None)
        assert found[f"{layer}.linear1.weight"] == found[f"{layer}.linear1.bias"] == (0, None)
        assert found[f"{layer}.linear2.weight"] == (1, None)
        assert f"{layer}.linear2.bias" not in found
    assert capsys.readouterr().out == ""


NAMED = {
    "columns": "attn.q_proj attn.k_proj attn.v_proj attention.self.query attention.self.query_proj "
    "mlp.up_proj mlp.gate_proj mlp.c_fc fc1 mlp.fc_in ffn mlp.dense_h_to_4h intermediate.dense "
    "SelfAttention.q DenseReluDense.wi ffn.lin1 attention.query_key_value attention.q_lin "
    "feed_forward.w1 feed_forward.w3",
    "fused": "attn.qkv attn.c_attn mixer.Wqkv attn.in_proj",
    "rows": "attn.o_proj attn.out_proj mlp.c_proj mlp.down_proj fc2 mlp.fc_out ffn_output "
    "mlp.dense_4h_to_h output.dense attention.output.dense attention.dense self_attn.dense "
    "SelfAttention.o EncDecAttention.o DenseReluDense.wo ffn.lin2 feed_forward.w2",
}


@pytest.mark.fast
@pytest.mark.parametrize(("role", "path"), [(r, p) for r, ps in NAMED.items() for p in ps.split()])
def test_layers_of_the_usual_names_are_cut(role, path):
    model = torch.nn.Linear(6, 12)
    for name in reversed(path.split(".")):
        model = torch.nn.ModuleDict({name: model}) if name != "dense" else Dense(model)
    found = cut_dims(model)
    expected = {"columns": (0, None), "fused": (0, 3), "rows": (1, None)}[role]
    assert found[f"{path}.weight"] == expected
    assert found.get(f"{path}.bias") == (None if role == "rows" else expected)


class Dense(torch.nn.Module):
    def __init__(self, layer):
        super().__init__()
        self.dense = layer


@pytest.mark.fast
def test_what_no_rule_knows_stays_whole_and_is_said(capsys):
    model = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.Bilinear(2, 2, 2))
    assert cut_dims(model) == {}
    assert "whole on each worker" in (said := capsys.readouterr().out)
    assert "0.weight, 1.weight" in said


# ---- stages ----


@pytest.mark.fast
@pytest.mark.parametrize("count", [1, 2, 3, 4])
@pytest.mark.parametrize("costs", [[1, 1, 1, 1], [9, 1, 1, 1], [1, 1, 1, 9], [2, 7, 3, 1, 5, 4]])
def test_stages_are_cut_by_cost_not_by_count(costs, count):
    model = torch.nn.Sequential(*(torch.nn.Identity() for _ in costs))
    measured = {"": float(sum(costs)), **{str(place): cost for place, cost in enumerate(costs)}}
    made = stages.stages_of(model, measured, count)
    paths = [path for stage in made for path in stage.paths]
    assert paths == ([""] if count == 1 else [str(place) for place in range(len(costs))])
    assert sum(stage.share for stage in made) == pytest.approx(1)
    assert max(one.share for one in made) * sum(costs) == pytest.approx(least_most(costs, count))


def least_most(costs, count):
    """The cost of the dearest of `count` stages, by trying all cuts."""
    if count == 1:
        return sum(costs)
    return min(
        max(sum(costs[:cut]), least_most(costs[cut:], count - 1))
        for cut in range(1, len(costs) - count + 2)
    )


@pytest.mark.fast
def test_only_modules_that_cost_too_much_are_taken_apart():
    nn = torch.nn
    blocks = [nn.Sequential(nn.Identity(), nn.Identity()) for _ in range(4)]
    model = nn.ModuleDict({"in": nn.Identity(), "list": nn.ModuleList(blocks)})
    costs = {"": 9.0, "in": 1.0}
    for number in range(4):
        costs |= {f"list.{number}": 2.0, f"list.{number}.0": 1.0, f"list.{number}.1": 1.0}
    made = stages.stages_of(model, costs, 2)
    assert [one.paths for one in made] == [
        ("in", "list.0", "list.1"),
        ("list.2", "list.3"),
    ]
    with pytest.raises(gt.errors.ConfigError, match="20 stages, and the model has"):
        stages.stages_of(model, costs, 20)
