"""`gt.compile`: what a function does is sent as one call, and every number stays."""

import os
import subprocess
import sys
import threading
import time
import warnings

import aliasing_programs
import numpy as np
import pytest
import test_aliasing
from aliasing_programs import LONG_FROM

import gt
import gt.nn.functional as F
from gt import nn
from gt.sessions import compiled as compiled_functions
from gt.sessions.compiled import Region

CALLS = 7  # the first runs as always; a program is called from the fifth on


@pytest.fixture(autouse=True)
def eager(monkeypatch):
    """Programs are called, and run by the kernels of the plain instructions: no bit may change."""
    monkeypatch.setenv("GT_COMPILE", "eager")
    gt.disconnect()  # the next session's worker has the setting
    yield
    gt.disconnect()


def called(function):
    """Number of calls of a compiled function's programs."""
    return sum(stage[3] for stage in function.region.stages())


def arrays(value):
    if isinstance(value, gt.Tensor):
        return [np.asarray(value.detach())]
    if isinstance(value, (tuple, list)):
        return [one for part in value for one in arrays(part)]
    return [np.asarray(value)]


def same_as_plain(function, *operands, calls=CALLS, least=2):
    """Calls a function plainly and compiled, and compares every result to the bit."""
    compiled = gt.compile(function)
    for number in range(calls):
        expected = arrays(function(*operands))
        found = arrays(compiled(*operands))
        assert len(expected) == len(found)
        for one, other in zip(expected, found, strict=True):
            assert one.dtype == other.dtype, number
            assert one.shape == other.shape, number
            np.testing.assert_array_equal(one, other, err_msg=f"call {number}")
        gt.synchronize()
    assert called(compiled) >= least, gt.debug.explain_compile(compiled)
    return compiled


def chain(x, w):
    hidden = F.gelu(x @ w)
    for _ in range(5):
        hidden = (hidden.sin() * 1.5 + x).relu()
    return hidden


TIMED_RUNS = 5  # of the instructions, and as many of the call


@pytest.mark.parametrize("is_faster", [True, False])
def test_a_program_is_called_where_that_is_faster(monkeypatch, is_faster):
    gt.manual_seed(0)
    x, w = gt.randn(6, 6), gt.randn(6, 6)
    chain(x, w).sum().item()  # the worker has read its setting
    monkeypatch.setattr(compiled_functions.config, "compilation", lambda: "auto")
    runs = []

    def nanoseconds(answers):
        assert answers[3] > answers[1], "the worker's clock"
        assert answers[0] == answers[2] == 1
        runs.append(1_000 * len(runs))
        is_call = len(runs) % 2 == 0
        return 2_000 if is_call != is_faster else 1_000

    monkeypatch.setattr(Region, "nanoseconds", staticmethod(nanoseconds))
    compiled = gt.compile(chain)
    timed = []
    for _ in range(30):
        np.testing.assert_array_equal(np.asarray(compiled(x, w)), np.asarray(chain(x, w)))
        stages = compiled.region.stages()
        timed += [stage[3] for stage in stages if stage[1] == "timed"]
        time.sleep(0.02)  # questions have pauses between them
    assert len(runs) == 2 * TIMED_RUNS
    assert timed[-1] == TIMED_RUNS
    (stage,) = compiled.region.stages()
    assert stage[1] == ("compiled" if is_faster else "slower when compiled")
    assert (stage[3] > TIMED_RUNS) == is_faster
    assert stage[4] == ((2_000, 1_000) if is_faster else (1_000, 2_000))
    assert "0.002 ms" in gt.debug.explain_compile(compiled)


def test_a_function_that_has_a_program_twice_is_timed_too(monkeypatch):
    def twice(x, w):
        first = chain(x, w).sum().item()
        return first, chain(x, w).sum()

    gt.manual_seed(0)
    x, w = gt.randn(6, 6), gt.randn(6, 6)
    chain(x, w).sum().item()
    monkeypatch.setattr(compiled_functions.config, "compilation", lambda: "auto")
    compiled, before = gt.compile(twice), gt.debug.stats()["values"]
    for _ in range(30):
        first, second = compiled(x, w)
        assert first == second.item()
        time.sleep(0.02)
    (stage,) = compiled.region.stages()
    assert stage[1] in ("compiled", "slower when compiled")
    del second
    compiled.region.begin()  # takes the last answers
    compiled.region.end()
    assert gt.debug.stats()["values"] <= before + 1, "the program's bytes alone"


