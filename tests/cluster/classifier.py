"""A small classifier's training, written once and run by GT and by torch: the losses are equal.

`library` is the module `gt` or the module `torch`; there is nothing of either in here.
"""

from types import ModuleType

import numpy as np

SAMPLES, FEATURES, HIDDEN, CLASSES = 48, 12, 16, 3


def numbers(seed: int, *shape: int) -> np.ndarray:
    """Values of a normal distribution, float64: sums in another order then differ by 1e-15."""
    return np.random.default_rng(seed).standard_normal(shape)


def losses(library: ModuleType, seed: int, steps: int, *, spread: bool = False) -> list[float]:
    """The loss before each step, read at every step.

    Args:
        library: what computes.
        seed: of data and parameters.
        steps: how many.
        spread: cut the batch over all workers and hold the parameters on each (GT only).
    """
    x = library.tensor(numbers(seed, SAMPLES, FEATURES))  # [b, d]
    y = library.tensor(np.arange(SAMPLES) * (seed + 1) % CLASSES)  # [b]
    model = library.nn.Sequential(
        library.nn.Linear(FEATURES, HIDDEN),
        library.nn.ReLU(),
        library.nn.Linear(HIDDEN, CLASSES),
    )
    state = {
        name: library.tensor(numbers(seed + place, *value.shape) * 0.3)
        for place, (name, value) in enumerate(model.state_dict().items())
    }
    model.double()
    model.load_state_dict(state)
    if spread:
        x, y = library.distribute(x, dim=0), library.distribute(y, dim=0)
        for parameter in model.parameters():
            parameter.data = library.distribute(parameter.data)
    optimizer = library.optim.SGD(model.parameters(), lr=0.2, momentum=0.9)
    values = []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = library.nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        values.append(loss.item())
    return values
