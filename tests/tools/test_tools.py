"""The `gt` command, gt.signal and gt.debug: what people look through; looking changes nothing."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from cluster import Cluster

import gt
from gt.tools import log, timeline, top

ROOT = Path(__file__).resolve().parent.parent.parent
TRACE = """\
%0 = upload size=[4] dtype=i64 ~1 payload=0x01000000  # replicate@[0] 11:56:04.973173 a.py:8
%1.0 %1.1 = max_dim %0 dim=0 keepdim=false @"two words" ~2  # shard(0)@[0,1] 11:56:05.1 a.py:9

# a comment
%3 = add %1.1! 2.5 @layer1 ~12  # f32[] replicate@[1] 11:56:05.2 s2 a.py:10 ERROR no memory
read %3 request=1 start=0 count=1 ~4  # 11:56:05.3
free %3 %0  # 11:56:05.4
%9 = upload size=[99] dtype=f32 ~1 payload=@0123456789abcdef0123456789abcdef:396  # 11:56:06
"""


def tool(*arguments, given="", env=None, module="gt"):
    """`gt arguments` in a process of its own."""
    return subprocess.run(
        [sys.executable, "-m", module, *map(str, arguments)],
        input=given,
        capture_output=True,
        text=True,
        timeout=50,
        env=os.environ | (env or {}),
    )


# ---- gt trace ----


@pytest.mark.parametrize("name", ["demo", "debug_demo", "mlp", "signal_demo", "visualize_demo"])
def test_a_log_of_an_example_reads_back_line_by_line(name, tmp_path):
    file = tmp_path / "its.txt"
    subprocess.run(
        [sys.executable, ROOT / f"examples/{name}.py"],
        env=os.environ | {"GT_INSTRUCTION_LOG": str(file), "GT_BACKEND": "numpy"},
        cwd=tmp_path,
        check=True,
        timeout=50,
    )
    done = tool("trace", "--check", file)
    assert done.returncode == 0, done.stderr
    text = file.read_text(encoding="utf-8")
    comments = len(re.findall(r"^#", text, re.MULTILINE))
    lines = text.count("\n") - comments
    assert lines > 10
    assert f"{lines} instructions, {comments} comments, 0 lines wrong" in done.stdout
    assert re.search(r"^ +\d+ matmul$", done.stdout, re.MULTILINE)


def test_a_long_payload_is_beside_the_log_where_that_is_asked_for(tmp_path):
    file = tmp_path / "trace.txt"
    with Cluster(1, arguments=("--instruction-log", str(file), "--log-payloads")) as cluster:
        gt.connect(cluster.address)
        long, short = gt.tensor([float(i) for i in range(100)]), gt.tensor([1.0, 2.0])
        assert (long.sum() + short.sum()).item() == 4953
        gt.disconnect()
    lines = file.read_text(encoding="utf-8").splitlines()
    payloads = [line.split("payload=")[1].split()[0] for line in lines if "payload=" in line]
    assert payloads[1] == "0x0000803f00000040"  # up to 64 bytes stand in the line
    name, _, length = payloads[0].removeprefix("@").partition(":")
    payload = Path(f"{file}.d", name).read_bytes()
    assert (length, payload) == ("400", np.arange(100, dtype="<f4").tobytes())
    assert [path.name for path in Path(f"{file}.d").iterdir()] == [name]
    assert tool("trace", "--check", file).returncode == 0


def test_what_failed_on_a_worker_is_in_the_log(tmp_path):
    file = tmp_path / "trace.txt"
    code = """
import gt
broken = gt.index_select(gt.arange(3), 0, gt.tensor([7]))
try:
    broken.tolist()
except gt.Error:
    pass
