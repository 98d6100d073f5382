"""`gt.client`: older import path of GT's modules; `gt.client.nn` is `gt.nn` itself."""

import sys

from gt import nn, optim
from gt._core import Tensor

# Aliases of the loaded module objects, so that `import gt.client.nn.functional` makes no second
# copies.
for _name in [
    name for name in sys.modules if name.split(".")[:2] in (["gt", "nn"], ["gt", "optim"])
]:
    sys.modules[f"gt.client.{_name.removeprefix('gt.')}"] = sys.modules[_name]

__all__ = ["Tensor", "nn", "optim"]


def __dir__() -> list[str]:
    """Lists the public names; imports for the module's own use are left out."""
    return __all__
