//! The Rust type of a row of `ops.toml`; the rows themselves are in `generated_rows.rs`.

use super::generated_op::Op;
use super::strided::Strided;
use crate::placement::ReduceOp;
use crate::value::dtype::Category;

/// Families of operators: behaviour is written once for each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    Create,
    Random,
    Elementwise,
    Contract,
    Reduce,
    Normalize,
    View,
    Index,
    Loss,
    Update,
    Generic,
    Control,
    Collective,
}

/// Kind of an operator, which determines the executor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Computes values from values, by a kernel.
    Compute,
    /// Computed by the workers of a group together.
    Collective,
    /// Defines no value.
    Control,
}

impl Family {
    pub const fn kind(self) -> Kind {
        match self {
            Self::Create
            | Self::Random
            | Self::Elementwise
            | Self::Contract
            | Self::Reduce
            | Self::Normalize
            | Self::View
            | Self::Index
            | Self::Loss
            | Self::Update
            | Self::Generic => Kind::Compute,
            Self::Collective => Kind::Collective,
            Self::Control => Kind::Control,
        }
    }
}

/// Maximum number of results of an instruction whose row does not count them: the index of a result
/// has eight bits.
pub const OUTPUTS_MAX: usize = 255;

/// Number of values that an operand position takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OperandKind {
    Required,
    Optional,
    /// Any number; only the last position may be a list.
    List,
}

/// One operand position.
#[derive(Clone, Copy, Debug)]
pub struct OperandInfo {
    pub name: &'static str,
    pub kind: OperandKind,
}

/// Kind of an attribute's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AttrKind {
    Bool,
    Int,
    Float,
    Scalar,
    Dtype,
    Ints,
    /// Up to 4,096 integers: members of a group, their sizes.
    List,
    Text,
    /// One word of a closed list.
    Choice(&'static [&'static str]),
}

/// One attribute.
#[derive(Clone, Copy, Debug)]
pub struct AttrInfo {
    pub name: &'static str,
    pub kind: AttrKind,
    pub optional: bool,
    /// Added after the row's release: it is last in the row, and at a frame's end it has no words
    /// when it is absent.
    pub appended: bool,
}

/// Source of the result's dtype, for elementwise operators and reductions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DtypeRule {
    /// The family's rule determines it.
    Family,
    /// `PyTorch`'s promotion of all operands.
    Promote,
    /// Promotion, then integers and bools become float32.
    Float,
    /// Always bool; the operands are compared in their promoted dtype.
    Bool,
    /// The first operand's dtype.
    First,
    /// The attribute `dtype`, else int64 for integers and bools.
    Sum,
    /// The attribute `dtype` or the operand's, which must be a float.
    Mean,
    /// Bool; uint8 stays uint8, like `PyTorch`'s first masks.
    Truth,
    /// int64, the position of an element.
    Index,
}

/// Dtypes for which `PyTorch` has no kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnsupportedDtypes {
    pub dtypes: &'static [Category],
    /// Name of the kernel, or the whole message where it has a space.
    pub text: &'static str,
}

/// Operands that have a property: one, or several together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OperandGroup {
    /// Bit k: operand k; the bit of a list stands for all of its values.
    pub operands: u16,
    /// The result falls where the operand rises.
    pub falls: bool,
    pub condition: Option<Condition>,
}

/// Condition on an attribute.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Condition {
    pub attr: usize,
    pub test: AttrTest,
}

/// A test of an attribute's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AttrTest {
    True,
    False,
    NotNegative,
    Zero,
}

/// Value of a result's elements that come from no element of the operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fill {
    Nothing,
    Zero,
    /// The number in this attribute.
    Attr(usize),
}

/// Relation of the result's memory to the first operand's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ViewKind {
    /// Each element of the result is a different element of the operand.
    Always,
    /// Several elements of the result may be the same element of the operand.
    Overlapping,
    /// A view only where strides can express it; else the result is a copy.
    Possible,
}

/// The operand that is a layer's weight, a matrix, and its orientation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WeightInfo {
    pub operand: usize,
    /// The dimension that is summed over.
    pub in_dim: usize,
    /// The dimension that the result has too.
    pub out_dim: usize,
}

/// Operator that creates the same values without an operand, for one that creates values like its
/// operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Like {
    Always(Op),
    /// The operator that this attribute names.
    Named(usize),
}

