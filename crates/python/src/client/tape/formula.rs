//! Gradient formulas as data: what tools/formulas.py compiles the text in ops.toml to. Nothing here knows an operator.

use gt_protocol::{Dtype, Op};

/// The gradient formulas of one operator.
pub(crate) struct Formulas {
    /// Expressions, each after those that it is made of; places in here are `u8`.
    pub nodes: &'static [Expr],
    /// One an operand of the row; `None` where the result never requires a gradient because of it.
    pub operands: &'static [Option<Formula>],
}

/// The gradient of one operand.
pub(crate) struct Formula {
    /// The node that is its value.
    pub root: u8,
    /// Bit k: operand k is read again.
    pub operands: u16,
    /// Bit k: output k is read again.
    pub outputs: u16,
    /// Bit k: the gradient of output k occurs.
    pub grads: u16,
    /// What `PyTorch` keeps, so that it must not be written: the column `keeps`, or what is read again.
    pub keeps: Saves,
}

/// One expression.
#[derive(Debug)]
pub(crate) enum Expr {
    /// The gradient of an output; absent where none has arrived.
    Grad(u8),
    Operand(u8),
    /// The item of the list operand whose gradient is computed, and its place in the list.
    Item,
    Position,
    /// All items of the list operand, which begins at this position.
    Rest(u8),
    Output(u8),
    Attr(u8),
    /// Whether the backward pass is recorded itself.
    CreateGraph,
    Absent,
    Bool(bool),
    Int(i64),
    Float(f64),
    Word(&'static str),
    Dtype(Dtype),
    /// An expression that several others use: its value is kept.
    Shared(u8),
    /// Test, value where it holds, value where it does not: only one of the two is evaluated.
    If(u8, u8, u8),
    IsAbsent(u8),
    Infix(Infix, u8, u8),
    Negative(u8),
    /// Integers, one after the other; a shape stands for all of its sizes.
    List(&'static [u8]),
    /// Part of a shape, as Python's slices.
    Range(u8, Option<i64>, Option<i64>),
    /// One result of an operator with several.
    Result(u8, u8),
    /// Operands, then every attribute of the row.
    Call(Op, &'static [u8], &'static [u8]),
    Apply(Function, &'static [u8]),
    /// A function of gt/gradients.py.
    Python(&'static str, &'static [u8]),
    /// The gradient at this position, of those that one instruction of this operator gives.
    Vjp(Op),
    /// `PyTorch` has no such derivative.
    NotImplemented,
}

/// An operator of tensors that numbers have too.
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

/// Functions of shapes and numbers, and of tensors where no operator of the table is one.
#[derive(Clone, Copy, Debug)]
#[allow(dead_code, reason = "as above")]
pub(crate) enum Function {
    /// Of a tensor; an operand need not be saved for these.
    Shape,
    Dtype,
    Rank,
    Elements,
    /// The size of a dimension, which may count from the end.
    Size,
    /// The product of all sizes.
    Product,
    /// How many elements a reduction of a shape over dimensions makes one of.
    Count,
    /// A shape with the reduced dimensions as 1.
    Kept,
    /// The dimensions that a shape at the end of another one covers, counted from the end.
    Last,
    /// The order of dimensions with the last two swapped.
    Swapped,
    /// The permutation that undoes this one.
    Inverse,
    /// Where the item begins along a dimension, in a list of tensors that are concatenated.
    Before,
    Max,
    IsNumber,
    /// Without a gradient of its own.
    Detach,
    /// The sum over the dimensions in which this shape was broadcast.
    SumTo,
}

/// Operands and outputs that the gradient formulas of an instruction read again.
#[derive(Clone, Copy, Default)]
pub(crate) struct Saves {
    /// Bit k: operand k of the row.
    pub operands: u16,
    /// Bit k: output k.
    pub outputs: u16,
}

impl Formulas {
    /// What has to be saved where these operands need a gradient. `x * 2` saves no x.
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

    /// What `PyTorch` would keep there.
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

    /// Whether any operand that needs a gradient has a formula.
    pub(crate) fn any_for(&self, needs: impl Iterator<Item = bool>) -> bool {
        needs.enumerate().any(|(position, need)| need && self.at(position).is_some())
    }

    /// The formula of a position among the operands; the items of a list share the last one.
    pub(crate) fn at(&self, position: usize) -> Option<&'static Formula> {
        let last = self.operands.len().checked_sub(1)?;
        self.operands.get(position.min(last))?.as_ref()
    }
}
