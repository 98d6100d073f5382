"""Configurations of users: YAML, register_config, and their form at the dispatcher."""

import io
import json
import os
import random
import re
import subprocess
import sys
from pathlib import Path

import pytest
from cluster import Cluster

import gt
from gt.config import document, scopes
from gt.config.layout import placement
from gt.config.rules import STYLES
from gt.pipeline import SCHEDULES
from gt.tools import log

ROOT = Path(__file__).resolve().parent.parent.parent


@pytest.fixture(autouse=True)
def without_a_session():
    """Nobody counts workers here: other tests' session ends, the next operation opens another."""
    gt.disconnect()


@pytest.fixture
def written(tmp_path):
    """Writes a file of layouts, and forgets it after the test."""
    yield lambda text: _write(tmp_path, text)
    (tmp_path / "none.yaml").write_text("", encoding="utf-8")
    gt.load_config(tmp_path / "none.yaml")


def _write(folder, text):
    file = folder / "layouts.yaml"
    file.write_text(text, encoding="utf-8")
    return str(file)


def meaning(*names):
    """The rules in nested scopes, as the dispatcher reads them."""
    signal = 0
    for name in names:
        signal = scopes.signal_in(signal, name)
    return scopes.state.by_signal[signal].meaning.text(None)


def run(code, log_file=None, check=True, **settings):
    """A program in a process of its own."""
    if log_file is not None:
        settings["GT_INSTRUCTION_LOG"] = str(log_file)
    return subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ | {"GT_BACKEND": "numpy"} | settings,
        capture_output=True,
        text=True,
        timeout=50,
        check=check,
    )


CONFIGURE = re.compile(r'configure signal=(\d+) text="(.*?)"')


def scopes_sent(file):
    """(name, text) of each scope that a log says was configured, in order."""
    text = Path(file).read_text(encoding="utf-8")
    return [match.groups() for match in CONFIGURE.finditer(text)]


# ---- T2: the three layouts of the tuning guide ----

STAGE = """
pp_stage{stage}:
  shard:
    axis: 0
    workers: {workers}
pp_stage{stage}_colpar:
  shard:
    axis: 1
pp_stage{stage}_rowpar:
  shard:
    axis: 0
"""
LAYOUTS = {"tp2_pp4": (2, 4), "tp4_pp2": (4, 2), "tp1_pp8": (1, 8)}


def stages(tensor_parallel, count):
    """Stage by stage the workers, and the file that says so."""
    workers = [
        list(range(stage * tensor_parallel, (stage + 1) * tensor_parallel))
        for stage in range(count)
    ]
    return workers, "".join(
        STAGE.format(stage=stage, workers=listed) for stage, listed in enumerate(workers)
    )


@pytest.mark.fast
@pytest.mark.parametrize("layout", LAYOUTS)
def test_t2_layouts_of_the_tuning_guide(layout, written):
    workers, text = stages(*LAYOUTS[layout])
    gt.load_config(written(text))
    assert len(gt.get_config()) == 3 * len(workers)
    for stage, listed in enumerate(workers):
        outer, indexes = f"pp_stage{stage}", ",".join(map(str, listed))
        assert meaning(outer) == f"workers=[{indexes}] axis=0"
        assert meaning(outer, f"{outer}_colpar") == f"workers=[{indexes}] axis=1"
        assert meaning(outer, f"{outer}_rowpar") == f"workers=[{indexes}] axis=0"


@pytest.mark.fast
def test_t2b_the_short_edit_alone_changes_the_stage(written):
    short = """
pp_stage0:
  workers: [0, 1, 2, 3]
pp_stage0_colpar: {shard: {axis: 1}}
"""
    gt.load_config(written(short))
    assert meaning("pp_stage0") == "workers=[0,1,2,3]"
    assert meaning("pp_stage0", "pp_stage0_colpar") == "workers=[0,1,2,3] axis=1"


# ---- G8a, G8b: the grammar ----


