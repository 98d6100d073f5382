"""The torch front end: PyTorch programs on GT's workers, as the device `mux`.

    import gt.torch
    model = model.to("mux")

PyTorch's autograd, layers and optimizers run in the program; each operator that they call becomes
an instruction of GT, on the same workers, layouts, signals and session as those of `import gt`.
Tensors of both share their values: `wrap` and `unwrap` copy nothing.

`tensor` is the tensor class, `operands` converts arguments and results, `functions` looks up the
function of an operator, `named`, `views` and `writes` are operators by their names, `dispatch` runs
them, `device` registers the device with PyTorch, `compiled` runs graphs that `torch.compile`
captured.
"""


def autoload() -> None:
    """Entry point in PyTorch's group `torch.backends`; importing this module did all the work.

    It is defined first: the imports below may import PyTorch, which looks for it then.
    """


from gt.torch import device as _device  # noqa: E402
from gt.torch.tensor import MuxTensor, unwrap, wrap  # noqa: E402

__all__ = ["MuxTensor", "autoload", "unwrap", "wrap"]

_device.register()
