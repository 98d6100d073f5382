"""Training in a plan's order: the losses of a plain loop to the bit, and what is measured."""

import itertools
import json

import pytest
from spread_session import workers

import gt
from gt import _core, nn, pipeline
from gt.config import document as config_document
from gt.errors import InvalidUse, InvalidValue
from gt.nn import functional

MICROBATCHES, STEPS = 4, 2
HIDDEN, VOCABULARY = 8, 12


class Model(nn.Module):
    """An embedding, stages with what leads to weights alone, and a loss; parts as scopes say."""

    def __init__(self, scopes):
        super().__init__()
        self.scopes = scopes
        with gt.signal.context("embedding"):
            self.tokens = nn.Parameter(gt.randn(VOCABULARY, HIDDEN))
        self.stages = nn.ModuleList()
        for scope in scopes:
            with gt.signal.context(scope):
                layers = [nn.LayerNorm(HIDDEN), nn.Linear(HIDDEN, 16), nn.GELU()]
                last = nn.utils.parametrizations.weight_norm(nn.Linear(16, HIDDEN))
                self.stages.append(nn.Sequential(*layers, last))
        with gt.signal.context("head"):
            self.head = nn.Parameter(gt.randn(HIDDEN, VOCABULARY))

    def embed(self, tokens):
        with gt.signal.context("embedding"):
            return functional.embedding(tokens, self.tokens)

    def stage(self, number):
        def run(x):
            with gt.signal.context(self.scopes[number]):
                return x + self.stages[number](x)

        return run

    def loss_of(self, x, targets):
        with gt.signal.context("head"):
            scores = (x @ self.head).flatten(0, 1)
            return functional.cross_entropy(scores, targets.flatten())


def micro_batches():
    gt.manual_seed(1)
    tokens = gt.randint(0, VOCABULARY, (MICROBATCHES, 2, 5))
    return [part[:, :-1] for part in tokens], [part[:, 1:] for part in tokens]


def trained(scopes, step_of):
    """The losses of some steps, and the weights after them, as numbers."""
    gt.manual_seed(0)
    model = Model(scopes)
    optimizer = gt.optim.AdamW(model.parameters(), lr=0.01)
    step, losses = step_of(model), []
    for _ in range(STEPS):
        optimizer.zero_grad()
        losses.append(step(*micro_batches()))
        optimizer.step()
    return [loss.item() for loss in losses], [weight.tolist() for weight in model.parameters()]


def plain(model):
    def step(inputs, targets):
        total = gt.zeros(())
        for tokens, target in zip(inputs, targets, strict=True):
            x = model.embed(tokens)
            for number in range(len(model.scopes)):
                x = model.stage(number)(x)
            loss = model.loss_of(x, target) / MICROBATCHES
            loss.backward()
            total = total + loss.detach()
        return total

    return step


def planned(plan, indexes=None):
    def step_of(model):
        stages = [model.stage(number) for number in range(plan.stages)]
        return pipeline.Pipeline(plan, stages, model.loss_of, model.embed, indexes).step

    return step_of


def scopes_of(plan):
    return [f"stage{plan.ranks_of(stage)[0]}" for stage in range(plan.stages)]


@pytest.mark.parametrize("name", pipeline.SCHEDULES)
@pytest.mark.parametrize(("embedding", "head"), [(False, False), (True, True)])
def test_the_losses_of_a_plain_loop_to_the_bit(name, embedding, head):
    plan = pipeline.plan(name, 2, MICROBATCHES, embedding=embedding, head=head)
    scopes = scopes_of(plan)
    assert trained(scopes, planned(plan)) == trained(scopes, plain)


# Workers of the stages; of embedding and head where they are spread over all of them.
LAYOUTS = {
    "a worker a stage": ([[0], [1]], None),
    "two workers a stage": ([[0, 1], [2, 3]], None),
    "spread": ([[0], [1]], [0, 1]),
    "spread over two a stage": ([[0, 1], [2, 3]], [0, 1, 2, 3]),
}


@pytest.fixture(scope="module")
def four_workers():
    with workers(4):
        yield


@pytest.fixture
def register(four_workers):
    """Says what signals mean, for one test."""
    del four_workers
    names = []

    def register(name, axis, workers):
        shard = gt.ShardConfig(axis=axis, workers=workers)
        gt.register_config(name, gt.SignalConfig(shard=shard))
        names.append(name)

    yield register
    for name in names:
        gt.register_config(name, None)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_same_on_several_workers(layout, register):
    stages, spread = LAYOUTS[layout]
    for number, indexes in enumerate(stages):
        register(f"stage{number}", 0, indexes)
    register("embedding", 0, spread or stages[0])
    for name in pipeline.SCHEDULES:
        is_spread = spread is not None
        plan = pipeline.plan(name, 2, MICROBATCHES, embedding=is_spread, head=is_spread)
        register("head", 1, spread or stages[plan.ranks_of(plan.stages - 1)[0]])
        scopes = scopes_of(plan)
        expected = trained(scopes, plain)
        assert trained(scopes, planned(plan)) == expected, name
        assert trained(scopes, planned(plan, stages)) == expected, name


