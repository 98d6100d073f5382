"""The state of every optimizer to who reads it, beside PyTorch: tensors, and the life they have."""

import copy
import io
import pickle

import numpy as np
import pytest
import torch
from test_optim_all import LIBRARIES, OPTIMIZERS, model

import gt

STEPS = 3
NUMBERS = ("step", "eta", "mu", "mu_product")
EXACT = {"rtol": 1e-6, "atol": 1e-9}
RELATIVE = {"rel": 1e-6, "abs": 1e-9}
# PyTorch's load_state_dict casts these to the parameter's dtype, which GT leaves: it goes on equal.
CAST = {"eta", "mu", "mu_product"}
# Muon's and SGD's states have no numbers, LBFGS's are its own.
COUNTING = [name for name in OPTIMIZERS if name not in {"Muon", "SGD"}]
ROWS = [(name, place) for name, rows in OPTIMIZERS.items() for place in range(len(rows))]


class Run:
    """An optimizer of one of the libraries over the model."""

    def __init__(self, library, name, options=None, *, steps=STEPS):
        self.library, self.name, self.options = library, name, options or {}
        self.params, self.loss = model(library, matrices=name == "Muon")
        self.optimizer = getattr(library.optim, name)(self.params, **self.options)
        self.step(steps)

    def step(self, steps=1):
        for _ in range(steps):
            self.optimizer.zero_grad()
            self.loss().backward()
            self.optimizer.step()
        return self

    @property
    def state(self):
        """State of the first parameter."""
        return self.optimizer.state[self.params[0]]

    def values(self):
        return [param.detach().numpy() for param in self.params]


def runs(name, options=None, *, steps=STEPS):
    return [Run(library, name, options, steps=steps) for library in LIBRARIES]


def described(entries):
    """Names, classes, dtypes, shapes, and what requires a gradient, in their order."""
    return [(key, type(value).__name__, *attributes(value)) for key, value in dict(entries).items()]


def attributes(value):
    if not isinstance(value, (gt.Tensor, torch.Tensor)):
        return (value,)
    dtype = str(value.dtype).removeprefix("torch.").removeprefix("gt.")
    return (dtype, tuple(value.shape), value.requires_grad, value.is_leaf)


def check(ours, theirs, but=frozenset()):
    """Entries and values must be equal; those of `but` may have other dtypes."""
    one, other = (
        [entry[:2] if entry[0] in but else entry for entry in described(entries)]
        for entries in (ours, theirs)
    )
    assert one == other
    for key, value in theirs.items():
        if isinstance(value, torch.Tensor):
            np.testing.assert_allclose(ours[key].numpy(), value.numpy(), **EXACT, err_msg=key)


def check_all(ours, theirs, but=frozenset()):
    ours, theirs = (run.optimizer.state_dict()["state"] for run in (ours, theirs))
    assert list(ours) == list(theirs)
    for place in theirs:
        check(ours[place], theirs[place], but)


@pytest.mark.parametrize("default", ["float32", "float64"])
@pytest.mark.parametrize(("name", "place"), ROWS)
def test_entries_are_pytorchs(name, place, default):
    before = [library.get_default_dtype() for library in LIBRARIES]
    for library in LIBRARIES:
        library.set_default_dtype(getattr(library, default))
    try:
        ours, theirs = runs(name, OPTIMIZERS[name][place])
        check_all(ours, theirs)
        for one, other in zip(ours.params, theirs.params, strict=True):
            check(ours.optimizer.state[one], theirs.optimizer.state[other])
    finally:
        for library, dtype in zip(LIBRARIES, before, strict=True):
            library.set_default_dtype(dtype)


@pytest.mark.parametrize("name", COUNTING)
def test_a_number_that_is_held_follows_the_steps(name):
    seen = []
    for run in runs(name):
        held = {key: run.state[key] for key in NUMBERS if key in run.state}
        before = {key: value.item() for key, value in held.items()}
        assert all(run.state[key] is value for key, value in held.items())
        saved = run.optimizer.state_dict()["state"][0]
        assert all(saved[key] is value for key, value in held.items())
        run.step(2)
        assert all(run.state[key] is value for key, value in held.items())
        seen.append((before, {key: value.item() for key, value in held.items()}, run.values()))
    (ours, theirs) = seen
    for one, other in zip(ours[:2], theirs[:2], strict=True):
        assert one == pytest.approx(other, **RELATIVE)
    for one, other in zip(ours[2], theirs[2], strict=True):
        np.testing.assert_allclose(one, other, **EXACT)


WRITES = {
    "fill_": lambda state, library: state["step"].fill_(40.0),
    "add_": lambda state, library: state["step"].add_(7),
    "copy_": lambda state, library: state["step"].copy_(library.tensor(12.0)),
    "zero_": lambda state, library: state["step"].zero_(),
    "of_a_slice": lambda state, library: state["step"].view(1)[:].mul_(5),
    "assigned": lambda state, library: state.__setitem__("step", library.tensor(20.0)),
    "updated": lambda state, library: state.update(step=library.tensor(20.0)),
    "put_back": lambda state, library: state.__setitem__("step", state.pop("step") + 1),
}


@pytest.mark.parametrize("write", WRITES)
@pytest.mark.parametrize("name", COUNTING)
def test_what_is_written_into_the_count_counts(name, write):
    ours, theirs = runs(name)
    for run in (ours, theirs):
        WRITES[write](run.state, run.library)
        run.step(2)
    check_all(ours, theirs)
    for one, other in zip(ours.values(), theirs.values(), strict=True):
        np.testing.assert_allclose(one, other, **EXACT)