@pytest.mark.fast
@pytest.mark.parametrize(
    ("text", "path", "expected"),
    [
        ("", ["a"], ""),
        ("a:", ["a"], ""),
        ("a: {shard: {axis: -1, workers: [3, 1]}}", ["a"], "workers=[3,1] axis=-1"),
        ("a: {shard: {replicated: true}}", ["a"], "replicated=true"),
        ("a: {shard: {replicated: no}}", ["a"], ""),
        ("a: {workers: [0, 1]}", ["a"], "workers=[0,1]"),
        ("a: {shard: {workers: [0, 1]}, workers: [0, 1]}", ["a"], "workers=[0,1]"),
        ("a: {shard: {axis: 0}, compile: true}", ["a"], "axis=0 compile=true"),
        # names are strings
        ("on: {workers: [1]}", ["on"], "workers=[1]"),
        ("no: {workers: [1]}", ["no"], "workers=[1]"),
        ("1: {workers: [1]}", ["1"], "workers=[1]"),
        # a signal without an entry is the scope around it
        ("a: {shard: {axis: 0, workers: [0, 1]}}", ["a", "b"], "workers=[0,1] axis=0"),
        ("a: {workers: [0, 1]}", ["b", "a", "c", "d"], "workers=[0,1]"),
        ("a: {workers: [0, 1]}", ["b"], ""),
        # an entry without workers has those around; bare workers leave the layout to the planner
        ("a: {workers: [0]}\nb: {shard: {axis: 1}}", ["a", "b"], "workers=[0] axis=1"),
        ("a: {shard: {axis: 1}}\nb: {workers: [2]}", ["a", "b"], "workers=[2]"),
        ("a: {shard: {axis: 1}}\nb: {compile: true}", ["a", "b"], "axis=1 compile=true"),
        ("a: {compile: true}\nb: {compile: false}", ["a", "b"], ""),
        # the same name in two scopes
        ("a: {workers: [0]}\nb: {workers: [1]}\nc: {shard: {axis: 1}}", ["a", "c"],
         "workers=[0] axis=1"),
        ("a: {workers: [0]}\nb: {workers: [1]}\nc: {shard: {axis: 1}}", ["b", "c"],
         "workers=[1] axis=1"),
        # meshes
        ("a: {workers: [0, 1, 2, 3], mesh: {dp: 2, tp: 2}, placements: [replicate, shard(1)]}",
         ["a"], "workers=[0,1,2,3] mesh=dp:2,tp:2 placements=replicate,shard(1)"),
        ("a: {mesh: {dp: 2, tp: 2}, placements: {tp: shard( -1 )}}", ["a"],
         "mesh=dp:2,tp:2 placements=replicate,shard(-1)"),
        ("a: {mesh: {dp: 2, tp: 2}}\nb: {placements: {dp: shard(0)}}", ["a", "b"],
         "mesh=dp:2,tp:2 placements=shard(0),replicate"),
        ("a: {mesh: {dp: 2, tp: 2}, workers: [0, 1, 2, 3]}\nb: {workers: [0]}", ["a", "b"],
         "workers=[0]"),
        ("a: {placements: [shard(1)], blocks: 3}", ["a"], "placements=shard(1) blocks=3"),
        ("a: {shard: {axis: 1, blocks: 3}}", ["a"], "axis=1 blocks=3"),
        # anchors
        ("a: &a {shard: {axis: 1}}\nb: {<<: *a, workers: [1]}", ["b"], "workers=[1] axis=1"),
    ],
)  # fmt: skip
def test_g8a_what_a_file_means(text, path, expected, written):
    gt.load_config(written(text))
    assert meaning(*path) == expected


