"""The generator's state: a seed and the number of the next draw. No random number is made here."""

import contextlib
import secrets
from collections.abc import Iterator

import numpy as np

from gt import _core
from gt._core import Tensor
from gt.errors import InvalidType, InvalidUse, InvalidValue

DEFAULT_SEED = 67280421310721  # PyTorch's


class Generator:
    """A separate sequence of draws; functions without one draw from the client's default."""

    def __init__(self, device: object = None) -> None:
        self.device = device
        self._seed, self._draw = DEFAULT_SEED, 0

    def manual_seed(self, seed: int) -> "Generator":
        """Restart at the first draw of `seed`."""
        if isinstance(seed, (bool, float, str)):
            raise InvalidUse(f"manual_seed expected a long, but got {type(seed).__name__}")
        self._seed, self._draw = wrapped(seed), 0
        return self

    def seed(self) -> int:
        """Restart at a seed from the operating system, which is returned."""
        self.manual_seed(secrets.randbits(63))
        return self._seed

    def initial_seed(self) -> int:
        """The seed."""
        return self._seed

    def get_state(self) -> Tensor:
        """Seed and draw, as 16 bytes."""
        return packed(self._seed, self._draw)

    def set_state(self, new_state: Tensor) -> "Generator":
        """Continue at the place where `new_state` was taken; reads it."""
        self._seed, self._draw = unpacked(new_state)
        return self

    def next_draw(self) -> tuple[int, int]:
        """Seed and number of the next draw, which is used up."""
        self._draw += 1
        return self._seed, self._draw - 1


@contextlib.contextmanager
def fork_rng(
    devices: object = None, enabled: bool = True, device_type: object = None
) -> Iterator[None]:
    """Restores the default generator after the block, as if the block had drawn nothing.

    Args:
        devices: Accepted without effect, like `device_type`: there is one generator.
        enabled: False does nothing.
    """
    del devices, device_type
    state = get_rng_state() if enabled else None
    try:
        yield
    finally:
        if state is not None:
            set_rng_state(state)


class DefaultGenerator(Generator):
    """The client's generator, whose state is in `gt._core`."""

    def manual_seed(self, seed: int) -> "Generator":
        _core.manual_seed(wrapped(seed))
        return self

    def seed(self) -> int:
        self.manual_seed(secrets.randbits(63))
        return self.initial_seed()

    def initial_seed(self) -> int:
        return int(_core.rng_state()[0])

    def get_state(self) -> Tensor:
        seed, draw = _core.rng_state()
        return packed(seed, draw)

    def set_state(self, new_state: Tensor) -> "Generator":
        _core.set_rng_state(*unpacked(new_state))
        return self

    def next_draw(self) -> tuple[int, int]:
        seed, draw = _core.next_draw()
        return seed, draw


default_generator = DefaultGenerator()


_FLOAT32_MAX = (2 - 2**-23) * 2.0**127
_FLOAT64_MAX = (2 - 2**-52) * 2.0**1023


def wrapped(seed: int) -> int:
    """A seed as a signed 64-bit number; PyTorch also accepts unsigned ones."""
    if not -(2**63) <= int(seed) < 2**64:
        raise InvalidValue("Overflow when unpacking long long")
    return (int(seed) + 2**63) % 2**64 - 2**63


def is_finite(dtype: _core.dtype, mean: float, std: float) -> bool:
    """True if the normal operator takes this mean and deviation, with which it computes in float32.

    With a larger mean or deviation, scaled unit normals are infinite or NaN, as PyTorch's are.
    """
    most = _FLOAT64_MAX if dtype in (_core.float64, _core.complex128) else _FLOAT32_MAX
    return abs(mean) <= most and std <= most


def packed(seed: int, draw: int) -> Tensor:
    """Seed and draw as 16 bytes."""
    state = np.array([seed, draw], dtype=np.int64).view(np.uint8)
    return _core.from_numpy_copy(state, _core.uint8, False)


def unpacked(state: object) -> tuple[int, int]:
    """The seed and draw number in a state that `packed` made; reads it."""
    if not isinstance(state, Tensor) or state.dtype != _core.uint8 or state.shape != (16,):
        raise InvalidType("expected a state that get_rng_state or Generator.get_state returned")
    seed, draw = state.numpy().view(np.int64)
    return int(seed), int(draw)


def manual_seed(seed: int) -> Generator:
    """Restart the default generator at the first draw of `seed`."""
    return default_generator.manual_seed(seed)


def seed() -> int:
    """Restart the default generator at a seed from the operating system, which is returned."""
    return default_generator.seed()


def initial_seed() -> int:
    """The default generator's seed."""
    return default_generator.initial_seed()


def get_rng_state() -> Tensor:  # PyTorch's name
    """The default generator's seed and draw."""
    return default_generator.get_state()


def set_rng_state(new_state: Tensor) -> None:
    """Continue at the place where `new_state` was taken."""
    default_generator.set_state(new_state)


def next_draw(generator: object) -> tuple[int, int]:
    """Seed and draw of `generator`, or of the default one."""
    if generator is None:
        return _core.next_draw()
    if not isinstance(generator, Generator):
        kind = type(generator).__name__
        raise InvalidType(f"argument 'generator' must be torch.Generator, not {kind}")
    return generator.next_draw()
