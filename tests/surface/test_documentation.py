"""The text of `help()`: every function has a sentence, arguments, results and an example.

The examples run in this process, and show what the text says.
"""

import doctest
import importlib
import inspect
import pydoc
import re
import subprocess
import sys
from pathlib import Path

import pytest

import gt

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.append(str(ROOT / "tools/site"))
import reference_pages  # noqa: E402

SPACES = ("gt", "gt.linalg", "gt.fft", "gt.special", "gt.nn.functional")
# Functions that no example can show: they end or replace the session, are deprecated and warn,
# were removed by PyTorch and always raise, or need what a worker's CPU refuses (quantized tensors,
# indices of sparse ones).
WITHOUT = set((Path(__file__).parent / "without_example.txt").read_text().split())


def methods():
    """Public methods and attributes of Tensor, without names that raise AttributeError."""
    shown = (name for name in dir(gt.Tensor) if not name.startswith("_"))
    return [(n, getattr(gt.Tensor, n)) for n in shown if hasattr(gt.Tensor, n)]


def classes_of(module):
    """Its public classes; another name of a class has that class's text."""
    for name in sorted({*module.__all__, *dir(module)}):
        value = getattr(module, name)
        if isinstance(value, type) and value.__name__ == name and not name.startswith("_"):
            yield name, value


def functions_of(space):
    if space == "gt.Tensor":
        yield from methods()
        return
    module = importlib.import_module(space)
    if space in CLASSES:
        yield from classes_of(module)
        return
    for name in sorted({*getattr(module, "__all__", ()), *dir(module)}):
        value = getattr(module, name)
        plain = inspect.isfunction(value) or isinstance(value, gt._core.Function)
        if plain and not name.startswith("_"):
            yield name, value


CLASSES = ("gt.nn", "gt.optim", "gt.optim.lr_scheduler", "gt.utils.data", "gt.distributions")
SHAPELESS = {"Module", "ModuleDict", "ModuleList", "ParameterDict", "ParameterList"}
TESTED = (*SPACES, "gt.Tensor", *CLASSES)
CASES = [(space, name) for space in TESTED for name, _ in functions_of(space)]


@pytest.mark.parametrize("space", SPACES)
def test_every_function_says_what_it_takes_and_gives(space):
    for name, function in functions_of(space):
        text = inspect.getdoc(function)
        before, *rest = re.split(r"^(Args|Returns|Raises|Example):$", text, flags=re.MULTILINE)
        assert re.search(r"\w.*[.:]", before), name
        assert {"Args", "Returns"} | needed(space, name) <= set(rest[::2]), name
        taken = rest[rest.index("Args") + 1]
        for parameter in parameters_of(function):
            assert re.search(rf"^    {parameter}\b", taken, re.MULTILINE), (name, parameter)


def needed(space, name):
    return set() if f"{space}.{name}" in WITHOUT else {"Example"}


def parameters_of(function):
    """The names that a function of Python takes; of others the text is the only source."""
    plain = inspect.isfunction(function) or inspect.ismethoddescriptor(function)
    if not plain and not isinstance(function, type):
        return []
    parameters = inspect.signature(function).parameters.values()
    return [p.name for p in parameters if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]


@pytest.mark.timeout(300)
def test_every_method_says_what_it_takes_and_gives():
    assert len(methods()) > 540
    for name, method in methods():
        text = inspect.getdoc(method)
        before, *rest = re.split(r"^(Args|Returns|Raises|Example):$", text, flags=re.MULTILINE)
        assert re.search(r"\w.*[.:]", before), name
        assert {"Returns"} | needed("gt.Tensor", name) <= set(rest[::2]), name
        taken = dict(zip(rest[::2], rest[1::2], strict=True)).get("Args", "")
        for parameter in parameters_of(method)[1:]:
            assert re.search(rf"^    {parameter}\b", taken, re.MULTILINE), (name, parameter)


