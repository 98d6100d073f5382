"""Parts of complex tensors, conjugation, and Fourier transforms of windows.

Real and imaginary parts are values of their own: in PyTorch they are views, through which the whole
can be written; GT's refuse writes. Conjugates are views, whose elements are conjugated when they
are needed: a write into one is conjugated into the whole, and no tensor has PyTorch's bit of
`is_conj`.
"""

from gt import _core
from gt._core import Tensor, call
from gt.composite.common import Method, generic
from gt.errors import InvalidType, ShapeError

WRITTEN = (
    "a part of a complex tensor is a value of its own in GT: writing it would not write the "
    "tensor. Write the tensor: z.copy_(gt.complex(real, imag)), or z.real = ..."
)


def view_as_real(input: Tensor) -> Tensor:
    """The parts of complex `input` [...] as floats [..., 2], a value that cannot be written.

    Raises:
        TypeError: `input` is not complex.
    """
    if not input.is_complex():
        raise InvalidType(
            f"view_as_real is only supported for complex tensors, not {input.dtype!r}"
        )
    return _core.read_only(generic("view_as_real_copy", input), WRITTEN)


def view_as_complex(input: Tensor) -> Tensor:
    """Floats [..., 2], real and imaginary parts, as complex [...], a value that cannot be written.

    Raises:
        RuntimeError: `input` is not of float32 or float64, or its last size is not 2.
    """
    if not input.ndim or input.shape[-1] != 2:
        raise ShapeError("Tensor must have a last dimension of size 2")
    copy = input.clone()  # a view saves nothing, so that `input` may be written
    parts = [call("select", copy, dim=-1, index=place) for place in (0, 1)]
    return _core.read_only(generic("complex", *parts), WRITTEN)


def real(input: Tensor) -> Tensor:
    """The real parts, a value that cannot be written; for real numbers `input` itself."""
    if not input.is_complex():
        return input
    return call("select", view_as_real(input), dim=-1, index=0)


def imag(input: Tensor) -> Tensor:
    """The imaginary parts, a value that cannot be written.

    Raises:
        TypeError: `input` is not complex.
    """
    if not input.is_complex():
        raise InvalidType("imag is not implemented for tensors with non-complex dtypes.")
    return call("select", view_as_real(input), dim=-1, index=1)


def set_real(self: Tensor, value: Tensor | float) -> None:
    """`self.real = value`: the real parts become `value`, the imaginary ones stay."""
    if self.is_complex():
        self.copy_(generic("complex", _part(self, value), imag(self)))
    elif isinstance(value, Tensor):
        self.copy_(value)
    else:
        self.fill_(value)


def set_imag(self: Tensor, value: Tensor | float) -> None:
    """`self.imag = value`: the imaginary parts become `value`, the real ones stay."""
    imaginary = imag(self)
    self.copy_(generic("complex", real(self), _part(self, value).expand(imaginary.shape)))


def _part(whole: Tensor, value: Tensor | float) -> Tensor:
    """`value` for the real or imaginary part of `whole`, in the part's dtype and shape."""
    imaginary = imag(whole)
    if isinstance(value, Tensor):
        return value.to(imaginary.dtype).expand(imaginary.shape)
    return imaginary.new_full(tuple(imaginary.shape), value)


def conj(self: Tensor) -> Tensor:
    """The complex conjugate, a view; for real numbers `self`."""
    return call("conj", self) if self.is_complex() else self


def conj_physical(self: Tensor) -> Tensor:
    """The complex conjugate, a new value; for real numbers `self`."""
    return generic("conj_physical", self) if self.is_complex() else self


def resolve(self: Tensor) -> Tensor:
    """`self`: no tensor's conjugation or negation is deferred."""
    _ = self.dtype  # raises for a value that is no tensor
    return self


def is_put_off(self: Tensor) -> bool:
    """False: no tensor's conjugation or negation is deferred."""
    _ = self.dtype  # raises for a value that is no tensor
    return False