"""
    env = os.environ | {"GT_INSTRUCTION_LOG": str(file)}
    subprocess.run([sys.executable, "-c", code], env=env, check=True, timeout=50)
    matches = re.findall(
        r"^# ERROR (%\d+) index_select: index out of range", file.read_text(), re.MULTILINE
    )
    assert matches == ["%2"]
    assert tool("trace", "--check", file).returncode == 0
    assert [item.operator for item in log.entries(str(file)) if item.failed] == ["index_select"]


@pytest.mark.parametrize("long", [[], ["--long"]])
def test_what_trace_prints_reads_back(long):
    shown = tool("trace", *long, "-", given=TRACE)
    assert shown.returncode == 0, shown.stderr
    assert ("TENSOR[3] := ADD TENSOR[1.1]! 2.5 @layer1" in shown.stdout) == bool(long)
    done = tool("trace", "--check", "-", given=shown.stdout)
    assert done.returncode == 0, done.stderr
    assert "6 instructions, 2 comments, 0 lines wrong" in done.stdout


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("%3 = ad %1 %2", "-:1: column 6: expected an operator of ops.toml, found `ad`"),
        ("%3 = add %1", "-:1: column"),
        ("%3 = add  %1 %2", "-:1: reads back as '%3 = add %1 %2'"),
        ("%3 = relu %1 dim=2", "-:1: column 14: expected an attribute of relu: no attribute"),
    ],
)
def test_a_wrong_line_is_named(line, complaint):
    done = tool("trace", "--check", "-", given=f"{line}\n%4 = relu %1\n")
    assert done.returncode == 1
    assert complaint in done.stderr
    assert "1 lines wrong" in done.stdout


def test_a_closed_pipe_ends_a_filter_quietly(tmp_path):
    file = tmp_path / "long.txt"
    file.write_text(TRACE * 5000, encoding="utf-8")
    command = f"{sys.executable} -m gt trace {file} | head -1"
    done = subprocess.run(command, shell=True, capture_output=True, text=True, timeout=50)
    assert done.stdout.startswith("%0 = upload")
    assert done.stderr == ""


@pytest.mark.fast
def test_a_line_and_what_its_notes_say():
    entries = [log.entry(line) for line in TRACE.splitlines()]
    assert [entry and entry.operator for entry in entries] == [
        "upload", "max_dim", None, None, "add", "read", "free", "upload",
    ]  # fmt: skip
    assert [entry.signal for entry in entries if entry] == [
        None, "two words", "layer1", None, None, None,
    ]  # fmt: skip
    assert [entry.workers for entry in entries if entry] == [(0,), (0, 1), (1,), (), (), ()]
    assert [entry.failed for entry in entries if entry] == [False, False, True, False, False, False]
    assert entries[0].seconds == pytest.approx(11 * 3600 + 56 * 60 + 4.973173)
    assert log.split('site text="a # b"  # c') == ('site text="a # b"', "c")


# ---- gt visualize ----


def test_a_log_becomes_a_picture(tmp_path):
    file = tmp_path / "timeline.svg"
    done = tool("visualize", "-", "-o", file, given=TRACE)
    assert done.returncode == 0, done.stderr
    text = file.read_text(encoding="utf-8")
    assert text.startswith("<svg")
    assert text.endswith("</svg>\n")
    assert "5 instructions planned in 1.027 s" in text  # free is not drawn
    assert "two words" in text
    assert "worker 1" in text
    assert timeline.FAILED in text


def test_a_log_becomes_a_png(tmp_path):
    pytest.importorskip("matplotlib")
    file = tmp_path / "timeline.png"
    assert tool("visualize", "-", "-o", file, given=TRACE).returncode == 0
    assert file.read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(("output", "given"), [("x.gif", TRACE), ("x.svg", "# nothing\n")])
def test_what_cannot_be_drawn_is_said(tmp_path, output, given):
    done = tool("visualize", "-", "-o", tmp_path / output, given=given)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("gt visualize: ")
    assert done.stderr.count("\n") == 1


# ---- gt top, gt version ----


@pytest.mark.fast
def test_top_shows_a_table():
    counters = {
        "dispatcher": {"workers": 2, "bytes": 2048},
        "workers": [{"values": 3, "bytes": 10}, {"values": 12, "bytes": 5 * 2**20}],
    }
    assert top.text("host:1", counters) == (
        "host:1  workers 2  bytes 2 KiB\n"
        "worker  values  bytes\n"
        "     0       3   10 B\n"
        "     1      12  5 MiB"
    )


def test_top_counts_this_session():
    value = gt.ones(1000)
    counters = top.snapshot()
    assert counters["dispatcher"]["workers"] == len(counters["workers"]) == 1
    assert counters["workers"][0]["bytes"] >= 4 * value.numel()
    json.dumps(counters)


@pytest.mark.parametrize("module", ["gt", "gt.scripts.top"])
def test_top_of_a_dispatcher_elsewhere(module):
    with Cluster(workers=2) as cluster:
        cluster.run("while len(gt.debug.get_worker_stats()) < 2: pass")
        words = ["top"] if module == "gt" else []
        done = tool(*words, "--once", "--json", cluster.address, module=module)
    assert done.returncode == 0, done.stderr
    shown = json.loads(done.stdout)
    assert shown["address"] == cluster.address
    assert [row["values"] for row in shown["workers"]] == [0, 0]


def test_top_heads_its_table_with_what_is_the_dispatchers():
    with Cluster(workers=1) as cluster:
        cluster.wait_for_workers()
        done = tool("top", "--once", cluster.address)
    assert done.stdout.splitlines()[0] == f"{cluster.address}  workers 1", done.stderr


def test_top_says_that_nobody_answers():
    done = tool("top", "--once", "127.0.0.1:1")
    assert done.returncode == 1
    assert done.stderr.startswith("gt top: ")


@pytest.mark.parametrize("module", ["gt", "gt.scripts.top"])
def test_the_commands_explain_themselves(module):
    done = tool("--help", module=module)
    assert done.returncode == 0
    assert "usage: gt" in done.stdout


def test_version():
    done = tool("version")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("gt ")


# ---- gt config check ----

MISTAKEN = """\
pp_stage0: {workers: [0, 1, 2, 3]}
pp_stage0_colpar:
  shard: {axis: 1, workers: [0, 1]}
