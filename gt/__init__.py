"""GT: the operating system of a shared GPU cluster for people who write tensors.

`import gt` starts nothing and imports no torch; the first operation starts a worker.
"""

import importlib
import pathlib
import pkgutil
import sys
import types

# A checkout's gt/ also finds the extension modules of an installed gt.
__path__ = pkgutil.extend_path(__path__, __name__)

from gt import _core, compat  # the first import of ours: it gives the others their names
from gt._core import (
    Tensor,
    bfloat16,
    complex64,
    complex128,
    dtype,
    float16,
    float32,
    float64,
    int8,
    int16,
    int32,
    int64,
    uint8,
)
from gt._core import bool as bool
from gt.compat.torch_version import __version__
from gt.tensors.size import Size

_core.configure(Size, str(pathlib.Path(__file__).resolve().parent))
half, float, double = float16, float32, float64
cfloat, cdouble = complex64, complex128
short, int, long = int16, int32, int64

from gt import autograd, composite, errors  # noqa: E402
from gt.tensors import devices, printing, reading  # noqa: E402
from gt.tensors.aten import surface as _aten  # noqa: E402

composite.install()
reading.install()
devices.install()
printing.install()
_aten.install()

from gt.distributed.methods import install as _install  # noqa: E402

_install()

from gt import distributed  # noqa: E402
from gt.amp import autocast_state  # noqa: E402
from gt.compat import (  # noqa: E402
    import_hooks,
    missing_methods,
    random,
    serialization,
    tensor_types,
)
from gt.sessions import session as _session  # noqa: E402
from gt.sessions import settings  # noqa: E402
from gt.tensors import creation, dtypes, interop, ufuncs  # noqa: E402

interop.install()
ufuncs.install()
import_hooks.install()
tensor_types.install()
missing_methods.install()
from gt.amp.autocast_mode import autocast  # noqa: E402
from gt.autograd import (  # noqa: E402
    enable_grad,
    inference_mode,
    is_grad_enabled,
    no_grad,
    set_grad_enabled,
)
from gt.compat.compiler import compile as compile  # noqa: E402
from gt.config import (  # noqa: E402
    ShardConfig,
    SignalConfig,
    get_config,
    load_config,
    register_config,
)
from gt.distributed import (  # noqa: E402
    DeviceMesh,
    DTensor,
    Layout,
    Partial,
    Replicate,
    Shard,
    distribute,
)
from gt.distributed.explanation import explain  # noqa: E402
from gt.errors import (  # noqa: E402
    CancelledError,
    ConfigError,
    ConnectionLost,
    DtypeError,
    Error,
    NoWorker,
    OutOfMemoryError,
    ShapeError,
    UnreadFailureWarning,
    WorkerError,
)
from gt.tensors.devices import device  # noqa: E402

_TABLE = {name for name, family, *_ in _core.op_table() if family not in ("control", "collective")}
for _name in _TABLE | set(composite.functions()):
    if not hasattr(sys.modules[__name__], _name) and hasattr(Tensor, _name):
        globals()[_name] = _core.Function(_name, getattr(Tensor, _name))
globals().update(composite.functions())
for _name, _function in _aten.functions("t").items():
    globals().setdefault(_name, _function)
for _module in (
    creation, random, _session, serialization, dtypes, interop, settings, tensor_types,
    autocast_state,
):  # fmt: skip
    for _name in getattr(_module, "__all__", ()):
        globals()[_name] = getattr(_module, _name)

from math import e as e  # noqa: E402
from math import inf as inf  # noqa: E402
from math import nan as nan  # noqa: E402
from math import pi as pi  # noqa: E402

from gt.sessions.published import grant, publish, revoke, unpublish  # noqa: E402
from gt.sessions.published import session as session  # noqa: E402

newaxis = None
set_printoptions = printing.set_printoptions

from gt import documentation  # noqa: E402

documentation.attach("gt.Tensor", vars(Tensor))
documentation.attach(__name__, globals())

_LAZY = {
    "_inductor",
    "_utils",
    "accelerator",
    "amp",
    "cpu",
    "compiler",
    "jit",
    "mps",
    "onnx",
    "backends",
    "torch_version",
    "version",
    "fft",
    "func",
    "functional",
    "linalg",
    "masked",
    "multiprocessing",
    "special",
    "client",
    "cuda",
    "data",
    "debug",
    "distributions",
    "dnn",
    "nn",
    "ops",
    "optim",
    "pipeline",
    "profiler",
    "return_types",
    "signal",
    "sparse",
    "testing",
    "utils",
    "worker",
    "xpu",
}
# Names in these modules that `gt` has, too.
_LAZY_NAMES = {
    "GradScaler": "amp",
    "sparse_coo_tensor": "sparse",
    "spmm": "sparse",
    "is_anomaly_check_nan_enabled": "autograd.anomaly_mode",
    "is_anomaly_enabled": "autograd.anomaly_mode",
    "set_anomaly_enabled": "autograd.anomaly_mode",
    "alpha_dropout": "functional",
    "alpha_dropout_": "functional",
    "bartlett_window": "signal.window_functions",
    "blackman_window": "signal.window_functions",
    "celu_": "nn.functional",
    "chain_matmul": "functional",
    "dropout": "functional",
    "dropout_": "functional",
    "feature_alpha_dropout": "functional",
    "feature_dropout": "functional",
    "hamming_window": "signal.window_functions",
    "hann_window": "signal.window_functions",
    "kaiser_window": "signal.window_functions",
    "native_batch_norm": "nn.functional.batch",
    "parallel_cross_entropy": "nn.parallel",
    "range": "functional",
    "rrelu": "functional",
    "rrelu_": "nn.functional",
    "selu_": "nn.functional",
    "threshold_": "nn.functional",
    "typename": "functional",
    "vmap": "func",
}
# Public modules; the others can be imported too, and hold the implementation.
_SHOWN = (_LAZY - {"worker", "_inductor", "_utils"}) | {
    "autograd",
    "distributed",
    "errors",
    "random",
}


def __getattr__(name: str) -> object:
    """Loads subpackages at their first use, so that `import gt` is fast."""
    if name in _LAZY:
        return importlib.import_module(f"gt.{name}")
    if name in _LAZY_NAMES:
        value = getattr(importlib.import_module(f"gt.{_LAZY_NAMES[name]}"), name)
        documentation.attach(__name__, {name: value})
        return value
    if name.startswith("_foreach_"):
        return getattr(importlib.import_module("gt.foreach"), name)
    from gt.compat.missing import attribute_error

    raise attribute_error("gt", name)


def __dir__() -> list[str]:
    """Lists the public names: tensors, functions, dtypes, errors and the modules of `_SHOWN`."""
    own = {name for name, value in globals().items() if not isinstance(value, types.ModuleType)}
    shown = _SHOWN | _LAZY_NAMES.keys() | {"__version__"}
    return sorted({name for name in own if not name.startswith("_")} | shown)
