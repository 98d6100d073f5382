"""One member of process groups, as a process that a test drives: a JSON line in, a JSON line out.

    {"do": "prepare", "call": 1, "members": [0, 1], "place": 0, "op": "all_reduce",
     "operand": VALUE, "result": [DTYPE, SHAPE], "arguments": {...}}       -> {"payload": HEX}
    {"do": "begin", "call": 1, "payloads": [HEX, ...]}                       -> {"begun": true}
    {"do": "finish", "call": 1}                                            -> {"result": VALUE}
    {"do": "cancel" | "lose" | "close" | "threads", ...}                     -> {}

A VALUE is [DTYPE, SHAPE, HEX]. What fails answers {"error": TEXT}.
"""

import json
import sys
import threading
import time
from pathlib import Path

import torch

from gt import config
from gt.worker.pytorch import collectives
from gt.worker.pytorch.groups import Call, Gloo, GroupError, Groups, Nccl


def value(description):
    dtype, shape, text = description
    data = torch.frombuffer(bytearray.fromhex(text) or bytearray(1), dtype=torch.uint8)
    return data[: len(text) // 2].view(getattr(torch, dtype)).view(shape).clone()


def described(tensor):
    name = str(tensor.dtype).removeprefix("torch.")
    data = tensor.cpu().contiguous().view(-1).view(torch.uint8).numpy().tobytes()
    return [name, list(tensor.shape), data.hex()]


class Member:
    def __init__(self, library):
        self.device = torch.device("cuda", 0) if library == "nccl" else torch.device("cpu")
        engine = Nccl(self.device) if library == "nccl" else Gloo("127.0.0.1")
        self.groups = Groups(engine)
        self.calls: dict[int, tuple[Call, torch.Tensor | None]] = {}

    def prepare(self, call, members, place, op, arguments, operand=None, result=None):
        operand = operand and value(operand).to(self.device)
        if result == "operand":
            result = operand
        elif result is not None:
            dtype, shape = result
            result = torch.empty(shape, dtype=getattr(torch, dtype), device=self.device)
        options = {"operand": operand, "result": result, **arguments}
        prepared = getattr(collectives, op)(**options)
        handle = self.groups.prepare(tuple(members), place, prepared)
        self.calls[call] = handle, result
        return {"payload": handle.payload.hex()}

    def begin(self, call, payloads):
        return {"begun": self.calls[call][0].begin([bytes.fromhex(one) for one in payloads])}

    def finish(self, call):
        handle, result = self.calls.pop(call)
        while not handle.is_over():
            time.sleep(0.0002)
        handle.finish()
        return {"result": None if result is None else described(result)}

    def cancel(self, call):
        self.calls.pop(call)[0].cancel()
        return {}

    def lose(self, worker):
        self.groups.lose(worker)
        return {}

    def close(self):
        self.groups.close()
        return {}

    def threads(self):
        """Those that groups have."""
        tasks = [path.read_text().strip() for path in Path("/proc/self/task").glob("*/comm")]
        ours = [thread.name for thread in threading.enumerate()]
        return {"threads": [name for name in tasks + ours if name.startswith(("pt_gloo", "gt-"))]}


def main():
    config.use_nccl_interface("lo")
    member = Member(sys.argv[1])
    torch.set_num_threads(1)
    with torch.inference_mode():
        for line in sys.stdin:
            command = json.loads(line)
            try:
                answer = getattr(member, command.pop("do"))(**command)
            except GroupError as error:
                answer = {"error": str(error)}
            print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
