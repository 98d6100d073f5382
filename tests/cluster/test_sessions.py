"""Named sessions: a client is killed or leaves, another one attaches and finds its values."""

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from cluster import Cluster, first_line, result, until

import gt
from gt.errors import InvalidType, InvalidValue, UnknownName
from gt.tools.sessions import COLUMNS

# Trains and publishes after each step; begins where the session's last client left.
TRAINING = """
from gt import nn, optim

gt.manual_seed(5)
model = nn.Sequential(nn.Linear(6, 8), nn.Dropout(0.3), nn.ReLU(), nn.Linear(8, 1))
optimizer = optim.AdamW(model.parameters(), lr=0.05)
scheduler = optim.lr_scheduler.StepLR(optimizer, 2, gamma=0.5)
first = 0
if "run" in gt.session:
    run = gt.session["run"]
    model.load_state_dict(run["model"])
    optimizer.load_state_dict(run["optimizer"])
    scheduler.load_state_dict(run["scheduler"])
    gt.random.set_rng_state(run["random"])
    first = run["step"]
parts = {"model": model, "optimizer": optimizer, "scheduler": scheduler}
for step in range(first, last):
    x = gt.randn(16, 6)
    optimizer.zero_grad()
    loss = ((model(x) - x.sum(1, keepdim=True)) ** 2).mean()
    loss.backward()
    optimizer.step()
    scheduler.step()
    state = {**parts, "step": step + 1, "random": gt.random.get_rng_state()}
    gt.publish(state, "run")
    print(loss.item().hex(), flush=True)
"""


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with Cluster(2) as running:
        running.wait_for_workers()
        yield running


def named(cluster: Cluster, code: str, session: str = "exp1", options: str = "", **settings: str):
    """A client program that is attached to a session."""
    attached = f"gt.connect({cluster.address!r}, session={session!r}{options})\n{code}"
    return cluster.client(f"gt.disconnect()\n{attached}", **settings)


def tool(*words: str) -> "subprocess.CompletedProcess[str]":
    """A `gt` command."""
    command = [sys.executable, "-m", "gt.tools.cli", *words]
    return subprocess.run(
        command, capture_output=True, text=True, timeout=20, stdin=subprocess.DEVNULL
    )


def sessions(cluster: Cluster) -> list[dict[str, object]]:
    listed = tool("sessions", cluster.address, "--json")
    assert listed.returncode == 0, listed.stderr
    return [json.loads(line) for line in listed.stdout.splitlines()]


def held(cluster: Cluster) -> int:
    """Bytes of values on all workers."""
    code = "from gt import _core\nprint(sum(row['bytes'] for row in _core.worker_stats()))"
    return int(cluster.run(code))


@pytest.mark.parametrize("settings", [{}, {"GT_NO_RING": "1"}], ids=["rings", "tcp"])
def test_a_killed_training_goes_on_to_the_bit(cluster: Cluster, settings: dict[str, str]) -> None:
    killed = named(cluster, f"last = 10**6\n{TRAINING}", **settings)
    begun = [first_line(killed).strip() for _ in range(2)]
    killed.send_signal(signal.SIGKILL)
    begun += killed.stdout.read().split()
    killed.wait()
    until(lambda: all(one["detached_s"] is not None for one in sessions(cluster)), 30)
    reached = len(begun)
    code = f"last = gt.session['run.step'] + 4\n{TRAINING}"
    more = result(named(cluster, code, **settings)).split()
    # The step that was published but not printed may be missing from the first program's output.
    code = f"last = {reached + 5}\n{TRAINING}"
    assert reached > 1
    whole = result(named(cluster, code, "again", **settings)).split()
    assert begun == whole[:reached]
    assert more in (whole[reached : reached + 4], whole[reached + 1 : reached + 5])


def test_random_numbers_go_on_without_a_word(cluster: Cluster) -> None:
    code = "gt.manual_seed(9)\na = gt.randn(3)\ngt.publish(a, 'a')\nprint(gt.randn(3).tolist())"
    expected = result(named(cluster, code))
    until(lambda: sessions(cluster)[0]["detached_s"] is not None)
    assert result(named(cluster, "print(gt.randn(3).tolist())")) == expected