pp_stage1: {workers: [4, 5, 6]}
pp_stage1_rowpar:
  mesh: {dp: 2, tp: 2}
head: {shard: {axsi: 0}, workers: [1, 1]}
parameters:
  "*.up": {style: colpar, workers: [9]}
"""


def test_a_file_of_layouts_is_checked(tmp_path):
    file = tmp_path / "layouts.yaml"
    file.write_text(MISTAKEN, encoding="utf-8")
    done = tool("config", "check", file, "--workers", "6")
    assert done.returncode == 1
    assert done.stderr == ""
    lines = [line.replace(str(file), "FILE") for line in done.stdout.splitlines()]
    expected = [
        "FILE:3:20: warning: pp_stage0_colpar names the workers [0, 1] and pp_stage0 around it ",
        "FILE:4:13: warning: pp_stage1 names worker 6, and there are 6; it runs on those that ",
        "FILE:6:3: error: inside of pp_stage1: the mesh dp 2 x tp 2 has 4 places and there are 3 ",
        "FILE:7:16: error: unknown key 'axsi'; did you mean axis?",
        "FILE:7:35: error: worker 1 is named twice; name it once",
        "FILE:9:3: warning: *.up names worker 9, and there are 6; it runs on those that there are",
        "FILE: 5 signals, 1 rules, 3 errors, 3 warnings",
    ]
    assert [line[: len(start)] for line, start in zip(lines, expected, strict=True)] == expected


def test_meshes_are_checked_against_the_workers(tmp_path):
    file = tmp_path / "layouts.yaml"
    file.write_text(
        "a: {mesh: {dp: 2, tp: 2}}\nb: {mesh: {dp: 2}}\nc: {workers: [0]}\nc_d: {compile: true}\n"
        "c_d_e: {mesh: {dp: 1}}\n"
        "parameters:\n  up: {style: colpar, mesh: {tp: 3}}\n",
        encoding="utf-8",
    )
    done = tool("config", "check", file, "--workers", "2")
    assert done.returncode == 1
    lines = [line.replace(str(file), "FILE") for line in done.stdout.splitlines()]
    assert lines[0].startswith("FILE:1:5: error: the mesh dp 2 x tp 2 has 4 places and there are 2")
    assert lines[1].startswith("FILE:7:3: error: up: the mesh tp 3 has 3 places and there are 2")
    assert lines[2:] == ["FILE: 5 signals, 1 rules, 2 errors, 0 warnings"]
    assert tool("config", "check", file).returncode == 0


@pytest.mark.parametrize(
    ("given", "code", "says"),
    [
        ("a: {workers: [0]}", 0, "-: 1 signals, 0 rules, 0 errors, 0 warnings"),
        ("a:\n\tb: 1", 1, "-:2:1: error: a tab; YAML is indented with spaces"),
        ("", 0, "-: 0 signals, 0 rules, 0 errors, 0 warnings"),
    ],
)
def test_a_check_reads_standard_input(given, code, says):
    done = tool("config", "check", "-", given=given)
    assert (done.returncode, done.stdout.splitlines()[0]) == (code, says)


def test_a_check_of_no_file():
    done = tool("config", "check", "not/there.yaml")
    assert done.returncode == 1
    assert "not/there.yaml: No such file" in done.stderr


# ---- gt config explain ----

EXPLAINED = """\
import sys
import gt
gt.gpu_workers(2)
x = gt.ones(256, 256)
with gt.signal.context("up"):
    w = gt.full((256, 256), 2.0)
    y = x @ w
