"""Looking inside: tape, counters of workers, errors with your own line, a log of everything."""

import os
from pathlib import Path

# Read at the first operation.
log = Path(os.environ.setdefault("GT_INSTRUCTION_LOG", "trace.txt"))

import gt  # noqa: E402 - after the setting, so that it reads from top to bottom


def main() -> None:
    x = gt.tensor([[1.0, 2.0], [3.0, 4.0]])
    w = gt.tensor([[0.5], [-0.5]], requires_grad=True)
    loss = (x @ w).tanh().sum()

    print("the tape, one line a record:")
    gt.debug.print_tape(loss)
    loss.backward()
    assert w.grad is not None

    print("\nwhat the workers hold and have done:")
    for counters in gt.debug.get_worker_stats():
        print(counters)
    print("the dispatcher:", gt.debug.stats())

    print("\na mistake is raised at its line, in PyTorch's words:")
    try:
        x @ gt.ones(3, 3)
    except gt.ShapeError as error:
        print(error)

    print("\na failure on a worker is raised at the first read, and names the line that failed:")
    broken = gt.index_select(x, 0, gt.tensor([7]))
    try:
        broken.tolist()
    except gt.Error as error:
        print(error)

    gt.disconnect()
    print(f"\n{log} (see also `gt trace` and `gt visualize`):")
    print(log.read_text(encoding="utf-8"))


if __name__ == "__main__":
    main()
