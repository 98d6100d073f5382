"""A run of gt.guava around its steps: what it says and writes, batches of each form, mixed
precision, too little memory, a worker that dies, a machine that is not trusted."""

import json
import os
import re
import signal
import subprocess
import sys
from typing import ClassVar

import guava_models
import numpy as np
import pytest
import torch
from spread_session import workers
from test_guava_training import trained, two_copies

import gt
from gt.guava import DistributedConfig, NetworkWorker, Orchestrator

pytestmark = pytest.mark.usefixtures("two_workers")
LINE = re.compile(
    r"step (\d+) epoch (\d+) loss (\d\.\d+) lr 0\.01 grad norm \d\S* \d+\.\d samples/s memory \d"
)


@pytest.fixture(scope="module")
def two_workers():
    """One session for all tests here."""
    with workers(2):
        yield


def test_lines_records_and_checkpoints(tmp_path, capsys):
    ours, _ = two_copies(gt, guava_models.classifier)
    batches = guava_models.points(8, 4)
    metrics = trained(ours, batches, 2, tmp_path, log_step_every=3, save_interval=4, log_act=True)
    printed = capsys.readouterr().out
    trained(ours, batches, 2, tmp_path / "each", log_step_every=4, compact_log=False)
    each = capsys.readouterr().out
    shown = [(int(step), int(epoch)) for step, epoch, _ in LINE.findall(printed)]
    assert shown == [(3, 0), (6, 1)]
    assert [float(loss) for *_, loss in LINE.findall(printed)] == pytest.approx(
        [metrics.losses[2], metrics.losses[5]], abs=1e-6
    )
    assert re.findall(r"stage (\d) puts out \(8, 5\): mean \S+, max \S+", printed) == ["0"] * 2
    assert [int(worker) for worker in re.findall(r"worker (\d) step", each)] == [0, 1, 0, 1]
    records = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert [one["step"] for one in records] == list(range(1, 9))
    assert [one["loss"] for one in records] == metrics.losses
    assert {one["samples"] for one in records} == {8}
    assert all(one["gradient_norm"] > 0 and one["bytes_peak"] > 0 for one in records)
    assert sorted(path.name for path in tmp_path.glob("step_*")) == ["step_4", "step_8"]
    assert not list(tmp_path.glob(".step*"))


class WithLoss(torch.nn.Module):
    """A model like Hugging Face's: arguments by name, an output that has a loss."""

    def __init__(self):
        super().__init__()
        self.layers = guava_models.classifier(torch)

    def forward(self, points, labels=None):
        scores = self.layers(points)
        return {"logits": scores, "loss": torch.nn.functional.cross_entropy(scores, labels)}


class Scores(WithLoss):
    def forward(self, points):
        return {"logits": self.layers(points)}


def by_batch(output, batch):
    return torch.nn.functional.cross_entropy(output["logits"], batch["labels"])


def by_target(output, target):
    return torch.nn.functional.cross_entropy(output["logits"], target)


def test_batches_of_each_form_and_losses_of_each_kind(tmp_path):
    pairs = guava_models.points(4, 6)
    named = [{"points": x, "labels": y} for x, y in pairs]
    arguments = [({"points": x}, y) for x, y in pairs]
    cases = [
        (WithLoss, named, None),
        (Scores, named, by_batch),
        (Scores, pairs, None),
        (Scores, pairs, by_target),
        (Scores, arguments, by_target),
    ]
    losses = []
    for number, (make, batches, loss_fn) in enumerate(cases):
        torch.manual_seed(3)
        config = DistributedConfig(
            num_workers=2, save_interval=0, checkpoint_dir=str(tmp_path / str(number))
        )
        orchestrator = Orchestrator(config)
        orchestrator.register_model(make())
        losses.append(orchestrator.start_training(batches, 1, loss_fn=loss_fn).losses)
    with pytest.raises(gt.errors.InvalidUse, match="the model's output has no loss"):
        orchestrator.start_training(named, 1)
    assert len(losses[0]) == 2
    assert losses[1:] == losses[:1] * 4


def test_an_optimizer_of_the_users_own_goes_on_with_the_moved_parameters(tmp_path):
    batches = guava_models.points(4, 6)
    ours, theirs = two_copies(torch, guava_models.classifier)
    optimizer = torch.optim.SGD(ours.parameters(), lr=0.1, momentum=0.9)
    config = DistributedConfig(num_workers=2, save_interval=0, checkpoint_dir=str(tmp_path))
    orchestrator = Orchestrator(config)
    orchestrator.register_model(ours)
    first = orchestrator.start_training(batches, 1, optimizer=optimizer).losses
    second = orchestrator.start_training(batches, 1).losses  # the same model and optimizer
    expected, optimizer = [], torch.optim.SGD(theirs.parameters(), lr=0.1, momentum=0.9)
    for start in (0, 2, 0, 2):
        x, y = (
            torch.cat([torch.from_numpy(b[p]) for b in batches[start : start + 2]]) for p in (0, 1)
        )
        loss = torch.nn.functional.cross_entropy(theirs(x), y)
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(theirs.parameters(), 1.0)
        optimizer.step()
        expected.append(loss.item())
    assert first + second == pytest.approx(expected, rel=1e-5)