MISTAKES = [
    ("a:\n\tworkers: [0]", 2, 1, "a tab", "spaces"),
    ("a: {shard: {axes: 1}}", 1, 13, "unknown key 'axes'", "did you mean axis?"),
    ("a:\n  shrad:\n    axis: 1", 2, 3, "unknown key 'shrad'", "did you mean shard?"),
    ("a: {workers: [0, 1, 0]}", 1, 14, "worker 0 is named twice", "once"),
    ("a: {workers: [-1]}", 1, 14, "no worker -1", "from 0"),
    ("a: {workers: [0.5]}", 1, 14, "'0.5', not a whole number", "from 0"),
    ("a: {workers: []}", 1, 14, "workers is []", "[0, 1]"),
    ("a: {workers: 2}", 1, 14, "workers is 2", "[0, 1]"),
    ("a: {shard: {axis: one}}", 1, 19, "axis is 'one', not a whole number", "0, 1 or -1"),
    ("a: {shard: {axis: 1.0}}", 1, 19, "axis is '1.0'", "0, 1 or -1"),
    ("a: {shard: {axis: true}}", 1, 19, "axis is True", "0, 1 or -1"),
    ("a: {shard: {axis: }}", 1, 18, "without a value", "leave the key out"),
    ("a: {shard: {axis: 8}}", 1, 19, "axis 8 is out of range", "-8 to 7"),
    ("a: {shard: {axis: -9}}", 1, 19, "axis -9 is out of range", "-8 to 7"),
    ("a: {shard: {replicated: maybe}}", 1, 25, "replicated is 'maybe'", "true or false"),
    ("a: {compile: 1}", 1, 14, "compile is 1", "true or false"),
    ("a: {backward: [b]}", 1, 15, "backward is ['b']", "string"),
    ("a: {shard: {axis: 0, replicated: true}}", 1, 22, "replicated contradicts", "one out"),
    ("a: {shard: {axis: 0}, placements: [shard(1)]}", 1, 23, "contradicts axis", "one out"),
    ("a: {shard: {workers: [0]}, workers: [1]}", 1, 28, "workers are [1]", "write them once"),
    ("a: {blocks: 3}", 1, 5, "blocks without", "axis"),
    ("a: {shard: {axis: 0, blocks: 1}}", 1, 30, "blocks is 1", "2 to"),
    ("a: {workers: [0, 1, 2], mesh: {dp: 2, tp: 2}}", 1, 25, "4 places and there are 3",
     "product"),
    ("a: {mesh: {dp: 2, 3d: 2}}", 1, 11, "'3d' is no name", "tp"),
    ("a: {mesh: {a: 1, b: 1, c: 1, d: 1}}", 1, 11, "mesh is", "1 to 3"),
    ("a: {mesh: {dp: 0}}", 1, 11, "the size of dp is 0", "from 1"),
    ("a: {mesh: {dp: 2}, placements: [shard(0), replicate]}", 1, 20, "2 placements", "each"),
    ("a: {mesh: {dp: 2}, placements: {tp: shard(0)}}", 1, 20, "no dimension 'tp'", "dp"),
    ("a: {placements: [sharded(0)]}", 1, 17, "'sharded(0)' is no placement", "shard(0)"),
    ("a: {workers: [0]}\na: {workers: [1]}", 2, 1, "'a' is given twice", "join"),
    ("a: [1, 2", 1, 9, "expected ',' or ']'", "mend"),
    ("- a\n- b", 1, 1, "a list is given where", "key: value"),
    ("a: {shard: 1}", 1, 12, "'1' is given where", "key: value"),
    ("a: colprr", 1, 4, "'colprr' is no layout", "did you mean colpar?"),
    ("parameters: {a..b: colpar}", 1, 14, "'a..b' is no path", "layers"),
    ("parameters: {a: {style: colpar, placements: [shard(0)]}}", 1, 17, "contradicts", "one"),
    ("parameters: {a: {blocks: 3}}", 1, 17, "blocks without", "axis"),
    ("parameters: {a: {mesh: {tp: 2}}}", 1, 17, "has no layout", "colpar"),
    ("a: &a {<<: {<<: *a}}", 1, 4, "too many `<<`", "write the keys out"),
    (f"a: {{workers: {list(range(600))}}}", 1, 14, "600", "512"),
    ("a: {mesh: {dp: 2, tp: 2}, placements: [shard(0), shard(0)]}", 1, 27, "shard(0) is used",
     "one dimension"),
    (f"a: {{workers: [{10**30}]}}", 1, 14, "a number of 31 digits", "smaller"),
    ("a: {compile: !!bool maybe}", 1, 14, "compile is 'maybe'", "true or false"),
    ("a: !mine {workers: [0]}", 1, 4, "the tag !mine", "take it out"),
    ("a: {workers: !!null [0]}", 1, 14, "the tag !!null", "take it out"),
    ("a:\n  workers: [0]\nb\x07: {}", 3, 2, "the character U+0007", "take it out"),
    ("a: " + "[" * 5_000 + "]" * 5_000, 1, 103, "more than 100 lists", "key: value"),
    ('a: {}\n"\\ud800": {}', 2, 1, "a key that is not a word", "key: value"),
    ("parameters:\n  a:", 2, 5, "a key without a value", "write one"),
    ("parameters: {a: {stile: colpar}}", 1, 18, "unknown key 'stile'", "did you mean style?"),
    ("layers.*.up: {style: colpa}", 1, 14, "'colpa' is no layout", "did you mean colpar?"),
    ("'*.up': {shard: {axis: 0}}", 1, 10, "unknown key 'shard'", "known are style"),
    ("a.b: {style: replicate, blocks: 2}", 1, 6, "blocks without", "colpar"),
]  # fmt: skip