def adjoint(self: Tensor) -> Tensor:
    """The last two dimensions swapped and conjugated; a number's conjugate.

    Raises:
        RuntimeError: the tensor is a vector.
    """
    if self.ndim == 1:
        raise ShapeError(
            "tensor.adjoint() is only supported on matrices or batches of matrices. Got 1-D tensor."
        )
    return conj(self.transpose(-2, -1) if self.ndim else self)


def conjugate_transpose(self: Tensor) -> Tensor:
    """`x.mH`: `adjoint` for a batch of matrices."""
    if self.ndim == 1:
        raise ShapeError(
            "tensor.mH is only supported on matrices or batches of matrices. Got 1-D tensor."
        )
    return adjoint(self)


def install() -> None:
    """Attach the properties to the tensor class."""
    for name, prop in {
        "real": property(real, set_real),
        "imag": property(imag, set_imag),
        "mH": property(conjugate_transpose),
    }.items():
        setattr(Tensor, name, prop)


def stft(
    input: Tensor,
    n_fft: int,
    hop_length: int | None = None,
    win_length: int | None = None,
    window: Tensor | None = None,
    center: bool = True,
    pad_mode: str = "reflect",
    normalized: bool = False,
    onesided: bool | None = None,
    return_complex: bool | None = None,
    align_to_window: bool | None = None,
) -> Tensor:
    """Spectra of windows of a signal [length] or [n, length]: complex [n, frequencies, windows].

    Args:
        n_fft: the transform's length.
        hop_length: distance of two windows; a quarter of `n_fft` if not given.
        win_length: the window's length, `n_fft` if not given; shorter ones get zeros on both sides.
        window: factors [win_length], ones if not given.
        center: True pads the signal by `n_fft // 2` on both sides first.
        pad_mode: padding mode of `nn.functional.pad`.
        normalized: True divides results by the square root of `n_fft`.
        onesided: True returns only half of the frequencies; the default for real input.
        return_complex: required for real input and window; False returns floats [..., 2].
        align_to_window: position of the windows without `center`.

    Raises:
        RuntimeError: sizes that do not fit, or `return_complex` left open.
    """
    options = {
        "hop_length": hop_length, "win_length": win_length, "window": window, "center": center,
        "pad_mode": pad_mode, "normalized": normalized, "onesided": onesided,
        "return_complex": return_complex, "align_to_window": align_to_window,
    }  # fmt: skip
    return generic("stft", input, n_fft, **options)


def istft(
    self: Tensor,
    n_fft: int,
    hop_length: int | None = None,
    win_length: int | None = None,
    window: Tensor | None = None,
    center: bool = True,
    normalized: bool = False,
    onesided: bool | None = None,
    length: int | None = None,
    return_complex: bool = False,
) -> Tensor:
    """The inverse of `stft` with equal arguments: complex [..., frequencies, frames] to a signal
    [..., t].

    Args:
        self: complex result of `stft`.
        n_fft: length of each transform.
        hop_length: distance of two windows, `n_fft // 4` if not given.
        win_length: the window's length, `n_fft` if not given.
        window: factors [win_length], ones if not given; they overlap everywhere.
        center: True if `stft` padded the signal.
        normalized: True if results were divided by the square root of `n_fft`.
        onesided: True if only half of the frequencies are there.
        length: length of the signal; that of the frames if not given.
        return_complex: True if the signal is complex.

    Raises:
        RuntimeError: sizes that do not fit, or windows that leave a gap.
    """
    options = {
        "hop_length": hop_length, "win_length": win_length, "window": window, "center": center,
        "normalized": normalized, "onesided": onesided, "length": length,
        "return_complex": return_complex,
    }  # fmt: skip
    return generic("istft", self, n_fft, **options)


METHODS: dict[str, Method] = {
    "conj": conj,
    "conj_physical": conj_physical,
    "resolve_conj": resolve,
    "resolve_neg": resolve,
    "is_conj": is_put_off,
    "is_neg": is_put_off,
    "adjoint": adjoint,
    "stft": stft,
    "istft": istft,
}
FUNCTIONS: dict[str, Method] = {
    "real": real,
    "imag": imag,
    "view_as_real": view_as_real,
    "view_as_complex": view_as_complex,
}