def test_mixed_precision_and_recomputation_need_no_change_of_the_model(tmp_path):
    batches = guava_models.tokens(4, 4)

    class Watched(gt.nn.Linear):
        dtypes: ClassVar[set] = set()

        def forward(self, x):
            y = super().forward(x)
            self.dtypes.add(str(y.dtype))
            return y

    gt.manual_seed(0)
    model = gt.nn.Sequential(gt.nn.Embedding(24, 16), Watched(16, 24))
    metrics = trained(model, batches, 2, tmp_path, use_amp=True)
    assert Watched.dtypes == {"gt.bfloat16"}
    assert {one.dtype for one in model.parameters()} == {gt.float32}
    assert metrics.losses[-1] < metrics.losses[0]


class Large(torch.nn.Module):
    """A model for whose activations there is memory up to so many samples; it counts samples."""

    def __init__(self, most):
        super().__init__()
        self.layers, self.most = guava_models.classifier(torch), most
        self.register_buffer("seen", torch.zeros((), dtype=torch.int64))

    def forward(self, x):
        self.seen += len(x)
        if len(x) > self.most:
            raise gt.errors.OutOfMemoryError(f"no memory for {len(x)} samples")
        return self.layers(x)


def test_a_step_that_does_not_fit_runs_in_parts_or_says_what_helps(tmp_path, capsys):
    batches = guava_models.points(4, 6)
    torch.manual_seed(3)
    ours = Large(4)
    theirs = guava_models.classifier(torch)
    theirs.load_state_dict(ours.layers.state_dict())
    metrics = trained(ours, batches, 2, tmp_path)
    expected = guava_models.plain_losses(theirs, batches, 2, 2)
    assert metrics.losses == pytest.approx(expected, rel=2e-5)
    assert "each micro-batch runs in 4 parts from now" in capsys.readouterr().out
    assert ours.seen.item() == 2 * 4 * 6  # attempts leave no trace
    with pytest.raises(gt.OutOfMemoryError, match=r"batch_size .*use_amp.*gradient_checkpoint"):
        trained(Large(0), batches, 2, tmp_path)


def test_a_run_leaves_the_model_as_a_model_and_the_next_one_has_an_optimizer_of_its_own(tmp_path):
    batches = guava_models.tokens(4, 4)
    settings = {"num_workers": 2, "save_interval": 0, "checkpoint_dir": str(tmp_path)}
    pipeline = DistributedConfig(
        **settings,
        pipeline_parallel=True,
        micro_batches=2,
        gradient_checkpointing=True,
        log_act=True,
    )
    model = guava_models.transformer(torch)
    orchestrator = Orchestrator(pipeline)
    orchestrator.register_model(model)
    orchestrator.start_training(batches, 1)
    for module in model.modules():
        assert not module._forward_hooks
        assert not module._forward_pre_hooks
        assert "forward" not in module.__dict__
    assert not [name for name in gt.get_config() if name.startswith("guava")]
    other = guava_models.transformer(torch)
    theirs = guava_models.transformer(torch)
    theirs.load_state_dict(other.state_dict())
    orchestrator.register_model(other)
    losses = orchestrator.start_training(batches, 1).losses
    expected = guava_models.plain_losses(theirs, batches, 1, 2, lr=3e-4)
    assert losses == pytest.approx(expected, rel=2e-5)
    again = Orchestrator(DistributedConfig(**settings))  # other stages of the same model
    again.register_model(model)
    again.start_training(batches, 1)


def test_activations_of_the_last_steps_stay_with_their_workers_when_asked_for(tmp_path):
    batches = guava_models.points(6, 4)
    first = gt.nn.Linear(8, 32)
    model = gt.nn.Sequential(first, gt.nn.Linear(32, 5))
    kept = {}
    for steps in (0, 2, 256):
        config = DistributedConfig(
            num_workers=2,
            pipeline_parallel=True,
            micro_batches=2,
            learning_rate=0.0,
            weight_decay=0.0,
            save_interval=0,
            checkpoint_dir=str(tmp_path),
            allow_act_reuse=steps > 0,
            act_cache_steps=max(steps, 1),
        )
        orchestrator = Orchestrator(config)
        orchestrator.register_model(model)
        orchestrator.start_training(batches, 2)
        kept[steps] = orchestrator.activations
    assert [len(one) for one in kept.values()] == [0, 2, 6]  # of six steps
    for step, activations in enumerate(kept[2], 1):
        assert len(activations) == 2  # of one boundary, a micro-batch each
        for (points, _), activation in zip(batches[2 * step :], activations, strict=False):
            assert not activation.requires_grad
            np.testing.assert_allclose(
                activation.numpy(), first(gt.tensor(points)).detach().numpy(), rtol=1e-5, atol=1e-6
            )