def through_pickle(value):
    return pickle.loads(pickle.dumps(value))


def through_a_file(value):
    file = io.BytesIO()
    gt.save(value, file)
    file.seek(0)
    return gt.load(file)


def numbers(saved):
    """Replace tensors by numbers, the format before PyTorch 1.12."""
    for entries in saved["state"].values():
        for key in NUMBERS:
            if key in entries:
                entries[key] = entries[key].item()
    return saved


def unchanged(saved):
    return saved


COPIES = {
    "itself": unchanged,
    "deepcopy": copy.deepcopy,
    "pickle": through_pickle,
    "file": through_a_file,
    "numbers": numbers,
}


@pytest.mark.parametrize("way", COPIES)
@pytest.mark.parametrize("name", [*COUNTING, "Muon"])
def test_a_saved_state_goes_on(name, way):
    ours, theirs = runs(name)
    for run in (ours, theirs):
        saved = run.optimizer.state_dict()
        kept = unchanged if run is theirs and way == "file" else COPIES[way]
        saved = kept(saved)
        run.optimizer = type(run.optimizer)(run.params, lr=0.5)
        run.optimizer.load_state_dict(saved)
    check_all(ours, theirs, but=CAST)
    for run in (ours, theirs):
        run.step(2)
    check_all(ours, theirs, but=CAST)
    for one, other in zip(ours.values(), theirs.values(), strict=True):
        np.testing.assert_allclose(one, other, **EXACT)


@pytest.mark.parametrize("name", COUNTING)
def test_pytorchs_file_loads(name, tmp_path):
    ours, theirs = runs(name)
    torch.save(theirs.optimizer.state_dict(), tmp_path / "state.pt")
    for run in (ours, theirs):
        run.optimizer = type(run.optimizer)(run.params)
        run.optimizer.load_state_dict(run.library.load(tmp_path / "state.pt"))
        run.step(2)
    check_all(ours, theirs, but=CAST)


@pytest.mark.parametrize("way", [copy.deepcopy, through_pickle])
@pytest.mark.parametrize("name", COUNTING)
def test_a_copied_optimizer_has_a_state_of_its_own(name, way):
    found = []
    for run in runs(name):
        other = way(run.optimizer)
        (param, *_) = other.param_groups[0]["params"]
        mine = other.state[param]
        mine["step"].add_(5)
        found.append((mine["step"].item(), run.state["step"].item(), described(mine)))
        run.step()
        found[-1] += (mine["step"].item(), run.state["step"].item())
    assert found[0] == found[1]


@pytest.mark.parametrize("name", COUNTING)
def test_the_dictionary_is_one(name):
    """Each way of a dictionary's to its entries gives the same tensors."""
    found = []
    for run in runs(name):
        state = run.state
        step = state["step"]
        assert isinstance(state, dict)
        ways = [
            state.get("step"),
            dict(state)["step"],
            state.copy()["step"],
            {**state}["step"],
            (state | {})["step"],
            dict(state.items())["step"],
            next(iter(state.values())) if next(iter(state)) == "step" else step,
            state.setdefault("step", None),
            copy.copy(state)["step"],
        ]
        assert all(way is step for way in ways), [way is step for way in ways]
        assert copy.deepcopy(state)["step"] is not step
        keys = [list(state), list(state.keys()), [key for key, _ in state.items()]]
        popped = state.pop("step")
        assert popped is step
        found.append((*keys, len(state), "step" in state, state.get("step", 5), step.item()))
        state["step"] = popped
        run.step()
        found[-1] += (list(state), step.item(), state["step"] is step)
    assert found[0] == found[1]


def test_a_step_makes_no_tensor_of_a_number():
    run = Run(gt, "Adam", steps=1)
    counted = []
    for _ in range(3):
        run.step()
        entries = run.optimizer.state[run.params[0]]
        counted.append(dict.__getitem__(entries, "step"))
    assert counted == [2, 3, 4]
    assert all(isinstance(count, int) for count in counted)


@pytest.mark.parametrize("is_infinite", [False, True])
@pytest.mark.parametrize("name", COUNTING)
def test_a_skipped_step_is_not_counted(name, is_infinite):
    """A GradScaler's: neither in the state nor in a tensor that somebody holds."""
    found = []
    for run in runs(name):
        scaler = run.library.GradScaler("cpu", init_scale=4.0)
        held, counts = run.state["step"], []
        for infinite in (is_infinite, False, is_infinite):
            run.optimizer.zero_grad()
            scaler.scale(run.loss() * (float("inf") if infinite else 1.0)).backward()
            scaler.step(run.optimizer)
            scaler.update()
            counts.append((held.item(), run.state["step"] is held))
        found.append((counts, described(run.state), run.values()))
    assert found[0][:2] == found[1][:2]
    for one, other in zip(found[0][2], found[1][2], strict=True):
        np.testing.assert_allclose(one, other, **EXACT)


@pytest.mark.parametrize("steps", [1, 4])
def test_a_users_optimizer_keeps_what_it_puts_in(steps):
    seen = []
    for library in LIBRARIES:

        class Counting(library.optim.Optimizer):
            def step(self):
                for group in self.param_groups:
                    for param in group["params"]:
                        state = self.state[param]
                        state["step"] = state.get("step", 0) + 1

        param = library.ones(2, requires_grad=True)
        optimizer = Counting([param], {})
        for _ in range(steps):
            optimizer.step()
        other = Counting([param], {})
        other.load_state_dict(optimizer.state_dict())
        seen.append((dict(optimizer.state[param]), dict(other.state[param])))
    assert seen[0] == seen[1] == ({"step": steps},) * 2
