"""`gt.device`: the value of `device=` in scripts and of `x.device`; it places nothing.

The dispatcher decides where values live, so the device of every tensor is `gt`.
"""

from gt._core import Tensor
from gt.errors import InvalidType, InvalidUse

__all__ = ["device", "install"]

KINDS = ("cpu", "cuda", "gt", "meta", "mps", "xpu")


class device:  # noqa: N801 - PyTorch's name
    """A kind of device and an optional number; accepted wherever PyTorch takes one.

    Args:
        type: `cpu`, `cuda`, `gt`, `meta`, `mps` or `xpu`, also with a number (`cuda:1`), a number
            alone (of a GPU), or another device, also PyTorch's. Tensors "on meta" have values like
            all others.
        index: the number, if `type` has none.
    """

    __slots__ = ("index", "type")

    type: str
    index: int | None

    def __init__(self, type: object, index: int | None = None) -> None:
        self.type, self.index = _parsed(type)
        if index is None:
            return
        if self.index is not None:
            raise InvalidUse(
                "type (string) must not include an index because index was passed explicitly: "
                f"{type}"
            )
        self.index = index

    def __enter__(self) -> "device":
        """In PyTorch sets the default device of new tensors; here it places nothing."""
        return self

    def __exit__(self, *reason: object) -> None:
        pass

    def __repr__(self) -> str:
        number = "" if self.index is None else f", index={self.index}"
        return f"device(type='{self.type}'{number})"

    def __str__(self) -> str:
        return self.type if self.index is None else f"{self.type}:{self.index}"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, device):
            return NotImplemented
        return (self.type, self.index) == (other.type, other.index)

    def __hash__(self) -> int:
        return hash((self.type, self.index))


def _parsed(spec: object) -> tuple[str, int | None]:
    """The kind and the number in any value that PyTorch accepts as a device."""
    if isinstance(spec, device):
        return spec.type, spec.index
    if type(spec).__name__ == "device":  # PyTorch's class, which is not imported here
        return _parsed(str(spec))
    if isinstance(spec, int) and not isinstance(spec, bool):
        return "cuda", spec
    if not isinstance(spec, str):
        raise InvalidType(f"device(): argument 'type' must be str, not {type(spec).__name__}")
    kind, colon, number = spec.partition(":")
    if kind not in KINDS:
        raise InvalidUse(
            f"Expected one of {', '.join(KINDS)} device type at start of device string: {spec}. "
            "The dispatcher decides where tensors live; scripts may say these"
        )
    if colon and not (number.isascii() and number.isdigit()):
        raise InvalidUse(f"Invalid device string: '{spec}'")
    return kind, int(number) if colon else None


def check_device(spec: object, function: str = "tensor") -> None:
    """Refuses a value that names no device; PyTorch's names of devices are not restricted.

    Args:
        function: name of the called function, for the message.
    """
    if isinstance(spec, str):
        _parsed(spec)
    elif isinstance(spec, (float, list, tuple, dict)):
        raise InvalidType(
            f"{function}(): argument 'device' must be torch.device, not {type(spec).__name__}"
        )


def _device_of(self: Tensor) -> device:  # noqa: ARG001 - every tensor's
    """`gt`: the dispatcher decides where the value lives."""
    return _EVERYWHERE


def _is_cuda(self: Tensor) -> bool:  # noqa: ARG001 - every tensor's
    """False: programs do not place values."""
    return False


def _is_none(self: Tensor) -> bool:  # noqa: ARG001 - every tensor's
    """False: no tensor is of this kind."""
    return False


def get_device(self: Tensor) -> int:  # noqa: ARG001 - every tensor's
    """-1, as for every tensor that is on no particular GPU."""
    return -1


def pin_memory(self: Tensor, device: object = None) -> Tensor:  # noqa: ARG001 - places nothing
    """`self`: uploads go through memory shared with the dispatcher anyway."""
    return self


def is_pinned(self: Tensor, device: object = None) -> bool:  # noqa: ARG001 - every tensor's
    """False: no tensor's memory belongs to the program."""
    return False


def share_memory_(self: Tensor) -> Tensor:
    """`self`: no tensor's memory belongs to the program, to be shared with another process."""
    return self


def is_shared(self: Tensor) -> bool:  # noqa: ARG001 - every tensor's
    """False: no tensor's memory belongs to the program."""
    return False


def record_stream(self: Tensor, s: object) -> None:
    """Does nothing: a worker's order of instructions keeps memory while it is read."""


_MEMORY = {
    "pin_memory": pin_memory,
    "is_pinned": is_pinned,
    "share_memory_": share_memory_,
    "is_shared": is_shared,
    "record_stream": record_stream,
}
_EVERYWHERE = device("gt")


def install() -> None:
    """Attach the properties to the tensor class."""
    setattr(Tensor, "device", property(_device_of))  # noqa: B010 - the stub calls it read-only
    setattr(Tensor, "is_cuda", property(_is_cuda))  # noqa: B010
    for kind in (
        "sparse", "sparse_csr", "quantized", "mkldnn", "meta", "mps", "xpu", "nested", "cpu", "ipu",
        "maia", "mtia", "vulkan", "xla",
    ):  # fmt: skip
        setattr(Tensor, f"is_{kind}", property(_is_none))
    setattr(Tensor, "get_device", get_device)  # noqa: B010
    for name, method in _MEMORY.items():
        setattr(Tensor, name, method)
