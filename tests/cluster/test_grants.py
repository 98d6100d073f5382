"""Published values that another session reads: by whom, until when, whose they are."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from cluster import Cluster, first_line, result, until

import gt as here
from gt.errors import InvalidType, InvalidValue, UnknownName

ROWS = 1 << 18  # a row of f32 of this length is a MiB
USERS = ("ada", "bob", "carol", "host")
PUBLISHES = """
w = gt.tensor([1.0, 2.0], requires_grad=True)
(w * w).sum().backward()
gt.publish({"w": w, "step": 1}, "run")
"""
WAITS = "print('in', flush=True)\ninput()\n"


class Shared:
    """A cluster of users with tokens; a session is `train` of ada."""

    def __init__(self, folder: Path, *words: str) -> None:
        tokens = folder / "tokens"
        tokens.write_text("".join(f"{user} key-of-{user}\n" for user in USERS))
        self.cluster = Cluster(2, arguments=("--token-file", str(tokens), *words))

    def client(self, user: str, code: str, session: str | None = None) -> "subprocess.Popen[str]":
        named = f"gt.disconnect()\ngt.connect({self.cluster.address!r}, session={session!r})\n"
        return self.cluster.client((named if session else "") + code, GT_TOKEN=f"key-of-{user}")

    def train(self, code: str) -> "subprocess.Popen[str]":
        """A session of ada at work, which waits once."""
        client = self.client("ada", code, "train")
        assert first_line(client) == "in\n"
        return client

    def usage(self, user: str) -> int:
        """Bytes that a user holds."""
        command = [sys.executable, "-m", "gt.tools.cli", "usage", self.cluster.address, "--json"]
        shown = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        rows = {row["user"]: row for row in map(json.loads, shown.splitlines())}
        return rows[user]["bytes"]


@pytest.fixture
def shared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Shared]:
    monkeypatch.setenv("GT_TOKEN", "key-of-host")
    running = Shared(tmp_path)
    with running.cluster:
        running.cluster.wait_for_workers("host")
        yield running


READS = """
run = gt.session("train")["run"]
w = run["w"]
print(w.tolist(), w.grad.tolist(), w.requires_grad, run["step"], gt.session("train")["run.step"])
print(list(gt.session("train")), "run" in gt.session("train"), "v" in gt.session("train"))
print((w * 2).tolist(), w.clone().detach().add_(1).tolist())
(w * 3).sum().backward()
print(w.grad.tolist())
"""


def test_a_granted_value_is_read_and_computed_with(shared: Shared) -> None:
    ada = shared.train(PUBLISHES + "gt.grant('run', 'bob')\n" + WAITS)
    printed = result(shared.client("bob", READS)).splitlines()
    assert printed == [
        "[1.0, 2.0] [2.0, 4.0] True 1 1",
        "['run'] True False",
        "[2.0, 4.0] [2.0, 3.0]",
        "[5.0, 7.0]",
    ]
    result_of = ada.communicate("\n", timeout=20)
    assert ada.returncode == 0, result_of


WRITES = [
    "w.add_(1)",
    "w[0] = 5",
    "w.data.fill_(3)",
    "w.view(2)[0:1].zero_()",
    "w.copy_(gt.zeros(2))",
    "optimizer = gt.optim.SGD([w], lr=0.5); optimizer.step()",
    "optimizer = gt.optim.AdamW([w], lr=0.5); optimizer.step()",
    "gt.nn.init.zeros_(w)",
]


def test_nothing_writes_to_it(shared: Shared) -> None:
    ada = shared.train(
        PUBLISHES + "gt.grant('run')\n" + WAITS + "print(w.tolist(), gt.session['run.w'].tolist())"
    )
    code = """
for line in LINES:
    w = gt.session("train")["run.w"]
    try:
        with gt.no_grad():
            exec(line)
    except RuntimeError as error:
        print("read-only" in str(error) and "train" in str(error), w.tolist())
    else:
        print(line, w.tolist())