def views(x, w):
    made = (x @ w).exp() + 1
    first, second = made.chunk(2, dim=1)
    part = made[1:, ::2]
    return made.t(), first, second.reshape(-1), part, part.t().unsqueeze(0), x.t(), x[0]


def views_of_what_is_gone(x, w):
    return (x + 1).mul(2).add(w).t()[1:].unsqueeze(0)


def writes(x, w):
    made = x.clone()
    made[0] = 5
    made.t()[1] += w[1]
    made.add_(1).mul_(2)
    view = made[2]
    view.zero_()
    return made, view, x + 0


def several_results(x, w):
    values, places = (x @ w + 0).sort(dim=1)
    largest = values.max(dim=0)
    return values, places, largest.values, largest.indices, *gt.var_mean(x, dim=1)


def numbers_and_dtypes(x, w):
    whole = (x * 10).to(gt.int32)
    return (
        whole // 3,
        (whole % 7).to(gt.bool),
        x.double() + 1,
        x.half() @ w.half(),
        2**x,
        1 / (x + 9),
    )


def made_inside(x, w):
    ones = gt.ones(4, 4)
    steps = gt.arange(4)
    return x + ones * steps, gt.zeros_like(x) + w, gt.full((2,), 3.0) * 2


def unused_work(x, w):
    gone = (x @ w).exp()
    gone = gone + 1
    return x * 2 + w * 3 - 1


def generic(x, w):
    return gt.special.i0e(x).sum() + gt.logdet(w @ w.t() + 4 * gt.eye(4)), gt.logcumsumexp(x, 0)


@pytest.mark.parametrize(
    "function",
    [
        chain, views, views_of_what_is_gone, writes, several_results, numbers_and_dtypes,
        made_inside, unused_work, generic,
    ],
    ids=lambda function: function.__name__,
)  # fmt: skip
def test_no_bit_changes(function):
    gt.manual_seed(3)
    same_as_plain(function, gt.randn(4, 4), gt.randn(4, 4))


def test_no_bit_changes_without_torch(monkeypatch):
    monkeypatch.setenv("GT_BACKEND", "numpy")
    gt.manual_seed(3)
    for function in (chain, views, writes, made_inside):
        same_as_plain(function, gt.randn(4, 4), gt.randn(4, 4))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.norm = nn.Linear(8, 16), nn.LayerNorm(16)
        self.dropout, self.second = nn.Dropout(0.25), nn.Linear(16, 3)

    def forward(self, x):
        hidden = self.dropout(F.gelu(self.norm(self.first(x))))
        return self.second(hidden.view(x.shape[0], 16))


def losses(wrap, steps=12):
    gt.manual_seed(1)
    model = Net()
    optimizer = gt.optim.AdamW(model.parameters(), 1e-2)
    scheduler = gt.optim.lr_scheduler.StepLR(optimizer, 3)
    x, y = gt.randn(32, 8), gt.randint(0, 3, (32,))

    def step(x, y):
        loss = F.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        scheduler.step()
        return loss

    step, model = wrap(step, model)
    found = [float(step(x, y)) for _ in range(steps)]
    return found, [np.asarray(p.detach()) for p in model.parameters()], step


@pytest.mark.parametrize("what", ["step", "module", "both"])
def test_a_training_is_the_plain_one(what):
    def wrap(step, model):
        if what != "step":
            assert gt.compile(model) is model
        return (step if what == "module" else gt.compile(step)), model

    plain, parameters, _ = losses(lambda step, model: (step, model))
    found, trained, step = losses(wrap)
    assert found == plain
    for one, other in zip(parameters, trained, strict=True):
        np.testing.assert_array_equal(one, other)
    if what == "step":
        assert called(step) >= 4
        assert "ended by dropout" in gt.debug.explain_compile(step)