def test_tensors_come_back_as_leaves_with_gradients(cluster: Cluster) -> None:
    code = """
x = gt.tensor([1.0, 2.0], requires_grad=True)
y = x * x
y.sum().backward()
gt.publish({"x": x, "y": y, "list": [1, (2.5, None)], "inf": float("inf"), 3: "three"}, "all")
gt.session["b"] = gt.arange(3).to(gt.bfloat16)
"""
    result(named(cluster, code))
    code = """
got = gt.session["all"]
print([got["x"].grad.tolist(), got["x"].requires_grad, got["y"].requires_grad])
print([got["list"], got["inf"], got[3], str(gt.session["b"].dtype), list(gt.session)])
(got["x"] * 3).sum().backward()
print(got["x"].grad.tolist(), gt.session["all.y"].tolist())
"""
    printed = result(named(cluster, code)).splitlines()
    assert printed == [
        "[[2.0, 4.0], True, False]",
        "[[1, (2.5, None)], inf, 'three', 'gt.bfloat16', ['all', 'b']]",
        "[5.0, 7.0] [1.0, 4.0]",
    ]


def test_everything_unpublished_is_freed_and_the_lease_frees_the_rest(cluster: Cluster) -> None:
    code = """
w, v = gt.ones(1000), gt.ones(100000)
gt.publish(w, "w")
gt.synchronize()
print("in", flush=True)
input()
"""
    client = named(cluster, code, options=", lease=3")
    assert first_line(client) == "in\n"
    assert held(cluster) >= 404_000
    client.kill()
    client.wait()
    until(lambda: held(cluster) < 10_000)
    assert sessions(cluster)[0]["bytes"] >= 4000
    until(lambda: sessions(cluster) == [])
    until(lambda: held(cluster) == 0)
    assert "no client within its lease" in cluster.log


def test_a_lease_of_zero_ends_with_its_program(cluster: Cluster) -> None:
    result(named(cluster, "gt.publish(gt.ones(3), 'w')", options=", lease=0"))
    until(lambda: sessions(cluster) == [])
    assert result(named(cluster, "print(len(gt.session))")) == "0\n"


def test_a_session_has_one_client(cluster: Cluster) -> None:
    client = named(cluster, "gt.publish(gt.ones(3), 'w')\nprint('in', flush=True)\ninput()")
    assert first_line(client) == "in\n"
    second = named(cluster, "")
    _, errors = second.communicate(timeout=20)
    assert second.returncode != 0
    assert 'session "exp1" has a client already' in errors
    assert "gt detach exp1" in errors
    taken = tool("detach", "exp1", cluster.address)
    assert (taken.stdout, taken.returncode) == ("session exp1 is detached\n", 0)
    until(lambda: sessions(cluster)[0]["detached_s"] is not None)
    assert result(named(cluster, "print(gt.session['w'].tolist())")) == "[1.0, 1.0, 1.0]\n"
    client.communicate("\n", timeout=20)


def test_commands(cluster: Cluster) -> None:
    empty = tool("sessions", cluster.address)
    assert "no session has a name" in empty.stdout
    result(named(cluster, "gt.publish(gt.ones(3), 'w')"))
    until(lambda: sessions(cluster)[0]["detached_s"] is not None)
    head, line = tool("sessions", cluster.address).stdout.splitlines()
    assert head.split() == list(COLUMNS)
    assert line.startswith("exp1     -     detached")
    assert 500 < sessions(cluster)[0]["lease_left_s"] <= 600
    attached = tool("attach", "exp1", cluster.address)
    assert (attached.stdout, attached.returncode) == ("w  12 bytes\n", 0)
    wrong = tool("attach", "exp2", cluster.address)
    assert wrong.returncode == 1
    assert "there is no session 'exp2'" in wrong.stderr
    assert "there are exp1" in wrong.stderr
    assert [one["session"] for one in sessions(cluster)] == ["exp1"]
    until(lambda: sessions(cluster)[0]["detached_s"] is not None)
    refused = tool("detach", "exp1", cluster.address)
    assert refused.stderr == 'gt: session "exp1" has no client\n'
    ended = tool("kill", "exp1", cluster.address)
    assert (ended.stdout, ended.returncode) == ("session exp1 is ended\n", 0)
    assert tool("kill", "exp1", cluster.address).returncode == 1
    until(lambda: held(cluster) == 0)


def test_kill_ends_the_client_too(cluster: Cluster) -> None:
    code = "w = gt.ones(3)\ngt.publish(w, 'w')\nprint('in', flush=True)\ninput()\nprint(w.tolist())"
    client = named(cluster, code)
    assert first_line(client) == "in\n"
    assert tool("kill", "exp1", cluster.address).returncode == 0
    until(lambda: sessions(cluster) == [])
    _, errors = client.communicate("\n", timeout=20)
    assert client.returncode != 0
    assert "session exp1 was ended" in errors