"""
    printed = result(shared.client("bob", f"LINES = {WRITES!r}\n{code}"))
    assert printed.splitlines() == ["True [1.0, 2.0]"] * len(WRITES)
    printed, _ = ada.communicate("\n", timeout=20)
    assert printed == "[1.0, 2.0] [1.0, 2.0]\n"


REFUSED = """
try:
    gt.session({session!r})[{name!r}]
except KeyError as error:
    print(error.args[0])
"""


def test_errors_say_who_holds_what(shared: Shared) -> None:
    ada = shared.train(
        PUBLISHES + "gt.grant('run', 'bob')\n" + WAITS + "gt.revoke('run', 'bob')\n" + WAITS
    )
    other = REFUSED.format(session="train", name="run")
    assert result(shared.client("carol", other)) == (
        'session "train" of user ada grants no "run" to user carol: it grants nothing; '
        'gt.grant("run", "carol") there changes that\n'
    )
    missing = REFUSED.format(session="train", name="v")
    assert 'grants no "v" to user bob: it grants "run"' in result(shared.client("bob", missing))
    unknown = REFUSED.format(session="trian", name="run")
    assert result(shared.client("bob", unknown)) == (
        'there is no session "trian"; sessions that grant something to user bob: "train"\n'
    )
    ada.stdin.write("\n")
    ada.stdin.flush()
    assert first_line(ada) == "in\n"
    assert "it grants nothing" in result(shared.client("bob", other))
    ada.communicate("\n", timeout=20)


def test_wrong_grants(shared: Shared) -> None:
    code = """
gt.publish(gt.ones(3), "w")
for words in [("v", "bob"), ("w",)]:
    for call in (gt.grant, gt.revoke):
        try:
            call(*words)
            print("done")
        except (KeyError, ValueError) as error:
            print(type(error).__name__, error.args[0])
"""
    lines = result(shared.client("ada", code, "train")).splitlines()
    assert lines == [
        "UnknownName nothing is published as 'v'; the session holds 'w'",
        "UnknownName nothing is published as 'v'; the session holds 'w'",
        "done",
        "done",
    ]
    lines = result(shared.client("ada", code)).splitlines()
    assert "InvalidValue gt.grant: this session has no name" in lines[2]


def test_it_is_one_moments_while_the_owner_publishes_on(shared: Shared) -> None:
    code = """
parts = [gt.zeros(50) for _ in range(20)]
gt.publish([0, *parts], "parts")
gt.grant("parts", "bob")
print("in", flush=True)
for step in range(1, 300):
    parts = [part + 1 for part in parts]
    gt.publish([step, *parts], "parts")
print("done", flush=True)
input()
"""
    ada = shared.train(code)
    reads = """
seen = set()
for _ in range(40):
    step, *parts = gt.session("train")["parts"]
    values = {value for part in parts for value in part.tolist()}
    assert values == {step}, (step, values)
    seen.add(step)
