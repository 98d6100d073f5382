"""tools/formulas.py refuses what the table does not have, and derives what has to be saved."""

import sys
from pathlib import Path

import pytest

if sys.version_info < (3, 11):
    pytest.skip("tools/ need tomllib", allow_module_level=True)

import tomllib

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "tools"))

import formulas  # noqa: E402

pytestmark = pytest.mark.fast

DOCUMENT = tomllib.loads((ROOT / "ops.toml").read_text(encoding="utf-8"))
PROBE = {
    "name": "probe",
    "family": "elementwise",
    "inputs": ["self", "other", "bias?"],
    "attrs": ["dim:int?", "keep:bool", "mode:choice(none|tanh)", "size:ints"],
    "outputs": 2,
}


def compiled(formula, definitions=(), **changes):
    row = PROBE | {"gradient": {"self": formula}} | changes
    rows = [dict(other) for other in DOCUMENT["op"]] + [row]
    formulas.compile_rows(rows, DOCUMENT["definitions"] | dict(definitions))
    return row


@pytest.mark.parametrize(
    ("formula", "saved"),
    [
        ("g", []),
        ("g * other", ["other"]),
        ("g * self + out1", ["self", "out1"]),
        ("g * other if keep else -g", ["other"]),
        ("sum_to(g, shape(other))", []),
        ("zeros(self)", []),
        ("keep(g, self, dim)", []),
        ("reshape(g, [*shape(self)[:-1], 1, numel(out)])", []),
        ("g if ndim(other * 2) == 1 else -g", ["other"]),
        ("g if is_number(other) else -g", ["other"]),
        ("pow_exponent(g, self, other, out)", ["self", "other", "out"]),
        ("g1 + g", []),
    ],
)
def test_what_is_saved_follows_from_the_names(formula, saved):
    assert compiled(formula)["saves"] == saved


@pytest.mark.parametrize(
    ("formula", "error"),
    [
        ("g *", "invalid syntax"),
        ("g * others", "'others' is no operand, attribute or result"),
        ("g * out2", "'out2' is no operand, attribute or result"),
        ("sinus(self)", "sinus is no operator, definition or function"),
        ("sum(g, dim)", "sum needs the attribute keepdim"),
        ("sum(g, dim, keep, None, 1)", "sum has operands"),
        ("sum(g, dim, keep, None, axis=1)", "sum has operands"),
        ("sum(g, keep, keep, None)", "the attribute dim is ints, not bool"),
        ("gelu_backward(g, self, dim)", "the attribute approximate is choice"),
        ("where(g, dim, None)", "the operand other is none"),
        ("zeros(self, other)", "zeros takes 1 arguments"),
        ("clamp_self(g, self)", "clamp_self takes 4 arguments"),
        ("shape(dim)", "shape does not take number"),
        ("shape(self)", "the gradient is ints, not a tensor"),
        ("g if shape(self) else -g", "a condition is of numbers"),
        ("g if keep else shape(g)", "a condition chooses between"),
        ("g + shape(g)", "g and shape(g) are of different kinds"),
        ("g & self", "BitAnd is no operator of formulas"),
        ("[x for x in self]", "is nothing that a formula may have"),
        ("layer_norm(g, None, None, size, 1.0)", "the gradient is several"),
    ],
)
def test_a_wrong_formula_is_told(formula, error):
    with pytest.raises(SystemExit) as refusal:
        compiled(formula)
    assert str(refusal.value).startswith("ops.toml: probe: ")
    assert error in str(refusal.value)


def test_a_row_says_what_its_gradients_are():
    with pytest.raises(SystemExit, match="probe: no gradient"):
        compiled("g", gradient=None)
    with pytest.raises(SystemExit, match="a gradient for others, which is no operand"):
        compiled("g", gradient={"others": "g"})
    assert compiled("g", gradient={})["saves"] == []


def test_a_definition_names_only_its_parameters():
    assert compiled("f(g, other)", [("f(x, y)", "x * y")])["saves"] == ["other"]
    with pytest.raises(SystemExit, match="'other' is no parameter"):
        compiled("f(g)", [("f(x)", "x * other")])
    with pytest.raises(SystemExit, match="definitions of what there is already: exp"):
        compiled("g", [("exp(x)", "x")])


def test_equal_expressions_are_evaluated_once():
    row = compiled("g * exp(self)", gradient={"self": "g * exp(self)", "other": "exp(self) / g"})
    calls = [node for node in row["formulas"].nodes if "Op::Exp" in node.text]
    assert len(calls) == 1
    assert "Expr::Shared" in formulas.rust_file("", [row])


def test_most_gradients_are_text():
    """Python functions are for the few that need control flow."""
    rows = [dict(row) for row in DOCUMENT["op"]]
    formulas.compile_rows(rows, DOCUMENT["definitions"])
    count = sum(len(row["formulas"].differentiable) for row in rows)
    text = sum(len(row["formulas"].text_only) for row in rows)
    assert text >= 0.9 * count, f"{text} of {count}"