/// One row of `ops.toml`.
#[derive(Debug)]
#[allow(clippy::struct_excessive_bools, reason = "each is a column of its own")]
pub struct OpInfo {
    pub op: Op,
    pub name: &'static str,
    pub code: u16,
    pub aten: &'static str,
    /// The function that `PyTorch` names on its tape and in messages, where that differs from
    /// `aten`.
    pub function: &'static str,
    pub family: Family,
    pub operands: &'static [OperandInfo],
    pub attrs: &'static [AttrInfo],
    /// Number of results; 0 where they are a list.
    pub outputs: u8,
    /// The instruction states the number of results.
    pub output_list: bool,
    pub dtype: DtypeRule,
    /// The index equation of a contraction, else empty.
    pub index: &'static str,
    pub doc: &'static str,
    pub refuses: Option<UnsupportedDtypes>,
    /// Rule, kernels, layouts and gradients are valid for complex numbers.
    pub complex: bool,
    /// A reduction of no elements is an error.
    pub nonempty: bool,
    /// A reduction that keeps the operand's shape: each position has the reduction up to there.
    pub running: bool,
    /// An update that may be executed in one call with adjacent instructions of equal attributes.
    pub grouped: bool,
    /// An engine may compute it in one pass over memory with such rows before and after it; the
    /// results are bit-identical.
    pub chains: bool,
    pub view: Option<ViewKind>,
    /// View strides and write-back; every view has them.
    pub strided: Option<Strided>,
    pub weight: Option<WeightInfo>,
    /// The operands may be exchanged.
    pub commutes: bool,
    /// Instructions carry tensor bytes.
    pub payload: bool,
    /// The operator that creates the same values without an operand.
    pub like: Option<Like>,
    /// f(a + b) = f(a) + f(b) in these operands.
    pub linear: &'static [OperandGroup],
    /// The result rises or falls with these operands.
    pub monotone: &'static [OperandGroup],
    /// Each element of a result is an element of one of these operands, or has the value of
    /// `fills`.
    pub selects: &'static [OperandGroup],
    pub fills: Fill,
    /// Reduction that combines the operands or elements, and also the results of parts.
    pub reduce: Option<ReduceOp>,
    /// Reduction that combines the results of parts, for a reduction.
    pub combines: Option<ReduceOp>,
}

impl OpInfo {
    pub const fn kind(&self) -> Kind {
        self.family.kind()
    }

    /// A row with the defaults of all columns.
    pub(crate) const PLAIN: Self = Self {
        op: Op::Free,
        name: "",
        code: 0,
        aten: "",
        function: "",
        family: Family::Control,
        operands: &[],
        attrs: &[],
        outputs: 1,
        output_list: false,
        dtype: DtypeRule::Family,
        index: "",
        doc: "",
        refuses: None,
        complex: false,
        nonempty: false,
        running: false,
        grouped: false,
        chains: false,
        view: None,
        strided: None,
        weight: None,
        commutes: false,
        payload: false,
        like: None,
        linear: &[],
        monotone: &[],
        selects: &[],
        fills: Fill::Nothing,
        reduce: None,
        combines: None,
    };

    /// Returns true if this number of results is allowed.
    pub fn fits_outputs(&self, count: usize) -> bool {
        if self.output_list {
            (1..=OUTPUTS_MAX).contains(&count)
        } else {
            count == usize::from(self.outputs)
        }
    }

    /// Returns true if it defines values.
    pub fn has_outputs(&self) -> bool {
        self.output_list || self.outputs > 0
    }

    /// Returns true if its results are identified by an index: there are, or may be, several.
    pub fn has_several_outputs(&self) -> bool {
        self.output_list || self.outputs > 1
    }

    /// Position of the attribute `name`.
    pub fn attr_index(&self, name: &str) -> Option<usize> {
        self.attrs.iter().position(|attr| attr.name == name)
    }

    /// Returns true if the last operand position is a list.
    pub fn has_list(&self) -> bool {
        self.operands.last().is_some_and(|operand| operand.kind == OperandKind::List)
    }

    /// Index of the first operand whose elements a result has; 0 where the operator does not
    /// select. A condition comes before it.
    pub fn first_selected(&self) -> usize {
        let term = self.selects.first();
        term.map_or(0, |term| (0..16).take_while(|place| term.operands >> place & 1 == 0).count())
    }

    /// Number of operand positions before the list.
    pub fn fixed_operands(&self) -> usize {
        self.operands.len() - usize::from(self.has_list())
    }
}