print(len(seen) > 0)
"""
    assert result(shared.client("bob", reads)) == "True\n"
    assert first_line(ada) == "done\n"
    ada.communicate("\n", timeout=20)


def test_it_is_the_owners_and_freed_when_both_let_go(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GT_TOKEN", "key-of-host")
    policy = tmp_path / "policy.yaml"
    policy.write_text("users: {ada: {memory: 10 MiB}, bob: {memory: 1 MiB}}\n")
    shared = Shared(tmp_path, "--policy", str(policy))
    with shared.cluster as cluster:
        cluster.wait_for_workers("host")
        ada = shared.train(
            f"gt.publish(gt.ones(6, {ROWS}), 'w')\ngt.grant('w', 'bob')\n{WAITS}"
            f"gt.unpublish('w')\ngt.synchronize()\n{WAITS}"
            "try:\n"
            f"    gt.ones(6, {ROWS}).sum().item()\n"
            "except gt.OutOfMemoryError as error:\n"
            "    print(str(error).splitlines()[0], flush=True)\n"
            "input()\n"
            f"print(gt.ones(6, {ROWS}).sum().item())\n"
        )
        bob = shared.client("bob", f"w = gt.session('train')['w']\n{WAITS}print(w.sum().item())\n")
        assert first_line(bob) == "in\n"
        ada.stdin.write("\n")
        ada.stdin.flush()
        assert first_line(ada) == "in\n"
        until(lambda: shared.usage("ada") // (1 << 20) == 6)
        assert shared.usage("bob") == 0
        ada.stdin.write("\n")
        ada.stdin.flush()
        line = first_line(ada)
        assert "user ada has a quota of 10.0 MiB, holds 6.0 MiB" in line
        assert "6.0 MiB of it borrowed by sessions that still hold it" in line
        assert bob.communicate("\n", timeout=20)[0] == f"{6.0 * ROWS}\n"
        until(lambda: shared.usage("ada") == 0)
        assert ada.communicate("\n", timeout=20)[0] == f"{6.0 * ROWS}\n"


def test_a_borrowed_value_outlives_its_owners_client(shared: Shared) -> None:
    ada = shared.train(PUBLISHES + "gt.grant('run', 'bob')\n" + WAITS)
    bob = shared.client(
        "bob", "w = gt.session('train')['run.w']\n" + WAITS + "print((w * 2).tolist())\n" + READS
    )
    assert first_line(bob) == "in\n"
    ada.kill()
    ada.wait()
    until(lambda: "is detached" in shared.cluster.log)
    printed, errors = bob.communicate("\n", timeout=20)
    assert printed.splitlines()[0] == "[2.0, 4.0]", errors
    assert printed.splitlines()[1].startswith("[1.0, 2.0]")


def test_a_failed_value_names_its_session(shared: Shared) -> None:
    code = """
bad = gt.index_select(gt.ones(3), 0, gt.tensor([7]))
gt.publish(bad, "bad")
gt.grant("bad", "bob")
"""
    ada = shared.client("ada", code + WAITS, "train")
    assert first_line(ada) == "in\n"
    reads = """
try:
    (gt.session("train")["bad"] + 1).tolist()
except gt.Error as error:
    print(str(error).splitlines()[0])
print(gt.ones(2).tolist())
"""
    lines = result(shared.client("bob", reads)).splitlines()
    assert 'in session "train", which lends it' in lines[0]
    assert lines[1] == "[1.0, 1.0]"
    ada.communicate("\n", timeout=20)


def test_without_users_a_grant_is_for_all(tmp_path: Path) -> None:
    with Cluster(1) as cluster:
        cluster.wait_for_workers()
        named = f"gt.disconnect()\ngt.connect({cluster.address!r}, session='train')\n"
        code = """
gt.publish(gt.ones(3), "w")
try:
    gt.grant("w", "bob")
except ValueError as error:
    print(error, flush=True)
"""
        owner = cluster.client(named + code + "input()\ngt.grant('w')\n" + WAITS)
        assert "this dispatcher knows no users" in first_line(owner)
        reads = "print(gt.session('train')['w'].tolist())"
        refused = cluster.client(reads)
        assert 'session "train" grants no "w" to other sessions' in refused.communicate()[1]
        owner.stdin.write("\n")
        owner.stdin.flush()
        assert first_line(owner) == "in\n"
        assert cluster.run(reads) == "[1.0, 1.0, 1.0]\n"
        owner.communicate("\n", timeout=20)


def test_an_embedded_session_grants_nothing() -> None:
    here.publish(here.ones(2), "granted")
    with pytest.raises(InvalidValue, match="this session has no name"):
        here.grant("granted", "bob")
    with pytest.raises(UnknownName, match="there is no session"):
        here.session("train")["w"]
    with pytest.raises(InvalidType, match="a name is a string"):
        here.session(3)
    with pytest.raises(InvalidType, match="a user is a string"):
        here.grant("granted", 3)
    del here.session["granted"]