@pytest.mark.fast
@pytest.mark.parametrize(("text", "line", "column", "says", "remedy"), MISTAKES)
def test_bad_input_is_told_with_its_place(text, line, column, says, remedy, written):
    file = written(text)
    before = gt.get_config()
    with pytest.raises(gt.ConfigError) as caught:
        gt.load_config(file)
    error = caught.value
    assert isinstance(error, ValueError)
    assert (error.file, error.line, error.column) == (file, line, column), str(error)
    assert str(error).startswith(f"{file}:{line}:{column}: ")
    assert says in error.text
    assert remedy in error.remedy
    assert gt.get_config() == before


@pytest.mark.fast
@pytest.mark.parametrize(
    ("content", "line", "column", "says"),
    [
        (b"a: {workers: [0]}\nst\xc3\xbc_\xe4: {}", 2, 5, "the byte 0xe4 is not UTF-8"),
        ("a: {workers: [0]}".encode("utf-16"), 1, 1, "the byte 0xff is not UTF-8"),
        (b"a: {}\n" + b"#" * document.FILE_BYTES_MAX, 2, 2**20 - 4, "more than 1048576 bytes"),
    ],
)
def test_what_is_no_text_of_a_layout(content, line, column, says, tmp_path):
    file = tmp_path / "layouts.yaml"
    file.write_bytes(content)
    with pytest.raises(gt.ConfigError, match=re.escape(f"{file}:{line}:{column}: {says}; ")):
        gt.load_config(file)


@pytest.mark.fast
def test_whatever_a_file_has_its_mistakes_have_places():
    draw = random.Random(0)
    words = "{ } [ ] : , - ? & * ! ' | > % @ ~ # << --- !!int \t \n \0 axis shard 0"
    text = "a: &a\n  shard: {axis: 1, workers: [0]}\nb: {<<: *a}\nc.*: {style: colpar}\n"
    refused = 0
    for _ in range(1_000):
        content = bytearray(text.encode())
        for _ in range(draw.randint(1, 5)):
            place = draw.randint(0, len(content))
            end = place + draw.choice((0, 0, 1, 3))
            content[place:end] = draw.choice([*words.encode().split(b" "), b"\xff"])
        config = document.read_from(io.BytesIO(content), "file")
        refused += bool(config.mistakes)
        for mistake in config.mistakes:
            assert mistake.line, mistake
            assert mistake.column, mistake
            assert mistake.remedy, mistake
    assert 500 < refused < 1_000