print(y.sum().item(), sys.argv[1:])
gt.disconnect()
sys.exit(3)
"""


def test_a_script_is_explained_under_a_file_of_layouts(tmp_path):
    layouts, script = tmp_path / "layouts.yaml", tmp_path / "script.py"
    layouts.write_text("up: {shard: {axis: 1}, workers: [0, 1]}\ndown: {workers: [1]}\n")
    script.write_text(EXPLAINED, encoding="utf-8")
    done = tool("config", "explain", layouts, script, "--steps", "2")
    assert done.returncode == 3, done.stderr
    printed, heading, outside, up, total, absent = done.stdout.splitlines()
    assert printed == f"{256**3 * 2.0} ['--steps', '2']"
    assert heading.split()[:3] == ["signal", "instructions", "bytes"]
    assert outside.startswith("(no signal)")
    size = 256 * 256 * 4  # x goes to the second worker
    assert up.split()[:3] == ["up", "2", f"{size:,}"]
    assert up.endswith("  shard(1)@[0,1] 2")
    assert total.split() == ["all", "4", f"{size:,}"]
    assert absent == f"of {layouts} the program never entered: down"


RULED = """\
import gt
from gt import nn
gt.gpu_workers(2)
first, second = nn.Linear(4, 6), nn.Sequential(nn.Linear(6, 4))
print(second(first(gt.ones(2, 4))).shape)
uncalled = nn.Sequential(nn.Sequential(nn.Linear(4, 4)))
gt.disconnect()
"""
RULES = """\
"weigh*": colpar
model.0.weight: {style: rowpar}
parameters:
  "0.wieght": rowpar
  bias: replicate
  "0.0.weight": colpar
"""


def test_rules_that_mean_no_parameter_of_a_program_are_named(tmp_path):
    """Each of the others means one of the two models that the program calls."""
    layouts, script = tmp_path / "layouts.yaml", tmp_path / "script.py"
    layouts.write_text(RULES, encoding="utf-8")
    script.write_text(RULED, encoding="utf-8")
    done = tool("config", "explain", layouts, script)
    assert (done.returncode, done.stderr) == (0, "")
    *_, last = done.stdout.splitlines()
    expected = "0.wieght (line 4), 0.0.weight (line 6)"
    assert last == f"of {layouts} no parameter of a called module matches: {expected}"
    layouts.write_text('"weigh*": colpar\n', encoding="utf-8")
    done = tool("config", "explain", layouts, script)
    assert "matches" not in done.stdout


def test_what_cannot_be_explained_does_not_run(tmp_path):
    layouts, script = tmp_path / "layouts.yaml", tmp_path / "script.py"
    layouts.write_text("up: {shard: {axis: one}}\n", encoding="utf-8")
    script.write_text("print('ran')\n", encoding="utf-8")
    done = tool("config", "explain", layouts, script)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith(f"gt config: {layouts}:1:20: axis is 'one'"), done.stderr
    layouts.write_text("", encoding="utf-8")
    done = tool("config", "explain", layouts, tmp_path / "no.py")
    assert (done.returncode, done.stdout) == (1, "")
    assert "no.py: there is no such program" in done.stderr


def test_layouts_of_a_log_line():
    line = "%3 = add %1 %2  # f32[4] shard(0),replicate@[[0,1],[2,3]] moved=96 12:03:07.5 x.py:1"
    entry = log.entry(line)
    assert entry.layouts == ("shard(0),replicate@[[0,1],[2,3]]",)
    assert entry.workers == (0, 1, 2, 3)
    assert entry.moved_bytes == 96
    assert log.entry("free %1").layouts == ()


# ---- gt.signal ----


def signals_of(code, tmp_path):
    """(operator, signal) of each instruction that `code` makes."""
    file = tmp_path / "trace.txt"
    env = os.environ | {"GT_INSTRUCTION_LOG": str(file)}
    subprocess.run([sys.executable, "-c", code], env=env, check=True, timeout=50)
    entries = map(log.entry, file.read_text(encoding="utf-8").splitlines())
    return [(item.operator, item.signal) for item in entries if item and item.operator != "free"]


def test_instructions_carry_the_innermost_scope(tmp_path):
    code = """
import gt
with gt.signal.context("outer", backward="back"):
    x = gt.ones(2, requires_grad=True)
    with gt.signal.context("two words"):
        y = x * 2
    gt.signal.enter("inner")
    z = y.exp()
    gt.signal.exit("inner")
    z = gt.signal.tensor(z, "named").sum()
z.backward()
x.grad.tolist()
"""
    signals = signals_of(code, tmp_path)
    assert signals[:5] == [
        ("full", "outer"),
        ("mul", "two words"),
        ("exp", "inner"),
        ("reshape", "named"),
        ("sum", "outer"),
    ]
    assert ("expand", "back") in signals  # the gradient of sum
    assert ("mul", "two words") in signals[5:]  # the gradient of mul: no scope of its own given
    assert signals[-1] == ("read", None)


def test_threads_and_tasks_have_scopes_of_their_own(tmp_path):
    code = """
