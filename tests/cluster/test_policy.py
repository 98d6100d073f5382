"""Users of one dispatcher under a policy: memory quotas, weights, numbers of sessions, usage."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from cluster import Cluster, first_line, result, until

import gt
from gt.tools import usage

# Products of identity matrices, so that the result is exact.
POURING = """
x = gt.eye(600)
for _ in range(200):
    x = x @ gt.eye(600)
print(x.max().item())
"""
MIB = 1 << 20
ROWS = MIB // 4  # a row of f32 of this length is a MiB


class Shared:
    """A cluster of users with tokens, under a policy that a test may change."""

    def __init__(self, folder: Path, policy: str, workers: int = 1) -> None:
        self.policy = folder / "policy.yaml"
        self.policy.write_text(policy, encoding="utf-8")
        tokens = folder / "tokens"
        tokens.write_text("".join(f"{user} key-of-{user}\n" for user in ("ada", "bob", "host")))
        words = ("--token-file", str(tokens), "--policy", str(self.policy))
        self.cluster = Cluster(workers, arguments=words)

    def client(self, user: str, code: str) -> "subprocess.Popen[str]":
        return self.cluster.client(code, GT_TOKEN=f"key-of-{user}")

    def run(self, user: str, code: str) -> str:
        return result(self.client(user, code))

    def change(self, policy: str) -> None:
        """Another policy; returns when the dispatcher has taken or refused it."""
        before = self.cluster.log.count("policy")
        following = self.policy.with_suffix(".next")
        following.write_text(policy, encoding="utf-8")
        following.replace(self.policy)
        until(lambda: self.cluster.log.count("policy") > before)

    def usage(self, user: str, monkeypatch: pytest.MonkeyPatch) -> dict[str, dict[str, object]]:
        """The rows of `gt usage` as this user sees them, by user."""
        monkeypatch.setenv("GT_TOKEN", f"key-of-{user}")
        command = [sys.executable, "-m", "gt.tools.cli", "usage", self.cluster.address, "--json"]
        shown = subprocess.run(command, capture_output=True, text=True, check=False)
        assert shown.returncode == 0, shown.stderr
        rows = [json.loads(line) for line in shown.stdout.splitlines()]
        assert rows[0]["user"] == user
        return {row["user"]: row for row in rows}


@pytest.fixture
def shared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Shared]:
    """Ada may hold 10 MiB, bob anything, each two sessions at once."""
    monkeypatch.setenv("GT_TOKEN", "key-of-host")
    policy = "default: {sessions: 2}\nusers:\n  ada: {memory: 10 MiB}\n"
    running = Shared(tmp_path, policy)
    with running.cluster:
        running.cluster.wait_for_workers("host")
        yield running


def test_over_quota_names_user_holders_operation_and_line(shared: Shared) -> None:
    code = f"""
kept = gt.ones(6, {ROWS})
try:
    big = kept + 1
    print(big.sum().item())
except gt.OutOfMemoryError as error:
    print(error)
del big
print((kept[0] * 2).sum().item())
"""
    text, number = shared.run("ada", code).rsplit("\n", 2)[:2]
    for words in ("user ada", "quota of 10.0 MiB", "6.0 MiB", "this session", "needs 6.0 MiB more"):
        assert words in text, text
    assert "in `add`, called at <string>:6" in text
    assert float(number) == 2.0 * ROWS


def test_a_step_is_halved_until_it_fits(shared: Shared) -> None:
    code = f"""