@pytest.mark.parametrize("space", CLASSES)
def test_every_class_says_what_it_takes(space):
    for name, kind in functions_of(space):
        titles = r"^(Args|Shape|Attributes|Raises|Example):$"
        before, *rest = re.split(titles, inspect.getdoc(kind), flags=re.MULTILINE)
        assert re.search(r"\w.*[.:]", before), name
        parts = dict(zip(rest[::2], rest[1::2], strict=True))
        assert needed(space, name) <= set(parts), name
        is_layer = space == "gt.nn" and issubclass(kind, gt.nn.Module)
        assert not is_layer or "Shape" in parts or name in SHAPELESS, name
        for parameter in parameters_of(kind):
            pattern = rf"^    {parameter}\b"
            assert re.search(pattern, parts.get("Args", ""), re.MULTILINE), (name, parameter)


def test_of_a_class_help_shows_its_text_before_its_bases():
    lines = pydoc.render_doc(gt.nn.Linear, renderer=pydoc.plaintext).splitlines()
    bases = lines.index(" |  Method resolution order:")
    assert {" |  Args:", " |  Shape:", " |  Example:"} < set(lines[:bases])
    assert lines.index(" |  input @ weight.T + bias.") < 6


def test_of_a_method_help_shows_the_signature_first():
    assert pydoc.render_doc(gt.Tensor.sum, renderer=pydoc.plaintext).splitlines()[2:4] == [
        "sum(self, /, dim=None, keepdim=False, *, dtype=None, axis=None, keepdims=None)",
        "    Sum over `dim`; all dimensions if it is not given.",
    ]
    assert inspect.getdoc(gt.Tensor.split).startswith("split(split_size, dim=0, *, axis=None) ->")


@pytest.mark.parametrize("space", TESTED)
def test_examples_show_what_runs(space):
    runner = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE)
    failures = []
    count = 0
    for name, function in functions_of(space):
        found = doctest.DocTestParser().get_doctest(
            inspect.getdoc(function), {"gt": gt}, name, None, None
        )
        if f"{space}.{name}" not in WITHOUT:
            assert found.examples, name
        count += len(found.examples)
        said = []
        if runner.run(found, out=said.append).failed:
            failures.append("".join(said))
    assert not failures, "\n".join(failures)
    assert count >= 10


def test_names_without_an_example_are_functions():
    assert {f"{space}.{name}" for space, name in CASES} >= WITHOUT


def test_of_a_table_function_help_shows_the_signature_first():
    first, _, rest = inspect.getdoc(gt.sin).partition("\n\n")
    assert first == "sin(input)"
    assert rest.startswith("Sine, in radians.\n\nArgs:\n    input (Tensor): the tensor.")


@pytest.mark.timeout(300)
def test_texts_are_what_the_tool_writes_from_their_sources():
    """Random examples would differ from run to run, and texts from sources that have changed."""
    command = [sys.executable, str(ROOT / "tools/reference.py"), "--check"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]


@pytest.mark.parametrize("space", TESTED)
def test_the_reference_has_every_name_once_in_a_family(space):
    public = {name for name, _ in functions_of(space)}
    entries = reference_pages.entries(space)
    families = reference_pages.families(space, [entry.name for entry in entries])
    listed = [name for names in families.values() for name in names]
    assert len(listed) == len(set(listed)) == len(entries)
    assert set(listed) == public


def test_pages_of_the_reference_name_every_namespace():
    pages = (page.read_text(encoding="utf-8") for page in (ROOT / "docs/reference").glob("*.md"))
    assert sorted(reference_pages.LINE.findall("\n".join(pages))) == sorted(TESTED)


def test_an_entry_of_the_reference_has_its_forms_arguments_and_example():
    shown = reference_pages.page("gt.Tensor")
    at = shown.index("### `sum` { #gt.Tensor.sum }")
    entry = shown[at : shown.index("### ", at + 4)]
    assert "```python\nsum(dim=None, keepdim=False, *" in entry
    assert "- `keepdim` (bool): whether reduced dimensions stay" in entry
    assert (
        "```pycon\n>>> x = gt.tensor([[1, 2], [3, 4]])\n>>> x.sum(dim=0)\ntensor([4, 6])" in entry
    )
