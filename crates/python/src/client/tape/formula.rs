//! Gradient formulas as data: tools/formulas.py compiles them from the text in ops.toml. Nothing
//! here knows an operator.

use gt_protocol::{Dtype, Op};

/// The gradient formulas of one operator.
pub(crate) struct Formulas {
    /// Expressions, each after its subexpressions; indices in here are `u8`.
    pub nodes: &'static [Expr],
    /// One formula for each operand of the row; `None` where the result never requires a gradient
    /// because of it.
    pub operands: &'static [Option<Formula>],
}

/// The gradient of one operand.
pub(crate) struct Formula {
    /// Index of the root expression.
    pub root: u8,
    /// Bit k: operand k is saved and read.
    pub operands: u16,
    /// Bit k: output k is saved and read.
    pub outputs: u16,
    /// Bit k: the gradient of output k occurs.
    pub grads: u16,
    /// Values that `PyTorch` saves, so that they must not be written: the column `keeps`, or the
    /// values that are read.
    pub keeps: Saves,
}

/// One expression.
#[derive(Debug)]
pub(crate) enum Expr {
    /// The gradient of an output; absent where none has arrived.
    Grad(u8),
    Operand(u8),
    /// The item of the list operand whose gradient is computed, and its index in the list.
    Item,
    Position,
    /// All items of the list operand, which begins at this position.
    Rest(u8),
    Output(u8),
    Attr(u8),
    /// True if the backward pass itself is recorded.
    CreateGraph,
    Absent,
    Bool(bool),
    Int(i64),
    Float(f64),
    Word(&'static str),
    Dtype(Dtype),
    /// An expression that several others use: its value is kept.
    Shared(u8),
    /// Test, value if true, value if false: only one of the two is evaluated.
    If(u8, u8, u8),
    IsAbsent(u8),
    Infix(Infix, u8, u8),
    Negative(u8),
    /// A list of integers; a shape contributes all of its sizes.
    List(&'static [u8]),
    /// A part of a shape, sliced as in Python.
    Range(u8, Option<i64>, Option<i64>),
    /// One result of an operator with several.
    Result(u8, u8),
    /// A call of an operator: operands, then every attribute of the row.
    Call(Op, &'static [u8], &'static [u8]),
    Apply(Function, &'static [u8]),
    /// A function of gt/tensors/gradients.py.
    Python(&'static str, &'static [u8]),
    /// The gradient of this operand, from the one instruction of this operator that computes all of
    /// them.
    Vjp(Op),
    /// `PyTorch` has no such derivative.
    NotImplemented,
}

/// An operator that takes both tensors and numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(dead_code, reason = "a formula may use any of them; none has to")]
pub(crate) enum Infix {
    Add,
    Sub,
    Mul,
    Div,
    FloorDivide,
    Remainder,
    Pow,
    Matmul,
    Eq,
    Ne,
    Lt,
    Le,
    Gt,
    Ge,
}

/// Functions of shapes and numbers, and functions of tensors that are not operators of the table.
#[derive(Clone, Copy, Debug)]
#[allow(dead_code, reason = "as above")]
pub(crate) enum Function {
    /// Shape of a tensor; it needs no saved operand.
    Shape,
    Dtype,
    Rank,
    Elements,
    /// The size of a dimension, which may count from the end.
    Size,
    /// The product of all sizes.
    Product,
    /// Number of elements that a reduction over dimensions combines into one.
    Count,
    /// A shape in which the reduced dimensions are 1.
    Kept,
    /// The trailing dimensions that a shape covers in another one, counted from the end.
    Last,
    /// The order of dimensions with the last two swapped.
    Swapped,
    /// The permutation that undoes this one.
    Inverse,
    /// Offset of the item along a dimension, in a list of tensors that are concatenated.
    Before,
    Max,
    IsNumber,
    /// The value without its gradient.
    Detach,
    /// The sum over the dimensions in which this shape was broadcast.
    SumTo,
}

/// Operands and outputs of an instruction that its gradient formulas read.
#[derive(Clone, Copy, Default)]
pub(crate) struct Saves {
    /// Bit k: operand k of the row.
    pub operands: u16,
    /// Bit k: output k.
    pub outputs: u16,
}

impl Formulas {
    /// Values that have to be saved where these operands need a gradient. `x * 2` saves no x.
    pub(crate) fn saves(&self, needs: impl Iterator<Item = bool>) -> Saves {
        let mut saves = Saves::default();
        for (position, need) in needs.enumerate() {
            if need && let Some(formula) = self.at(position) {
                saves.operands |= formula.operands;
                saves.outputs |= formula.outputs;
            }
        }
        saves
    }

    /// Values that `PyTorch` would save there.
    pub(crate) fn keeps(&self, needs: impl Iterator<Item = bool>) -> Saves {
        let mut keeps = Saves::default();
        for (position, need) in needs.enumerate() {
            if need && let Some(formula) = self.at(position) {
                keeps.operands |= formula.keeps.operands;
                keeps.outputs |= formula.keeps.outputs;
            }
        }
        keeps
    }

    /// Returns true if any operand that needs a gradient has a formula.
    pub(crate) fn any_for(&self, needs: impl Iterator<Item = bool>) -> bool {
        needs.enumerate().any(|(position, need)| need && self.at(position).is_some())
    }

    /// The formula of a position among the operands; the items of a list share the last one.
    pub(crate) fn at(&self, position: usize) -> Option<&'static Formula> {
        let last = self.operands.len().checked_sub(1)?;
        self.operands.get(position.min(last))?.as_ref()
    }
}