@pytest.mark.fast
def test_an_axis_that_a_weight_does_not_have(written):
    file = written("a:\n  workers: [0]\n  shard: {axis: 2}\nb: {}\nc: {workers: [0]}\n")
    gt.load_config(file)
    for inner in ("a", "b"):
        says = re.escape(f"{file}:3:11: axis 2 is out of range for a weight [in, out]; write 1")
        with (
            gt.signal.context("a"),
            gt.signal.context(inner),
            pytest.raises(gt.ConfigError, match=says),
        ):
            gt.nn.Linear(2, 2)
    with gt.signal.context("a"):
        assert gt.zeros(2, 2, 2).shape == (2, 2, 2)
        with gt.signal.context("c"):
            gt.nn.Linear(2, 2)


@pytest.mark.fast
def test_a_scope_that_does_not_fit_the_one_around(written):
    file = written("a: {workers: [0, 1, 2]}\nb:\n  mesh: {dp: 2, tp: 2}\n")
    gt.load_config(file)
    places = re.escape(f"{file}:3:3: the mesh dp 2 x tp 2 has 4 places and there are 3 workers")
    with gt.signal.context("a"), pytest.raises(gt.ConfigError, match=places):
        gt.signal.enter("b")
    with gt.signal.context("b"):
        assert meaning("b") == "mesh=dp:2,tp:2"


@pytest.mark.fast
def test_the_schema_knows_every_key():
    schema = json.loads((ROOT / "docs/layouts.schema.json").read_text(encoding="utf-8"))
    kinds = schema["$defs"]
    rule = kinds["rule"]["anyOf"][-1]
    for part, keys in [
        (kinds["signal"], document.ENTRY_KEYS),
        (kinds["shard"], document.SHARD_KEYS),
        (rule, document.RULE_KEYS),
    ]:
        assert sorted(part["properties"]) == sorted(keys)
        assert part["additionalProperties"] is False
    assert rule["properties"]["style"]["enum"] == list(STYLES)
    assert schema["properties"].keys() == {document.PARAMETERS, document.SCHEDULE}
    names, _ = schema["properties"][document.SCHEDULE]["anyOf"]
    assert sorted(names["enum"]) == sorted(SCHEDULES)


# ---- from Python ----


@pytest.mark.fast
def test_g8e_from_python():
    gt.register_config(
        "layer1",
        gt.SignalConfig(
            shard=gt.ShardConfig(axis=0, workers=[0, 1], replicated=False),
            backward="layer1_bwd",
            compile=True,
        ),
    )
    try:
        config = gt.get_config()["layer1"]
        assert (config.shard.axis, list(config.workers)) == (0, [0, 1])
        assert (config.backward, config.compile) == ("layer1_bwd", True)
        assert meaning("layer1") == "workers=[0,1] axis=0 compile=true"
    finally:
        gt.register_config("layer1", None)
    assert meaning("layer1") == ""


@pytest.mark.fast
@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: gt.ShardConfig(axis="0"), "axis is '0'"),
        (lambda: gt.ShardConfig(axis=0, replicated=True), "replicated contradicts"),
        (lambda: gt.ShardConfig(workers=[0, 0]), "is named twice"),
        (lambda: gt.SignalConfig(shard={"axis": 0}), "ShardConfig"),
        (lambda: gt.SignalConfig(backward=""), "1 to 4096 bytes"),
        (lambda: gt.register_config("a", {"axis": 0}), "is no configuration"),
        (lambda: gt.register_config(3, gt.SignalConfig()), "the name is 3"),
        (lambda: gt.load_config("not/there.yaml"), "not/there.yaml: No such file"),
        (lambda: placement("shard(9)"), "out of range"),
    ],
)
def test_bad_input_from_python(make, says):
    with pytest.raises(gt.ConfigError, match=re.escape(says)):
        make()


@pytest.mark.fast
def test_g8d_register_config_comes_before_load_config(written):
    gt.load_config(written("a: {workers: [0]}\nb: {workers: [0]}"))
    gt.register_config("a", gt.SignalConfig(workers=[1]))
    try:
        gt.load_config(written("a: {workers: [2]}"))
        assert {name: list(one.workers) for name, one in gt.get_config().items()} == {"a": [1]}
    finally:
        gt.register_config("a", None)
    assert meaning("a") == "workers=[2]"


# ---- what reaches the dispatcher ----

