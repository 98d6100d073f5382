"""The torch front end: PyTorch programs on GT's workers, as the device `mux`.

    import gt.torch
    model = model.to("mux")

PyTorch's autograd, layers and optimizers run in the program; each operator that they come to is an
instruction of GT's, on the same workers, layouts, signals and session as those of `import gt`.
Tensors of both are one: `wrap` and `unwrap` copy nothing.

`tensor` is the tensor class, `operands` turns arguments and results, `functions` finds what
computes an operator, `named`, `views` and `writes` are operators by their names, `dispatch` runs
them, `device` makes PyTorch know the device, `compiled` runs what `torch.compile` captured.
"""


def autoload() -> None:
    """For PyTorch's entry-point group `torch.backends`: importing this module was all.

    It stands first: the imports below may be the first of PyTorch, which looks for it then.
    """


from gt.torch import device as _device  # noqa: E402
from gt.torch.tensor import MuxTensor, unwrap, wrap  # noqa: E402

__all__ = ["MuxTensor", "autoload", "unwrap", "wrap"]

_device.register()
