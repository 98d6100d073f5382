"""`gt.nn.modules.conv.Conv2d` and the like: PyTorch's module paths, for imports that use them.

Every module here is in `gt.nn`. The list that tools/missing_names.py writes, which is read at the
first access, tells the modules of each path.
"""

import sys
import types

from gt.compat import missing
from gt.nn import (
    batchnorm,
    conv,
    global_hooks,
    lazy,
    linear,
    loss,
    normalization,
    parameter,
    recurrent,
)
from gt.nn.hooks import HookHandle
from gt.nn.module import Module
from gt.nn.modules import utils

PATHS = (  # PyTorch's files
    "activation", "adaptive", "batchnorm", "channelshuffle", "container", "conv", "distance",
    "dropout", "flatten", "fold", "instancenorm", "lazy", "linear",
    "linear_cross_entropy_options", "loss", "module", "normalization", "padding", "pixelshuffle",
    "pooling", "rnn", "sparse", "transformer", "upsampling",
)  # fmt: skip
# Names at one path only: bases of several modules, which programs ask isinstance of, and functions
# about all modules.
BASES: dict[str, dict[str, object]] = {
    "batchnorm": {"_BatchNorm": batchnorm._BatchNorm, "_NormBase": batchnorm._NormBase},
    "conv": {"_ConvNd": conv._ConvNd},
    "dropout": {"_DropoutNd": normalization.Dropout},
    "instancenorm": {"_NormBase": batchnorm._NormBase},
    "lazy": {"LazyModuleMixin": lazy.LazyModuleMixin, "is_lazy": parameter.is_lazy},
    "linear": {"NonDynamicallyQuantizableLinear": linear.NonDynamicallyQuantizableLinear},
    "module": {
        "RemovableHandle": HookHandle,
        **{name: value for name, value in vars(global_hooks).items() if "register_module" in name},
    },
    "loss": {"_Loss": loss._Loss, "_WeightedLoss": loss._WeightedLoss},
}


class _Path(types.ModuleType):
    """A module that stands for one of PyTorch's files of modules."""

    def __getattr__(self, name: str) -> object:
        path = self.__name__.rpartition(".")[2]
        if (base := BASES.get(path, {}).get(name)) is not None:
            return base
        if name in missing.names_of(self.__name__) and name in dir(sys.modules["gt.nn"]):
            return getattr(sys.modules["gt.nn"], name)
        raise missing.attribute_error(self.__name__, name)

    def __dir__(self) -> list[str]:
        path = self.__name__.rpartition(".")[2]
        shown = {*dir(sys.modules["gt.nn"]), *BASES.get(path, {})}
        return sorted(missing.names_of(self.__name__) & shown)


for _path in PATHS:
    _module = _Path(f"{__name__}.{_path}", f"`torch.nn.modules.{_path}` by GT's modules.")
    sys.modules[_module.__name__] = _module
    globals()[_path] = _module


def __getattr__(name: str) -> object:
    """The modules of `gt.nn`."""
    if name in missing.names_of(__name__) and name in dir(sys.modules["gt.nn"]):
        return getattr(sys.modules["gt.nn"], name)
    raise missing.attribute_error(__name__, name)


def __dir__() -> list[str]:
    """The paths, and PyTorch's modules that GT has."""
    shown = missing.names_of(__name__) & set(dir(sys.modules["gt.nn"]))
    return sorted({*PATHS, "utils"} | shown)


__all__ = ["utils"]