import asyncio, threading, gt
base = gt.ones(1)
async def task(name):
    with gt.signal.context(name):
        for _ in range(3):
            base + 1
            await asyncio.sleep(0)
async def main():
    await asyncio.gather(task("a"), task("b"))
asyncio.run(main())
inside, go_on = threading.Event(), threading.Event()
def thread():
    with gt.signal.context("thread"):
        inside.set()
        go_on.wait(10)
        base * 2
worker = threading.Thread(target=thread)
worker.start()
inside.wait(10)
base - 1
go_on.set()
worker.join()
gt.synchronize()
"""
    signals = signals_of(code, tmp_path)
    assert [signal for operator, signal in signals if operator == "add"] == ["a", "b"] * 3
    assert ("sub", None) in signals
    assert ("mul", "thread") in signals


def test_a_signal_changes_no_result():
    def trained(scoped):
        gt.manual_seed(3)
        w = gt.randn(4, 3, requires_grad=True)
        x = gt.randn(5, 4)
        if scoped:
            with gt.signal.context("layer", backward="layer_back"):
                y = gt.signal.tensor(x, "input") @ w
        else:
            y = x @ w
        gt.nn.functional.dropout(y, 0.5).square().sum().backward()
        return w.grad.tolist(), gt.rand(2).tolist()

    assert trained(scoped=True) == trained(scoped=False)


def test_scopes_close_in_order():
    gt.signal.enter("a")
    gt.signal.enter("b")
    with pytest.raises(ValueError, match="'b' is the innermost"):
        gt.signal.exit("a")
    gt.signal.exit("b")
    gt.signal.exit("a")
    with pytest.raises(ValueError, match="none is open"):
        gt.signal.exit("a")
    with pytest.raises(TypeError), gt.signal.context(7):
        pass
    with pytest.raises(ValueError, match="bytes"), gt.signal.context(""):
        pass


# ---- gt.debug ----


def test_the_tape_has_a_line_a_record(capsys):
    x = gt.ones(2, 3)
    w = gt.ones(3, requires_grad=True)
    y = (x * w).sum()
    gt.debug.print_tape(y)
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 2
    first = re.fullmatch(
        r"%(\d+) = mul constant f32\[2,3\], leaf f32\[3\] -> f32\[2,3\]  (.*):(\d+)", lines[0]
    )
    assert first
    assert first[2] == __file__
    assert f"sum %{first[1]} f32[2,3] -> f32[]" in lines[1]
    gt.debug.print_tape()
    assert capsys.readouterr().out.splitlines() == lines
    gt.debug.print_tape(x)
    assert capsys.readouterr().out == "the tape is empty\n"


def test_counters_are_numbers():
    gt.ones(3).tolist()
    (worker,) = gt.debug.get_worker_stats()
    names = {"worker", "values", "bytes", "bytes_peak", "executed", "aten_calls", "own_calls"}
    names |= {"python_calls"}
    names |= {
        "joined",
        "plain_bytes",
        "packed_bytes",
        "rounded_sums",
        "rounding_error",
        "rounding_error_max",
    }
    assert set(worker) == names
    assert gt.debug.stats()["workers"] == 1


# ---- other names ----


WORKERS = """
import gt
gt.gpu_workers(3)
x = gt.distribute(gt.arange(6.0), 0)
x.sum().item()
def counters():
    return [(one["worker"], one["executed"]) for one in gt.debug.get_worker_stats()]
first = counters()
print([index for index, _ in first], all(counters() == first for _ in range(20)))
"""


def test_counters_come_by_worker_and_asking_counts_nothing():
    environment = os.environ | {"GT_BACKEND": "numpy"}
    done = subprocess.run(
        [sys.executable, "-c", WORKERS],
        env=environment,
        check=True,
        capture_output=True,
        timeout=50,
    )
    assert done.stdout == b"[0, 1, 2] True\n"


def test_cuda_is_asked_and_places_nothing(monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert not gt.cuda.is_available()
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,2")
    assert gt.cuda.device_count() == 2
    x = gt.ones(2, device="cuda:1").cuda().to("cpu")
    gt.cuda.synchronize()
    assert x.tolist() == [1.0, 1.0]


def test_client_is_another_name():
    code = """
import gt, sys
from gt.client import nn, optim
import gt.client.nn.functional as F
assert nn is gt.nn and optim is gt.optim and F is gt.nn.functional
assert "torch" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=50)
