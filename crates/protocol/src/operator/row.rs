//! The shape of a row of `ops.toml` as Rust sees it; the rows themselves are in `generated_rows.rs`.

use super::generated_op::Op;
use super::strided::Strided;
use crate::placement::ReduceOp;
use crate::value::dtype::Category;

/// Behaviour is written once for each of these.
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

/// What an operator is to whoever executes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Values from values, by a kernel.
    Compute,
    /// Of the workers of a group, together.
    Collective,
    /// No value comes from it.
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

/// Results of one instruction whose row does not count them: the index of a result has eight bits.
pub const OUTPUTS_MAX: usize = 255;

/// How many values an operand position takes.
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

/// What an attribute holds.
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
    /// It came after the row was released: it stands last, and at a frame's end it has no words when it is absent.
    pub appended: bool,
}

/// Where the result's dtype comes from, of elementwise operators and reductions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DtypeRule {
    /// The family decides.
    Family,
    /// `PyTorch`'s promotion of all operands.
    Promote,
    /// Promotion, then integers and bools become float32.
    Float,
    /// Always bool; the operands are compared in their promoted dtype.
    Bool,
    /// The first operand's.
    First,
    /// The attribute `dtype`, else int64 for integers and bools.
    Sum,
    /// The attribute `dtype` or the operand's, which must be a float.
    Mean,
    /// Bool; bytes stay bytes, as `PyTorch`'s first masks were.
    Truth,
    /// int64, the position of an element.
    Index,
}

/// Dtypes for which `PyTorch` has no kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnsupportedDtypes {
    pub dtypes: &'static [Category],
    /// The kernel's name, or the whole message where it has a space.
    pub text: &'static str,
}

/// Operands that have a property: one, or several that have it together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OperandGroup {
    /// Bit k: operand k; the bit of a list stands for all of its values.
    pub operands: u16,
    /// The result falls where the operand rises.
    pub falls: bool,
    pub condition: Option<Condition>,
}

/// What an attribute must be.
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

/// What stands in a result where no element of an operand does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fill {
    Nothing,
    Zero,
    /// The number in this attribute.
    Attr(usize),
}

/// How the result shares the first operand's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ViewKind {
    /// Each of its elements is another one of the operand's.
    Always,
    /// Several of its elements may be one of the operand's.
    Overlapping,
    /// Only where strides can show it; else the result is a copy.
    Possible,
}

/// The operand that is a layer's weight, a matrix, and how it is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WeightInfo {
    pub operand: usize,
    /// The dimension that is summed over.
    pub in_dim: usize,
    /// The dimension that the result has too.
    pub out_dim: usize,
}

/// Which operator makes the same as one that makes something like its operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Like {
    Always(Op),
    /// The one that this attribute names.
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
    /// The function that `PyTorch` names in its tape and in messages, where `aten` is not it.
    pub function: &'static str,
    pub family: Family,
    pub operands: &'static [OperandInfo],
    pub attrs: &'static [AttrInfo],
    /// How many results it has; 0 where they are a list.
    pub outputs: u8,
    /// Any number of results, which the instruction counts.
    pub output_list: bool,
    pub dtype: DtypeRule,
    /// The index equation of a contraction, else empty.
    pub index: &'static str,
    pub doc: &'static str,
    pub refuses: Option<UnsupportedDtypes>,
    /// Rule, kernels, layouts and gradients hold for complex numbers.
    pub complex: bool,
    /// A reduction of no elements is an error.
    pub nonempty: bool,
    /// A reduction that keeps the operand's shape: what has been reduced so far at each place.
    pub running: bool,
    /// An update of which adjacent instructions with equal attributes may be executed in one call.
    pub grouped: bool,
    /// An engine may compute it in one pass over memory with such rows before and after it; no bit changes.
    pub chains: bool,
    pub view: Option<ViewKind>,
    /// How it is taken and written through; every view has it.
    pub strided: Option<Strided>,
    pub weight: Option<WeightInfo>,
    /// The operands may be exchanged.
    pub commutes: bool,
    /// Instructions carry tensor bytes.
    pub payload: bool,
    /// The operator that makes the same of no operand.
    pub like: Option<Like>,
    /// f(a + b) = f(a) + f(b) in these operands.
    pub linear: &'static [OperandGroup],
    /// The result rises or falls with these operands.
    pub monotone: &'static [OperandGroup],
    /// Each element of a result is one of these operands' or what `fills` says.
    pub selects: &'static [OperandGroup],
    pub fills: Fill,
    /// How operands or elements are combined, and so are the results of parts.
    pub reduce: Option<ReduceOp>,
    /// How the results of parts are combined, of a reduction.
    pub combines: Option<ReduceOp>,
}

impl OpInfo {
    pub const fn kind(&self) -> Kind {
        self.family.kind()
    }

    /// A row that says nothing: what stands in the columns that a row of the table does not have.
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

    /// Whether it may have this many results.
    pub fn fits_outputs(&self, count: usize) -> bool {
        if self.output_list {
            (1..=OUTPUTS_MAX).contains(&count)
        } else {
            count == usize::from(self.outputs)
        }
    }

    /// Whether it defines values.
    pub fn has_outputs(&self) -> bool {
        self.output_list || self.outputs > 0
    }

    /// Whether its results are told apart by an index: there are, or may be, several.
    pub fn has_several_outputs(&self) -> bool {
        self.output_list || self.outputs > 1
    }

    /// Position of the attribute `name`.
    pub fn attr_index(&self, name: &str) -> Option<usize> {
        self.attrs.iter().position(|attr| attr.name == name)
    }

    /// Whether the last operand position is a list.
    pub fn has_list(&self) -> bool {
        self.operands.last().is_some_and(|operand| operand.kind == OperandKind::List)
    }

    /// The first operand of which a result's elements are; 0 where the operator does not select. A condition stands before.
    pub fn first_selected(&self) -> usize {
        let term = self.selects.first();
        term.map_or(0, |term| (0..16).take_while(|place| term.operands >> place & 1 == 0).count())
    }

    /// Number of operand positions before the list.
    pub fn fixed_operands(&self) -> usize {
        self.operands.len() - usize::from(self.has_list())
    }
}