LAYOUT = "outer: {workers: [0], backward: back}\ninner: {shard: {axis: 1}}\n"
PROGRAM = """
import os
import gt
gt.gpu_workers(2)
os.environ["GT_CONFIG"] = "layouts.yaml"
with gt.signal.context("outer"):
    x = gt.ones(2, 2, requires_grad=True)
    with gt.signal.context("inner"):
        y = x @ x
with gt.signal.context("inner"):
    z = y.sum()
z.backward()
print(x.grad.sum().item())
"""


def test_g8d_gt_config_is_read_at_the_first_operation(tmp_path):
    _write(tmp_path, LAYOUT)
    file = tmp_path / "trace.txt"
    done = run(f"import os; os.chdir({str(tmp_path)!r})\n{PROGRAM}", file)
    assert done.stdout == "16.0\n"
    assert scopes_sent(file) == [
        ("2", "workers=[0]"),  # back, the scope of the gradients of ...
        ("1", "workers=[0] backward=2"),  # ... outer
        ("4", "workers=[0] axis=1"),  # inner inside of back
        ("3", "workers=[0] axis=1 backward=4"),  # inner inside of outer
        ("5", "axis=1"),  # inner alone; its gradients have no layout, so they say nothing
        ("7", "workers=[0]"),  # the gradients of inner inside of back: where, not how
    ]
    entries = map(log.entry, file.read_text(encoding="utf-8").splitlines())
    products = [one.signal for one in entries if one and one.operator == "matmul"]
    assert products == ["inner", "inner", "inner"]  # gradients inside of `back`


def test_a_missing_file_is_an_error_with_its_path():
    done = run("import gt\ngt.ones(2)", check=False, GT_CONFIG="not/there.yaml")
    assert done.returncode == 1
    assert "ConfigError: GT_CONFIG=not/there.yaml: No such file" in done.stderr


def test_bad_input_is_told_before_anything_runs(tmp_path):
    file, trace = _write(tmp_path, "a:\n  workers: [0, 0]\n"), tmp_path / "trace.txt"
    done = run("import gt\ngt.ones(2)", trace, check=False, GT_CONFIG=file)
    assert f"ConfigError: {file}:2:12: worker 0 is named twice; name it once" in done.stderr
    assert not trace.exists()


def test_g8b_absent_workers_are_one_warning(tmp_path):
    file = _write(tmp_path, "a: {workers: [0, 7]}\nb: {workers: [8]}\nc: {workers: [0]}")
    code = """
import gt
gt.gpu_workers(2)
for name in ("a", "b", "a"):
    with gt.signal.context(name):
        x = gt.ones(3) + 1
print(x.tolist())
"""
    done = run(code, GT_CONFIG=file)
    assert done.stdout == "[2.0, 2.0, 2.0]\n"
    warned = [line for line in done.stderr.splitlines() if "UserWarning" in line]
    assert len(warned) == 1, done.stderr
    assert (
        "a, b: asked to run on workers that are not there (7, 8); only 2 workers have" in warned[0]
    )


MESHES = ["{dp: 2, tp: 2}", "{dp: 3}", "{dp: 1}"]
RUNS = {
    "file": "with gt.signal.context('a'):\n    gt.ones(2)",
    "first": "gt.ones(2)\nwith gt.signal.context('a'):\n    gt.ones(2)",
    "loaded": "gt.ones(2)\ngt.load_config(FILE)\nwith gt.signal.context('a'):\n    gt.ones(2)",
}


@pytest.mark.parametrize("run_as", RUNS)
def test_a_mesh_has_a_place_for_each_worker(tmp_path, run_as):
    for mesh in MESHES:
        file = _write(tmp_path, f"a:\n  mesh: {mesh}\n")
        settings = {} if run_as == "loaded" else {"GT_CONFIG": str(file)}
        code = f"import gt\ngt.gpu_workers(2)\n{RUNS[run_as]}".replace("FILE", repr(str(file)))
        done = run(code, check=False, **settings)
        assert done.returncode == 1, mesh
        assert re.search(
            rf"ConfigError: {file}:2:3: the mesh dp .* has [134] places? and there are 2 workers; "
            "make the product",
            done.stderr,
        ), done.stderr
    fits = _write(tmp_path, "a: {mesh: {dp: 2}}\nb: {workers: [1], mesh: {dp: 1}}\n")
    code = "import gt\ngt.gpu_workers(2)\nfor name in 'ab':\n    with gt.signal.context(name):\n"
    run(f"{code}        print(gt.ones(2))", GT_CONFIG=str(fits))