def test_no_instruction_more_than_the_plain_loop():
    """A schedule adds only the stages' leaves, which are no instructions."""
    counts = {}
    for name in ("plain", *pipeline.SCHEDULES):
        plan = pipeline.plan(name if name != "plain" else "1f1b", 2, MICROBATCHES)
        gt.manual_seed(0)
        model = Model(scopes_of(plan))
        step = (plain if name == "plain" else planned(plan))(model)
        inputs = micro_batches()
        before = _core.numbered()
        step(*inputs)
        counts[name, plan.stages] = _core.numbered() - before
    assert len({count for (_, stages), count in counts.items() if stages == 2}) == 1, counts
    assert len({count for (_, stages), count in counts.items() if stages == 4}) == 1, counts


def recorded(plan, log, monkeypatch):
    """Steps on two workers, as they recorded them."""
    monkeypatch.setenv("GT_INSTRUCTION_LOG", log)
    with workers(2):
        gt.ones(1).tolist()  # they start
        monkeypatch.delenv("GT_INSTRUCTION_LOG")
        names = [f"stage{rank}" for rank in range(2)]
        for rank, name in enumerate(names):
            gt.register_config(name, gt.SignalConfig(workers=[rank]))
        try:
            model = Model(scopes_of(plan))
            stages = [model.stage(number) for number in range(plan.stages)]
            pipe = pipeline.Pipeline(plan, stages, model.loss_of, model.embed)
            for _ in range(STEPS):
                pipe.step(*micro_batches())
            return pipeline.measured(log, plan, pipe.marks)
        finally:
            for name in names:
                gt.register_config(name, None)


def test_what_is_recorded(tmp_path, monkeypatch, capfd):
    """Each worker's units, in the order of the plan, and all of them; pictures of the same."""
    plan = pipeline.plan("zbv", 2, MICROBATCHES)
    run = recorded(plan, str(tmp_path / "log"), monkeypatch)
    for step, worker in itertools.product(range(STEPS), range(2)):
        works = [work for work in run.of_step(step).works if work.worker == worker]
        works.sort(key=lambda work: work.start)
        # An embedding or a head without a scope is on worker 0.
        own = [w.unit for w in works if plan.ranks_of(w.unit.stage) == (worker,)]
        assert [unit for unit, _ in itertools.groupby(own)] == plan.of_rank(worker)
        assert all(0.0 < work.busy <= work.end - work.start + 1e-3 for work in works)
        assert all(a.end <= b.start + 1e-3 for a, b in itertools.pairwise(works))
    assert all(0.0 <= share < 1.0 for share in run.of_step(1).idle_shares())
    measured = pipeline.costs(run)
    assert set(measured.weights) == set(range(plan.stages))
    assert pipeline.simulate(plan, measured).length > 0.0
    pipeline.perfetto(run.of_step(1), str(tmp_path / "trace.json"))
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    drawn = [event for event in events if event["ph"] == "X"]
    assert len(drawn) == len(run.of_step(1).works) >= len(plan.order)
    assert {event["name"] for event in drawn} >= {"F0", "B3", "W2"}
    pytest.importorskip("matplotlib")
    pipeline.png(run.of_step(1), str(tmp_path / "line.png"))
    assert (tmp_path / "line.png").read_bytes().startswith(b"\x89PNG")
    assert capfd.readouterr().err == ""


def test_beside_what_is_no_file_nothing_is_recorded(tmp_path, monkeypatch, capfd):
    device = tmp_path / "null"
    device.symlink_to("/dev/null")
    monkeypatch.setenv("GT_INSTRUCTION_LOG", str(device))
    with workers(2):
        gt.ones(1).tolist()
        gt.debug.get_worker_stats()
    assert [path.name for path in tmp_path.iterdir()] == ["null"]
    assert "null" not in capfd.readouterr().err


def test_without_a_record_an_error_says_so(tmp_path):
    plan = pipeline.plan("1f1b", 1, 1)
    with pytest.raises(InvalidUse, match="no worker has recorded"):
        pipeline.measured(str(tmp_path / "log"), plan, [])


def test_mistakes():
    plan = pipeline.plan("zbv", 2, MICROBATCHES)
    with pytest.raises(InvalidValue, match="2 stages, and ZB-V has 4"):
        pipeline.Pipeline(plan, [gt.tanh] * 2, functional.mse_loss)
    pipe = pipeline.Pipeline(plan, [gt.tanh] * 4, functional.mse_loss)
    with pytest.raises(InvalidValue, match="1 inputs and 4 targets, and the plan has 4"):
        pipe.step([gt.ones(2)], [gt.ones(2)] * 4)
    with pytest.raises(InvalidValue, match="workers of 1 ranks, and the plan has 2"):
        pipeline.Pipeline(plan, [gt.tanh] * 4, functional.mse_loss, workers=[[0]])
    spread = pipeline.plan("1f1b", 1, 1, embedding=True)
    with pytest.raises(InvalidValue, match="spreads an embedding"):
        pipeline.Pipeline(spread, [gt.tanh], functional.mse_loss)


def test_the_schedule_of_a_layout_file(tmp_path):
    file = tmp_path / "layout.yaml"
    file.write_text("schedule: zbv\nstage0: {workers: [0]}\n", encoding="utf-8")
    document = config_document.load(str(file))
    assert (document.schedule, list(document.entries)) == ("zbv", ["stage0"])
    file.write_text("schedule: zvb\n", encoding="utf-8")
    with pytest.raises(gt.ConfigError, match=r"'zvb' is no schedule; did you mean zbv\?"):
        config_document.load(str(file))
    file.write_text("schedule: {workers: [0]}\n", encoding="utf-8")  # a signal of that name
    assert config_document.load(str(file)).schedule is None
