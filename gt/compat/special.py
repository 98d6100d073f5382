"""Special functions, as in torch.special.

A function without a row of its own in ops.toml runs whole on one worker.
"""

import gt
from gt import documentation
from gt.compat import misses
from gt.tensors.aten import surface

# Functions that have another name in torch.special.
_OTHER_NAMES = {
    "expit": "sigmoid",
    "gammaln": "lgamma",
    "multigammaln": "mvlgamma",
    "psi": "digamma",
}
# Functions with one name in torch and torch.special.
_SAME = (
    "digamma", "erf", "erfc", "erfinv", "exp2", "expm1", "log1p", "log_softmax", "logit",
    "logsumexp", "polygamma", "round", "sinc", "softmax", "xlogy",
)  # fmt: skip
_functions = surface.functions("s", "special_")
documentation.attach(__name__, _functions)
_functions |= {name: getattr(gt, _OTHER_NAMES.get(name, name)) for name in (*_SAME, *_OTHER_NAMES)}
globals().update(_functions)
__all__ = sorted(_functions)  # noqa: PLE0605 - the names of torch's own schemas

__getattr__ = misses.hook(__name__)


def __dir__() -> list[str]:
    """Lists the public names."""
    return __all__