batch = 256
while True:
    try:
        x = gt.ones(batch, {ROWS // 16})
        loss = (x * 2).sum()
        gt.synchronize()
        break
    except gt.OutOfMemoryError:
        x = loss = None
        batch //= 2
print(batch, loss.item())
"""
    batch, loss = shared.run("ada", code).split()
    # 10 MiB hold neither 256 rows of 64 KiB, nor twice 128 of them.
    assert (int(batch), float(loss)) == (64, 64.0 * ROWS // 16 * 2)


def test_others_notice_nothing_and_sessions_of_a_user_share_the_quota(shared: Shared) -> None:
    holding = f"kept = gt.ones(8, {ROWS})\nkept.sum().item()\nprint('held', flush=True)\ninput()"
    first = shared.client("ada", holding)
    first_line(first)
    code = f"""
try:
    print(gt.ones(4, {ROWS}).sum().item())
except gt.OutOfMemoryError as error:
    print("8.0 MiB" in str(error) and "needs 4.0 MiB" in str(error))
"""
    assert shared.run("ada", code) == "True\n"
    assert float(shared.run("bob", code)) == 4.0 * ROWS
    first.communicate("\n")
    until(lambda: shared.run("ada", code) == f"{4.0 * ROWS}\n")


def test_an_upload_over_the_quota_fails_too(shared: Shared) -> None:
    code = f"""
import numpy as np
try:
    gt.from_numpy(np.ones((12, {ROWS}), dtype=np.float32)).sum().item()
except gt.OutOfMemoryError as error:
    print("needs 12.0 MiB" in str(error))
print(gt.ones(3).sum().item())
"""
    assert shared.run("ada", code) == "True\n3.0\n"


def test_a_changed_policy_is_taken_and_a_broken_one_is_not(shared: Shared) -> None:
    code = f"print(gt.ones(12, {ROWS}).sum().item())"
    assert "OutOfMemoryError" in failed(shared.client("ada", code))
    shared.change("users:\n  ada: {memory: 20 MiB}\n")
    assert float(shared.run("ada", code)) == 12.0 * ROWS
    shared.change("users:\n  ada: {memroy: 10 MiB}\n")
    line = f'{shared.policy}:2: unknown key "memroy"; did you mean memory?'
    assert line in shared.cluster.log
    assert float(shared.run("ada", code)) == 12.0 * ROWS


def failed(client: "subprocess.Popen[str]") -> str:
    """The error output of a client program, which must have failed."""
    _, errors = client.communicate(timeout=20)
    assert client.returncode != 0
    return errors


def test_a_session_too_many_is_refused(shared: Shared) -> None:
    waiting = "gt.ones(1).sum().item()\nprint('here', flush=True)\ninput()"
    clients = [shared.client("bob", waiting) for _ in range(2)]
    for client in clients:
        first_line(client)
    errors = failed(shared.client("bob", waiting))
    assert "allows 2 sessions of user bob at once, and 2 are open" in errors
    assert shared.run("ada", "print(gt.ones(1).item())") == "1.0\n"
    clients[0].communicate("\n")
    # The dispatcher may learn of the end a moment later.
    until(lambda: shared.client("bob", "gt.ones(1).item()").wait() == 0)


def test_to_attach_to_a_session_that_waits_is_no_session_more(
    shared: Shared, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared.change("users:\n  bob: {sessions: 1, memory: 10 MiB}\n")
    monkeypatch.setenv("GT_TOKEN", "key-of-bob")

    def attached(name: str, code: str) -> "subprocess.CompletedProcess[str]":
        code = f"import gt\ngt.connect({shared.cluster.address!r}, session={name!r})\n{code}"
        command = [sys.executable, "-c", code]
        return subprocess.run(command, capture_output=True, text=True, check=False, timeout=20)

    kept = f"gt.publish(gt.ones(8, {ROWS}), 'x')"
    assert attached("exp1", kept).returncode == 0
    until(lambda: "is detached" in shared.cluster.log)
    more = attached("exp2", "")
    assert more.returncode != 0
    assert "allows 1 sessions of user bob at once" in more.stderr
    # The published value counts, and the error calls the session by its name.
    full = attached("exp1", f"gt.ones(4, {ROWS}).sum().item()")
    assert 'this session, "exp1", 8.0 MiB' in full.stderr


def test_both_of_two_users_with_weights_get_on(shared: Shared) -> None:
    shared.change("users:\n  ada: {weight: 1}\n  bob: {weight: 3}\n")
    code = """
x = gt.ones(500, 500)
for _ in range(40):
    x = (x @ x) * 0.002
print(x[0, 0].item(), flush=True)
"""
    clients = [shared.client(user, code) for user in ("ada", "bob")]
    assert [float(result(client)) for client in clients] == [pytest.approx(1.0, rel=1e-3)] * 2


def test_usage_by_user(shared: Shared, monkeypatch: pytest.MonkeyPatch) -> None:
    code = f"""
kept = gt.ones(4, {ROWS})
x = gt.ones(300, 300)
for _ in range(50):
    x = (x @ x) / 300
x.sum().item()
print('held', flush=True)
input()
"""
    client = shared.client("ada", code)
    first_line(client)
    rows = shared.usage("bob", monkeypatch)
    assert rows["ada"]["bytes"] >= 4 * MIB
    assert rows["ada"]["quota"] == 10 * MIB
    assert (rows["ada"]["sessions"], rows["ada"]["weight"]) == (1, 1.0)
    assert rows["ada"]["device_seconds"] > 0
    assert (rows["bob"]["sessions"], rows["bob"]["device_seconds"]) == (1, 0)
    until(lambda: shared.usage("bob", monkeypatch)["ada"]["byte_hours"] > 0)
    client.communicate("\n")
    until(lambda: shared.usage("bob", monkeypatch)["ada"]["sessions"] == 0)
    rows = shared.usage("bob", monkeypatch)
    assert rows["ada"]["bytes"] == 0
    assert rows["ada"]["device_seconds"] > 0


def test_usage_is_a_table(shared: Shared, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GT_TOKEN", "key-of-ada")
    command = [sys.executable, "-m", "gt.tools.cli", "usage", shared.cluster.address]
    shown = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    head, *rows = shown.splitlines()
    assert head.split() == list(usage.COLUMNS)
    assert rows[0].split()[:2] == ["ada", "1"]


@pytest.mark.parametrize(
    ("policy", "words"),
    [
        ("users: {ada: {wieght: 3}}\n", ':1: unknown key "wieght"; did you mean weight?'),
        ("default:\n  memory: much\n", ':2: memory: "much" is not a size'),
        (None, "cannot read the policy"),
    ],
)
def test_a_dispatcher_does_not_start_with_a_broken_policy(
    tmp_path: Path, policy: str | None, words: str
) -> None:
    path = tmp_path / "policy.yaml"
    if policy is not None:
        path.write_text(policy)
    command = [sys.executable, "-m", "gt.server", "-p", "0", "--policy", str(path)]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, timeout=20)
    assert ended.returncode == 1
    assert words in ended.stderr


def test_users_whom_no_token_names_are_warned_of(tmp_path: Path) -> None:
    tokens, policy = tmp_path / "tokens", tmp_path / "policy.yaml"
    tokens.write_text("alice key\n")
    policy.write_text("users:\n  alise: {weight: 2}\n")
    words = ("--token-file", str(tokens), "--policy", str(policy))
    with Cluster(0, arguments=words) as cluster:
        assert 'no user "alise"; did you mean alice?' in cluster.log
    with Cluster(0, arguments=("--policy", str(policy))) as cluster:
        assert "without --token-file all clients are one user" in cluster.log
        assert gt.__version__


def test_the_schema_and_the_dispatcher_know_the_same_keys() -> None:
    path = Path(__file__).parents[2] / "docs" / "policy.schema.json"
    schema = json.loads(path.read_text(encoding="utf-8"))
    assert schema["additionalProperties"] is False
    assert set(schema["properties"]) == {"default", "users"}
    user = schema["$defs"]["user"]
    assert user["additionalProperties"] is False
    keys = {"weight", "priority", "memory", "session_memory", "sessions", "named"}
    assert set(user["properties"]) == keys
    session = schema["$defs"]["session"]
    assert session["additionalProperties"] is False
    assert set(session["properties"]) == {"priority", "memory"}
    assert schema["$defs"]["priority"]["enum"] == ["low", "normal", "high"]


def test_a_session_has_a_quota_of_its_own(shared: Shared) -> None:
    shared.change("users: {ada: {session_memory: 4 MiB, named: {big: {memory: 8 MiB}}}}\n")
    code = f"""
kept = gt.ones(3, {ROWS})
try:
    print((kept + 1).sum().item())
except gt.OutOfMemoryError as error:
    print(error)
"""
    text = shared.run("ada", code)
    assert "has a quota of 4.0 MiB, holds 3.0 MiB and needs 3.0 MiB more" in text
    assert "in `add`, called at <string>:6" in text
    attached = f"gt.disconnect()\ngt.connect({shared.cluster.address!r}, session='big')\n"
    assert float(shared.run("ada", attached + code)) == 6.0 * ROWS
    more = attached + code.replace("ones(3,", "ones(5,")
    assert 'session "big" has a quota of 8.0 MiB, holds 5.0 MiB' in shared.run("ada", more)
    assert float(shared.run("bob", code)) == 6.0 * ROWS


def test_a_policy_with_priorities_is_taken_and_a_wrong_one_names_the_words(shared: Shared) -> None:
    shared.change("users: {ada: {priority: high}, bob: {priority: low}}\n")
    slow = shared.client("bob", "x = gt.ones(600, 600)\nprint('in', flush=True)\n" + POURING)
    assert first_line(slow) == "in\n"
    assert (
        float(shared.run("ada", "print((gt.ones(300, 300) @ gt.ones(300, 300)).mean().item())"))
        == 300
    )
    assert result(slow) == "1.0\n"
    shared.change("users: {ada: {priority: urgent}}\n")
    assert 'priority: "urgent" is not low, normal or high' in shared.cluster.log