def test_a_session_belongs_to_its_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tokens = tmp_path / "tokens"
    tokens.write_text("ada key_of_ada\nbob key_of_bob\n")
    with Cluster(0, arguments=("--token-file", str(tokens))) as cluster:
        code = "gt.publish(gt.ones(3), 'w')\nprint('in')"
        monkeypatch.setenv("GT_TOKEN", "key_of_ada")
        cluster.add_worker()
        cluster.wait_for_workers("ada")
        result(named(cluster, code))
        other = named(cluster, code, GT_TOKEN="key_of_bob")
        _, errors = other.communicate(timeout=20)
        assert 'session "exp1" belongs to another user' in errors
        assert result(named(cluster, code, "exp2", GT_TOKEN="key_of_bob")) == "in\n"


def test_an_embedded_session_publishes_too() -> None:
    x = gt.tensor([1.0, 2.0])
    gt.publish(x, "kept")
    x += 1
    assert gt.session["kept"].tolist() == [1.0, 2.0]
    gt.publish(x, "kept")
    assert gt.session["kept"].tolist() == [2.0, 3.0]
    assert "kept" in gt.session
    assert "lost" not in gt.session
    with pytest.raises(UnknownName, match=r"nothing is published as 'lost'.*'kept'"):
        gt.session["lost"]
    with pytest.raises(KeyError):
        del gt.session["lost"]
    del gt.session["kept"]
    assert "kept" not in gt.session


def test_a_module_comes_back_by_its_paths() -> None:
    theirs = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.BatchNorm1d(2))
    ours = gt.nn.Sequential(gt.nn.Linear(3, 2), gt.nn.BatchNorm1d(2))
    state = {name: gt.from_numpy(one.numpy()) for name, one in theirs.state_dict().items()}
    ours.load_state_dict(state)
    gt.publish(ours, "model")
    other = gt.nn.Sequential(gt.nn.Linear(3, 2), gt.nn.BatchNorm1d(2))
    other.load_state_dict(gt.session["model"])
    x = np.arange(12, dtype=np.float32).reshape(4, 3)
    expected = theirs.eval()(torch.from_numpy(x)).detach().numpy()
    np.testing.assert_allclose(other.eval()(gt.from_numpy(x)).detach().numpy(), expected, rtol=1e-5)
    weight = gt.session["model.0.weight"]
    assert weight.requires_grad
    np.testing.assert_array_equal(weight.detach().numpy(), theirs[0].weight.detach().numpy())
    gt.unpublish("model")
    gt.publish({"model": ours, "a.b": {"c": 5, 7: [1]}}, "run")
    assert gt.session["run.model.0.weight"].shape == (2, 3)
    assert gt.session["run.a.b.c"] == 5
    assert gt.session["run.a.b.7"] == [1]
    assert "run.model.0.none" not in gt.session
    assert "run.a.b.c.d" not in gt.session
    gt.unpublish("run")


@pytest.mark.parametrize(
    ("value", "name", "error", "text"),
    [
        (1, "", InvalidValue, "is no name"),
        (1, "a\nb", InvalidValue, "is no name"),
        (1, "a\x7f", InvalidValue, "is no name"),
        (1, "a\x85", InvalidValue, "is no name"),
        (1, "a" * 129, InvalidValue, "1 to 128 bytes"),
        (1, "x" * 129, InvalidValue, "128 bytes"),
        (1, 3, InvalidType, "a name is a string"),
        ({"a": {"b": object()}}, "w", InvalidType, "a.b is a object"),
        ({(1,): 2}, "w", InvalidType, "keys are strings and integers"),
    ],
)
def test_what_cannot_be_published(
    value: object, name: str, error: type[Exception], text: str
) -> None:
    with pytest.raises(error, match=text):
        gt.publish(value, name)


def test_bad_leases() -> None:
    for options, text in [({}, "give session=NAME"), ({"session": "a"}, "0 to 604800 seconds")]:
        with pytest.raises(InvalidValue, match=text):
            gt.connect("localhost:1", lease=-1, **options)
    with pytest.raises(gt.ConnectionLost):
        gt.connect("localhost:1", lease=5, session="a")


def test_a_client_waits_for_its_workers(cluster: Cluster) -> None:
    code = "gt.disconnect()\ngt.connect({!r}, workers={}, wait={})\n"
    _, errors = cluster.client(code.format(cluster.address, 3, 0.1)).communicate(timeout=40)
    assert "2 of 3 workers have joined" in errors
    assert cluster.run(code.format(cluster.address, 2, 20) + "print('both')") == "both\n"
