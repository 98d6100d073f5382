"""Backward passes through many views of one value, for test_gradients_of_views.py.

It reads the log of instructions: each pass is followed by the read of one number.
"""

from collections.abc import Callable, Iterable
from functools import reduce

import gt
from gt import Tensor

LENGTHS = (24, 48)
WIDTH = 6


def total(parts: Iterable[Tensor]) -> Tensor:
    return reduce(Tensor.add, ((part * part).sum() for part in parts))


def parts_of_columns(y: Tensor, n: int) -> Tensor:
    return total(y[2:, t] for t in range(n))


PROGRAMS: dict[str, Callable[[Tensor, int], Tensor]] = {
    "index": lambda x, n: total(x[t] for t in range(n)),
    "columns": lambda x, n: total(x.t()[:, t] for t in range(n)),
    "parts of columns": lambda x, n: parts_of_columns(x.t().contiguous(), n),
    "split": lambda x, n: total(x.split(2)),
    "windows": lambda x, n: total(x[t : t + 4] for t in range(n - 4)),
    "one index often": lambda x, n: total(x[t // 8] for t in range(n)),
    "whole and rows": lambda x, n: total([x, *x.unbind(0)[::2]]),
    "elements": lambda x, n: total(x[t, t % WIDTH] for t in range(n)),
}


def main() -> None:
    for program in PROGRAMS.values():
        for length in LENGTHS:
            for second in (False, True):
                x = gt.ones(length, WIDTH, requires_grad=True)
                (grad,) = gt.autograd.grad(program(x, length), x, create_graph=second)
                if second:
                    (grad,) = gt.autograd.grad((grad * grad).sum(), x)
                grad[0, 0].item()


if __name__ == "__main__":
    main()