def test_second_derivatives_and_hooks():
    def function(x, w):
        x = x.detach().requires_grad_()
        seen = []
        x.register_hook(lambda grad: seen.append(grad * 2))
        y = ((x @ w).tanh() ** 2).sum()
        (first,) = gt.autograd.grad(y, x, create_graph=True)
        (second,) = gt.autograd.grad((first**2).sum(), x)
        return first, second, seen[0]

    gt.manual_seed(3)
    same_as_plain(function, gt.randn(4, 4), gt.randn(4, 4))


def test_a_read_in_the_middle_decides():
    def function(x, w):
        y = (x @ w).relu() + 1
        if y.sum().item() > 0:  # noqa: SIM108 - the branch is the point
            y = y * 2 - w + x * 3
        else:
            y = y - 1
        return y.tolist()[0], (y @ w).exp() + 1 - x

    gt.manual_seed(3)
    compiled = same_as_plain(function, gt.randn(4, 4), gt.randn(4, 4))
    assert len(compiled.region.segments) >= 2


def test_what_differs_is_seen():
    scale = [1.0]

    def function(x):
        y = x * scale[0] + 1
        return y.exp().sum(), y - 2, y.shape

    compiled = gt.compile(function)
    for number in range(60):
        scale[0] = float(number // 12)
        x = gt.ones(3 if number % 2 else 4)
        expected = arrays(function(x)[:2])
        for one, other in zip(expected, arrays(compiled(x)[:2]), strict=True):
            np.testing.assert_array_equal(one, other)
    text = gt.debug.explain_compile(compiled)
    assert called(compiled) >= 1, text
    assert "too many variants" in text


def test_an_error_is_raised_at_its_line_and_the_rest_is_sent():
    kept = []

    def function(x):
        kept.append(((x + 1) * 2 - 3) * 0.5)
        return x @ gt.ones(7, 2)

    compiled = gt.compile(function)
    for number in range(CALLS):
        with pytest.raises(RuntimeError, match="mat1"):
            compiled(gt.ones(2, 3))
        np.testing.assert_array_equal(np.asarray(kept[number]), np.full((2, 3), 0.5, np.float32))


def test_a_failing_program_fails_as_its_instructions_do():
    def function(x, places):
        y = (x + 1) * 2
        return gt.index_select(y, 0, places) + 1 - 2

    compiled = gt.compile(function)
    x = gt.arange(4.0)
    for _ in range(CALLS):
        np.testing.assert_array_equal(
            np.asarray(compiled(x, gt.tensor([1, 2]))), np.asarray(function(x, gt.tensor([1, 2])))
        )
        gt.synchronize()
    assert called(compiled) >= 2
    with pytest.raises(IndexError, match="out of"):
        compiled(x, gt.tensor([1, 9])).tolist()
    assert compiled(x, gt.tensor([0, 3])).tolist() == function(x, gt.tensor([0, 3])).tolist()


def test_regions_within_regions_and_threads():
    inner = gt.compile(lambda x: ((x + 1) * 2).exp() - 1)

    def function(x):
        return inner(x) + inner(x * 2) - 3

    def plain(x):
        return (((x + 1) * 2).exp() - 1) + (((x * 2 + 1) * 2).exp() - 1) - 3

    outer = gt.compile(function)
    x = gt.linspace(0, 1, 5)
    expected = np.asarray(plain(x))
    found, errors = [], []

    def run():
        try:
            found.extend(np.asarray(outer(x)) for _ in range(20))
        except BaseException as error:  # noqa: BLE001 - shown by the test's thread
            errors.append(error)

    threads = [threading.Thread(target=run) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
    assert len(found) == 60
    for one in found:
        np.testing.assert_array_equal(one, expected)


def test_memory_is_given_back():
    def function(x):
        for _ in range(20):
            x = x.sin() + 1
        return x

    compiled = gt.compile(function)
    x = gt.ones(1000)
    for _ in range(CALLS):
        compiled(x)
        gt.synchronize()
    assert called(compiled) >= 2
    before = gt.debug.get_worker_stats()[0]["values"]
    for _ in range(50):
        compiled(x)
    assert gt.debug.get_worker_stats()[0]["values"] <= before + 1


def test_another_session_has_its_own_programs():
    function = gt.compile(lambda x: ((x + 1) * 2).exp() - 1)
    # The second one ends between the question to a worker and its answer.
    for calls in (CALLS, 4, CALLS):
        x = gt.zeros(3)
        for _ in range(calls):
            assert function(x).tolist() == (((x + 1) * 2).exp() - 1).tolist()
        gt.disconnect()
    assert called(function) >= 2


def test_several_workers_run_everything_as_always():
    code = f"""
import gt
function = gt.compile(lambda x: ((x + 1) * 2).exp() - 1)
x = gt.zeros(3)
for _ in range({CALLS}):
    assert function(x).tolist() == (((x + 1) * 2).exp() - 1).tolist()
print(gt.debug.stats()["workers"], function.region.stages())
"""
    # A process of its own: `gt.gpu_workers` of another test goes before GT_WORKERS.
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ | {"GT_WORKERS": "2"}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.stdout, done.stderr) == ("2 []\n", "")


def test_forms_of_gt_compile(monkeypatch):
    @gt.compile(fullgraph=True, mode="max-autotune", dynamic=False)
    def decorated(x):
        """Says so."""
        return ((x + 1) * 2).exp() - 1

    assert decorated.__doc__ == "Says so."
    assert decorated.__name__ == "decorated"

    class Holder:
        @gt.compile
        def method(self, x):
            return ((x + 1) * 2).exp() - 1

    assert Holder().method(gt.zeros(1)).tolist() == decorated(gt.zeros(1)).tolist()

    def function(x):
        return x

    assert gt.compile(function, disable=True) is function
    assert gt.compile(function, backend="eager") is function
    with pytest.raises(TypeError, match="is nothing that"):
        gt.debug.explain_compile(function)
    monkeypatch.setenv("GT_COMPILE", "off")
    for _ in range(CALLS):
        decorated(gt.zeros(1))
    assert not decorated.region.stages()


def test_a_scope_with_compile_is_a_region():
    gt.register_config("hot", gt.SignalConfig(compile=True))
    try:
        x = gt.linspace(0, 1, 5)
        expected = (((x + 1) * 2).exp() - 1).tolist()
        for _ in range(CALLS):
            with gt.signal.context("hot"):
                y = ((x + 1) * 2).exp() - 1
            assert y.tolist() == expected
        assert "called" in gt.debug.explain_compile("hot")
    finally:
        gt.register_config("hot", None)


REPEATS = 6  # the fifth run of a program is a call, or several


def repeated(lines, names):
    """Runs the lines again and again in a region; the last run's outcomes and names count."""
    region = Region("program")
    outcomes = []
    for _ in range(REPEATS):
        names.clear()
        names["T"] = gt
        is_open = region.begin()
        try:
            outcomes = test_aliasing.plainly(lines, names)
        finally:
            if is_open:
                region.end()
    COUNTS[0] += sum(stage[3] for stage in region.stages())
    return outcomes


COUNTS = [0]


@pytest.mark.parametrize("first", [0, 100, LONG_FROM, LONG_FROM + 100])
def test_random_programs_are_pytorchs(first, monkeypatch):
    """Views, writes, gradients, errors: as in test_aliasing, but held back and called."""
    monkeypatch.setenv("GT_HOTPATH_THRESHOLD", "1")
    monkeypatch.setenv("GT_HOTPATH_MIN_SEQ", "1")
    COUNTS[0] = 0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for seed in range(first, first + 100):
            if seed in test_aliasing.KNOWN:
                continue
            lines = aliasing_programs.program(seed)
            problem = test_aliasing.difference(lines, repeated)
            assert problem is None, f"seed {seed}: {problem}\n" + "\n".join(lines)
    assert COUNTS[0] >= 50  # programs that were called