def test_a_rules_mesh_has_a_place_for_each_worker(tmp_path):
    file = _write(tmp_path, "parameters:\n  up: {style: colpar, mesh: {dp: 2, tp: 2}}\n")
    code = "import gt\ngt.gpu_workers(2)\ngt.ones(2)\n"
    done = run(code, check=False, GT_CONFIG=str(file))
    assert f"ConfigError: {file}:2:3: up: the mesh dp 2 x tp 2 has 4 places" in done.stderr
    done = run(f"{code}gt.load_config({str(file)!r})", check=False)
    assert f"ConfigError: {file}:2:3: up: the mesh dp 2 x tp 2 has 4 places" in done.stderr


def test_g2d_the_configuration_travels_to_a_server_elsewhere(tmp_path):
    file, trace = _write(tmp_path, LAYOUT), tmp_path / "trace.txt"
    code = """
for _ in range(2):
    with gt.signal.context("outer"):
        print((gt.ones(2) + 1).sum().item())
gt.register_config("outer", gt.SignalConfig(shard=gt.ShardConfig(axis=0)))
with gt.signal.context("outer"):
    print(gt.ones(2).sum().item())
gt.register_config("outer", gt.SignalConfig())
with gt.signal.context("outer"):
    print(gt.ones(2).sum().item())
gt.disconnect()
gt.connect(ADDRESS)
gt.register_config("outer", None)
with gt.signal.context("outer"):
    print(gt.ones(2).sum().item())
"""
    with Cluster(workers=1, arguments=("--instruction-log", str(trace))) as cluster:
        cluster.wait_for_workers()
        for ring in ("", "1"):
            printed = cluster.run(
                f"ADDRESS = {cluster.address!r}\n{code}", GT_CONFIG=file, GT_NO_RING=ring
            )
            assert printed == "4.0\n4.0\n2.0\n2.0\n2.0\n"
    texts = [text for _, text in scopes_sent(trace)]
    once = ["workers=[0]", "workers=[0] backward=2", "axis=0", "", "workers=[0]",
            "workers=[0] backward=2"]  # fmt: skip
    assert texts == once * 2


def test_gt_auto_shard_gives_batches_a_scope(tmp_path):
    trace = tmp_path / "trace.txt"
    code = """
import numpy as np
import gt
gt.gpu_workers(2)
weight = gt.tensor(np.ones((4, 3), np.float32))
batch, labels = gt.tensor(np.ones((6, 4), np.float32)), gt.tensor(np.arange(6))
with gt.signal.context("layer"):
    small = gt.tensor(np.ones(5, np.float32))
print((batch @ weight).sum().item(), labels.sum().item(), small.sum().item())
print(gt._core.layout(batch))
"""
    expected = "72.0 15 5.0\n"
    assert run(code, trace, GT_AUTO_SHARD="1").stdout == f"{expected}shard(0)@[0,1]\n"
    assert [text for _, text in scopes_sent(trace)] == ["axis=0"]
    entries = map(log.entry, trace.read_text(encoding="utf-8").splitlines())
    uploads = [one.signal for one in entries if one and one.operator == "upload"]
    assert uploads == ["auto_shard", "auto_shard", "auto_shard", "layer"]
    assert run(code, trace).stdout == f"{expected}replicate@[0]\n"
    assert scopes_sent(trace) == []


# ---- a signal is a decorator, and gradients have scopes ----


