"""A public program with seeds, for a number of lines: `public_program.py LINES FILE [arguments]`.

The program's file is run as it stands. In the environment GT_PUBLIC_DRAWS has PyTorch compute on
the host with the random numbers that GT draws, so that its losses are those that GT must print.
GT_PUBLIC_DOUBLE makes float64 of the default dtype, for programs that amplify what float32 rounds.
"""

import os
import random
import runpy
import sys
from pathlib import Path

import numpy as np
import torch

# Operators that draw; `uniform_`, `randn_like` and so on are named without their ends.
DRAW = {
    "_sample_dirichlet", "_standard_gamma", "bernoulli", "binomial", "cauchy", "exponential",
    "geometric", "log_normal", "multinomial", "native_dropout", "normal", "poisson", "rand",
    "randint", "randn", "random", "randperm", "rrelu_with_noise", "uniform",
}  # fmt: skip


class Lines:
    """Standard output that ends the program after a number of lines."""

    def __init__(self, file, lines):
        self.file = file
        self.left = lines

    def write(self, text):
        self.file.write(text)
        self.left -= text.count("\n")
        if self.left <= 0:
            self.file.flush()
            os._exit(0)  # also where the program catches SystemExit
        return len(text)

    def flush(self):
        self.file.flush()


def draw_gts():
    """Let PyTorch draw GT's numbers from here on; it computes on the host as ever."""
    import composed_dropout
    from torch.overrides import TorchFunctionMode
    from torch.utils._python_dispatch import TorchDispatchMode
    from torch.utils._pytree import tree_map_only

    import gt.torch  # noqa: F401 - names the device

    class Draws(TorchDispatchMode):
        is_drawing = False

        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            title = func._schema.name.partition("::")[2]
            kwargs = kwargs or {}
            is_draw = title.rstrip("_").removesuffix("_like") in DRAW
            if self.is_drawing or not is_draw or kwargs.get("generator") is not None:
                return func(*args, **kwargs)
            remote = tree_map_only(torch.Tensor, lambda x: x.to("mux"), list(args))
            if not remote or not isinstance(remote[0], torch.Tensor):
                kwargs = {**kwargs, "device": torch.device("mux")}
            self.is_drawing = True
            try:
                results = func(*remote, **kwargs)
                if title.endswith("_"):
                    return args[0].copy_(results.cpu())
                return tree_map_only(torch.Tensor, lambda x: x.cpu(), results)
            finally:
                self.is_drawing = False

    class Dropouts(TorchFunctionMode):
        """PyTorch composes dropout of other draws on the host than on its other devices."""

        def __torch_function__(self, func, types, args=(), kwargs=None):
            return composed_dropout.BUILTIN.get(func, func)(*args, **(kwargs or {}))

    composed_dropout.patch()
    Draws().__enter__()
    Dropouts().__enter__()


def main():
    lines, file = int(sys.argv[1]), sys.argv[2]
    if "GT_PUBLIC_DRAWS" in os.environ:
        draw_gts()
    if "GT_PUBLIC_DOUBLE" in os.environ:
        torch.set_default_dtype(torch.float64)
        torch.FloatTensor = torch.DoubleTensor
    random.seed(0)
    np.random.seed(0)  # noqa: NPY002 - programs use that generator
    torch.manual_seed(0)
    sys.stdout = Lines(sys.stdout, lines)
    sys.argv = sys.argv[2:]
    sys.path[0] = str(Path(file).resolve().parent)
    runpy.run_path(file, run_name="__main__")


if __name__ == "__main__":
    main()