def test_mistakes_are_told_before_anything_runs(tmp_path):
    config = DistributedConfig(num_workers=2, checkpoint_dir=str(tmp_path))
    with pytest.raises(gt.errors.InvalidValue, match="mode='cluster'"):
        Orchestrator(config, mode="cluster")
    orchestrator = Orchestrator(config)
    with pytest.raises(gt.errors.InvalidType, match=r"expected a torch\.nn\.Module.*got list"):
        orchestrator.register_model([])
    with pytest.raises(gt.errors.InvalidUse, match="call register_model"):
        orchestrator.start_training([])
    orchestrator.register_model(guava_models.classifier(gt))
    with pytest.raises(gt.errors.InvalidValue, match="holds no checkpoint"):
        orchestrator.start_training([], resume=tmp_path / "step_7")
    with pytest.raises(gt.errors.InvalidUse, match="num_workers=3, and this program has a"):
        Orchestrator(DistributedConfig(num_workers=3))
    with pytest.raises(gt.errors.InvalidUse, match="has a session already"):
        Orchestrator(DistributedConfig(num_workers=1, master_port=0), mode="orchestrator")
    assert orchestrator.start_training([], resume="latest").losses == []


# ---- processes ----

WORKER = """
from gt.guava import DistributedConfig, NetworkWorker
NetworkWorker(0, DistributedConfig.from_env()).connect_and_train()
"""
ORCHESTRATOR = """
import sys, gt
from gt.guava import DistributedConfig, Orchestrator
config = DistributedConfig(num_workers=1, master_ip=sys.argv[1], master_port=0)
with Orchestrator(config, mode="orchestrator") as orchestrator:
    print("joined", gt.debug.get_worker_stats()[0]["worker"], flush=True)
    sys.stdin.readline()
    while not gt.debug.get_worker_stats():  # a worker is admitted before sessions hear of it
        pass
    print("there are", gt.ones(3).sum().item(), flush=True)
"""


def started(code, *words, **settings):
    return subprocess.Popen(
        [sys.executable, "-c", code, *words],
        env=os.environ | {"GT_BACKEND": "native", **settings},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def line_with(process, text, stream=None):
    """The next line that has this; those before it are read too."""
    for line in stream or process.stdout:
        if text in line:
            return line
    raise AssertionError(process.stderr.read())


def child_of(process):
    """The worker process that a NetworkWorker has started."""
    with open(f"/proc/{process.pid}/task/{process.pid}/children") as file:  # noqa: PTH123
        return [int(word) for word in file.read().split()]


def test_a_worker_that_is_killed_comes_back_and_ends_with_the_orchestrator():
    orchestrator = started(ORCHESTRATOR, "127.0.0.1")
    processes = [orchestrator]
    try:
        port = re.search(r"127\.0\.0\.1:(\d+)", line_with(orchestrator, "listening on"))[1]
        worker = started(WORKER, MASTER_IP="127.0.0.1", MASTER_PORT=port)
        processes.append(worker)
        line_with(orchestrator, "joined ")
        (first,) = child_of(worker)
        os.kill(first, signal.SIGKILL)
        assert f"ended with status {-signal.SIGKILL}; it starts again" in line_with(
            worker, "status"
        )
        line_with(worker, "has joined", worker.stderr)
        line_with(worker, "has joined", worker.stderr)  # the second one
        printed, errors = orchestrator.communicate("\n", timeout=40)
        assert "there are 3.0" in printed, errors
        assert worker.wait(40) == 0
    finally:
        for process in processes:
            process.kill()
            process.communicate()


def test_a_worker_waits_for_its_orchestrator_and_is_told_why_it_is_refused():
    orchestrator = started(ORCHESTRATOR, "0.0.0.0")
    processes = [orchestrator]
    try:
        first = line_with(orchestrator, "listening on")
        port = re.search(r":(\d+)", first)[1]
        command = line_with(orchestrator, "network_worker")
        token = re.search(r"GT_TOKEN=(\w{32}) python -m", command)[1]
        place = {"MASTER_IP": "127.0.0.1", "MASTER_PORT": port}
        stranger = started(WORKER, **place, GT_TOKEN="wrong-" + token)
        processes.append(stranger)
        _, errors = stranger.communicate(timeout=40)
        assert stranger.returncode == 1
        assert "answers, and the worker cannot start" in errors
        friend = started(WORKER, **place, GT_TOKEN=token)
        processes.append(friend)
        printed, errors = orchestrator.communicate("\n", timeout=40)
        assert "there are 3.0" in printed, errors
        assert friend.wait(40) == 0
    finally:
        for process in processes:
            process.kill()
            process.communicate()


def test_a_worker_waits_for_an_orchestrator_that_is_not_there_yet(monkeypatch, capsys):
    worker = NetworkWorker(config=DistributedConfig(master_port=1))
    answers = iter([False, False, True])
    monkeypatch.setattr(worker, "_answers", lambda: next(answers))
    monkeypatch.setattr("time.sleep", lambda seconds: None)
    worker._wait()
    assert "waiting for the orchestrator at localhost:1" in capsys.readouterr().out