def test_a_function_in_a_scope(tmp_path):
    code = """
import asyncio, gt
@gt.signal.context("plain")
def plain(x):
    "Doubles."
    return x * 2
@gt.signal.context("awaited")
async def awaited(x):
    await asyncio.sleep(0)
    return x / 2
assert plain.__doc__ == "Doubles."
with gt.signal.context("around"):
    x = plain(plain(gt.ones(2)))
    y = x + 1
print(asyncio.run(awaited(y)).tolist())
"""
    trace = tmp_path / "trace.txt"
    assert run(code, trace).stdout == "[2.5, 2.5]\n"
    entries = [log.entry(line) for line in trace.read_text(encoding="utf-8").splitlines()]
    pairs = [(one.operator, one.signal) for one in entries if one and one.signal]
    assert pairs == [
        ("full", "around"), ("mul", "plain"), ("mul", "plain"), ("add", "around"),
        ("div", "awaited"),
    ]  # fmt: skip


def test_t5a_a_scope_without_instructions_is_a_boundary(tmp_path):
    """`x = x` emits nothing, but grep finds the boundary where the program passed it."""
    code = """
import gt
with gt.signal.context("before_anything"):
    pass
for _ in range(2):
    with gt.signal.context("pp_stage0"):
        with gt.signal.context("layer"):
            x = gt.ones(2) + 1
    with gt.signal.context("stage0_to_stage1"):
        x = x
    with gt.signal.context("pp_stage1"):
        x = x * 2
try:
    with gt.signal.context("broken"):
        raise KeyError
except KeyError:
    pass
print(x.tolist())
"""
    trace = tmp_path / "trace.txt"
    assert run(code, trace).stdout == "[4.0, 4.0]\n"
    lines = trace.read_text(encoding="utf-8").splitlines()
    instructions = [
        (one.operator, one.signal) for line in lines if (one := log.entry(line)) and one.signal
    ]
    once = [("full", "layer"), ("add", "layer"), ("boundary", "stage0_to_stage1"),
            ("mul", "pp_stage1")]  # fmt: skip
    assert instructions == once * 2
    (line, _) = [line for line in lines if "stage0_to_stage1" in line]
    assert line.rstrip().endswith(" <string>:9")  # the with statement
    checked = subprocess.run(
        [sys.executable, "-m", "gt", "trace", "--check", trace],
        capture_output=True, text=True, check=True, timeout=50,
    )  # fmt: skip
    assert "0 lines wrong" in checked.stdout


def test_t5a_the_first_line_that_moves_something_names_the_boundary(tmp_path):
    code = """
import gt
gt.gpu_workers(2)
for stage in (0, 1):
    layout = gt.SignalConfig(shard=gt.ShardConfig(workers=[stage]))
    gt.register_config(f"stage{stage}", layout)
with gt.signal.context("stage0"):
    x = gt.ones(2) + 1
with gt.signal.context("stage0_to_stage1"):
    x = x
with gt.signal.context("stage1"):
    x = x * 2 + x
print(x.tolist())
"""
    trace = tmp_path / "trace.txt"
    assert run(code, trace).stdout == "[6.0, 6.0]\n"
    lines = trace.read_text(encoding="utf-8").splitlines()
    (moving,) = [line for line in lines if "moved=" in line]
    assert "= mul " in moving
    assert "boundary=stage0_to_stage1" in moving
    assert sum("boundary=" in line for line in lines) == 1


@pytest.mark.fast
def test_gradients_of_an_inner_scope_are_inside_of_the_outers(written):
    gt.load_config(written("a: {backward: b}\nb: {workers: [1], backward: a}\nc: {compile: true}"))
    with gt.signal.context("a"), gt.signal.context("c"):
        scope = scopes.state.by_signal[scopes.current.get()]
        gradients = scope.gradients
        assert (gradients.name, gradients.around.name, gradients.around.around.name) == tuple("cba")
        assert gradients.meaning.text(None) == "workers=[1] compile=true"
        assert gradients.gradients is None
    with gt.signal.context("a", backward="other"):
        scope = scopes.state.by_signal[scopes.current.get()]
        assert scope.gradients.name == "other"
