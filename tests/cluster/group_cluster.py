"""Members of process groups as processes; this one carries their payloads. See group_member.py."""

import json
import subprocess
import sys
from pathlib import Path

import torch

MEMBER = Path(__file__).with_name("group_member.py")


class Failed(Exception):
    """A member's error in place of an answer."""


class Member:
    def __init__(self, library):
        self.process = subprocess.Popen(
            [sys.executable, str(MEMBER), library],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def tell(self, do, **command):
        self.process.stdin.write(json.dumps({"do": do, **command}) + "\n")
        self.process.stdin.flush()

    def answer(self):
        answer = json.loads(self.process.stdout.readline())
        if "error" in answer:
            raise Failed(answer["error"])
        return answer

    def ask(self, do, **command):
        self.tell(do, **command)
        return self.answer()

    def end(self):
        self.process.stdin.close()
        self.process.stdout.close()
        try:
            self.process.wait(timeout=20)
        finally:
            self.process.kill()


class Cluster:
    """Members by index; this process carries their payloads."""

    def __init__(self, count, library="gloo"):
        self.members = [Member(library) for _ in range(count)]
        self.calls = 0

    def prepare(self, group, op, parts, skip=()):
        """Every member's part of a call, in the group's order; returns call and payloads."""
        self.calls += 1
        payloads = []
        for place, worker in enumerate(group):
            if place not in skip:
                part = {"members": group, "place": place, "op": op, **parts[place]}
                answer = self.members[worker].ask("prepare", call=self.calls, **part)
                payloads.append(answer["payload"])
        return self.calls, payloads

    def begin(self, group, call, payloads):
        for worker in group:
            assert self.members[worker].ask("begin", call=call, payloads=payloads)["begun"]

    def finish(self, group, call):
        for worker in group:
            self.members[worker].tell("finish", call=call)
        return [self.members[worker].answer()["result"] for worker in group]

    def run(self, group, op, parts):
        call, payloads = self.prepare(group, op, parts)
        self.begin(group, call, payloads)
        return [result and tensor(result) for result in self.finish(group, call)]

    def failures(self, group, call):
        for worker in group:
            self.members[worker].tell("finish", call=call)
        return [self._failure(worker) for worker in group]

    def _failure(self, worker):
        try:
            return f"no failure but {self.members[worker].answer()}"
        except Failed as failed:
            return str(failed)

    def end(self):
        for member in self.members:
            member.end()


def tensor(description):
    dtype, shape, text = description
    data = torch.frombuffer(bytearray.fromhex(text) or bytearray(1), dtype=torch.uint8)
    return data[: len(text) // 2].view(getattr(torch, dtype)).view(shape)


def described(value):
    data = value.contiguous().view(-1).view(torch.uint8).numpy().tobytes()
    return [name(value), list(value.shape), data.hex()]


def name(value):
    return str(value.dtype).removeprefix("torch.")
