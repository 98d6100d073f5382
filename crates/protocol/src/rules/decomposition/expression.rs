//! Expressions in the braces of a definition: sizes, conditions and numbers computed from a call.

use crate::operator::OpInfo;
use crate::placement::{Placement, ShardRanges};
use crate::rules::spread::spec::OpSpec;
use crate::{Attr, AttrKind, Dims, Dtype, Meta, Scalar};
use smallvec::SmallVec;

/// A value of an expression.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum ExpressionValue {
    Absent,
    Bool(bool),
    Int(i64),
    Float(f64),
    Dims(Dims),
    Dtype(Dtype),
    /// A word of a choice.
    Word(&'static str),
    /// Attribute that is passed on unchanged.
    Attr(Attr),
}

#[derive(Clone, Debug)]
pub(super) enum Expression {
    Literal(ExpressionValue),
    /// The dimensions that are reduced or normalised.
    Dims,
    /// Number of members along this dimension of the mesh.
    Members,
    /// Number of results of the operator.
    Outputs,
    Attr(usize),
    Operand(usize),
    /// The first result.
    Result,
    Function(CallFunction, Vec<Expression>),
    Binary(Binary, Box<[Expression; 2]>),
    Not(Box<Expression>),
    /// The second value if the first holds, else the third.
    If(Box<[Expression; 3]>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Binary {
    Or,
    And,
    Equal,
    Less,
    LessOrEqual,
    Add,
    Subtract,
    Multiply,
    Divide,
}

/// Implementation of a function: computes its value from the arguments.
pub(super) type CallFunction = fn(&OpSpec<'_>, &[Expression]) -> Option<ExpressionValue>;

/// All functions. An argument `x` is an operand or `result`, `s` a shape, `d` a list of dimensions.
pub(super) static FUNCTIONS: &[(&str, CallFunction)] = &[
    // cut(x), cut(x, d): true if one of the dimensions is sharded. An empty dimension does not
    // count: an extremum of no elements does not exist, and one instruction on the gathered value
    // handles that case.
    ("cut", cut),
    ("cut_dims", |call, args| {
        Some(ExpressionValue::Dims(Dims::new(&[wide(shards(call, args)?.0)?])?))
    }),
    ("contiguous", |call, args| {
        let single = shards(call, args)?.1.iter().all(|intervals| intervals.len() <= 1);
        Some(ExpressionValue::Bool(single))
    }),
    ("ordered", |call, args| Some(ExpressionValue::Bool(shards(call, args)?.1.in_order()))),
    ("smallest", |call, args| shards(call, args)?.1.sizes().min().map(ExpressionValue::Int)),
    // given(x): true if the operand or attribute is present.
    ("given", given),
    ("half", |call, args| {
        meta(call, args).map(|meta| ExpressionValue::Bool(is_half(meta.dtype))).or(NO)
    }),
    ("float", |call, args| Some(ExpressionValue::Bool(meta(call, args)?.dtype.is_float()))),
    ("dtype", |call, args| Some(ExpressionValue::Dtype(meta(call, args)?.dtype))),
    ("single", |call, args| {
        let dtype = meta(call, args)?.dtype;
        Some(ExpressionValue::Dtype(if is_half(dtype) { Dtype::F32 } else { dtype }))
    }),
    ("shape", |call, args| Some(ExpressionValue::Dims(meta(call, args)?.dims))),
    ("rank", |call, args| Some(ExpressionValue::Int(wide(meta(call, args)?.dims.len())?))),
    ("elements", |call, args| Some(ExpressionValue::Int(meta(call, args)?.elements()))),
    // count(x), count(x, d): number of elements in those dimensions, as the divisor that PyTorch
    // uses.
    ("count", count),
    ("size", |call, args| {
        let place = usize::try_from(*list(call, args, 1)?.first()?).ok()?;
        meta(call, args)?.dims.get(place).copied().map(ExpressionValue::Int)
    }),
    ("rest", |call, args| {
        let (rank, dims) = (meta(call, args)?.dims.len(), list(call, args, 1)?);
        (0..rank).map(wide).filter(|dim| dim.is_some_and(|dim| !dims.contains(&dim))).collect()
    }),
    // Functions of lists: ones(s, d) has size 1 at those dimensions, only(s, d) everywhere else.
    ("list", |call, args| args.iter().map(|arg| integer(call, arg)).collect()),
    ("join", |call, args| {
        let lists: Option<SmallVec<[Dims; 3]>> =
            (0..args.len()).map(|place| list(call, args, place)).collect();
        lists?.iter().flat_map(|list| list.iter().copied()).map(Some).collect()
    }),
    ("zeros", |call, args| (0..integer(call, args.first()?)?).map(|_| Some(0)).collect()),
    ("take", |call, args| {
        let length = usize::try_from(integer(call, args.get(1)?)?).ok()?;
        list(call, args, 0)?.iter().copied().take(length).map(Some).collect()
    }),
    ("drop", |call, args| {
        let length = usize::try_from(integer(call, args.get(1)?)?).ok()?;
        list(call, args, 0)?.iter().copied().skip(length).map(Some).collect()
    }),
    ("item", |call, args| {
        let place = usize::try_from(integer(call, args.get(1)?)?).ok()?;
        Some(ExpressionValue::Int(list(call, args, 0)?.get(place).copied().unwrap_or(0)))
    }),
    ("first", |call, args| list(call, args, 0)?.first().copied().map(ExpressionValue::Int)),
    ("len", |call, args| Some(ExpressionValue::Int(wide(list(call, args, 0)?.len())?))),
    ("ones", |call, args| sizes(call, args, |size, among| Some(if among { 1 } else { size }))),
    ("only", |call, args| sizes(call, args, |size, among| Some(if among { size } else { 1 }))),
    ("without", |call, args| sizes(call, args, |size, among| (!among).then_some(size))),
    ("resized", |call, args| {
        let length = integer(call, args.get(2)?)?;
        sizes(call, args, |size, among| Some(if among { length } else { size }))
    }),
    ("min", |call, args| arithmetic(call, args, i64::min, f64::min)),
    ("max", |call, args| arithmetic(call, args, i64::max, f64::max)),
];

const NO: Option<ExpressionValue> = Some(ExpressionValue::Bool(false));

impl Expression {
    /// `None` where the call lacks a required part, so that the definition does not apply.
    pub fn evaluate(&self, call: &OpSpec<'_>) -> Option<ExpressionValue> {
        Some(match self {
            Self::Literal(value) => value.clone(),
            Self::Dims => ExpressionValue::Dims(Dims::new(&reduced(call)?)?),
            Self::Members => ExpressionValue::Int(wide(call.members)?),
            Self::Outputs => ExpressionValue::Int(wide(call.outputs.len())?),
            Self::Attr(place) => {
                ExpressionValue::of(call.attrs.get(*place)?, call.op.info(), *place)
            }
            Self::Operand(_) | Self::Result => return None,
            Self::Function(function, args) => return function(call, args),
            Self::Not(operand) => ExpressionValue::Bool(!operand.holds(call)?),
            Self::If(parts) => {
                let [condition, yes, no] = &**parts;
                return if condition.holds(call)? { yes } else { no }.evaluate(call);
            }
            Self::Binary(operator, operands) => return operator.evaluate(call, operands),
        })
    }

    /// Evaluates a condition.
    pub fn holds(&self, call: &OpSpec<'_>) -> Option<bool> {
        if let ExpressionValue::Bool(holds) = self.evaluate(call)? { Some(holds) } else { None }
    }
}

impl Binary {
    fn evaluate(self, call: &OpSpec<'_>, operands: &[Expression; 2]) -> Option<ExpressionValue> {
        let [left, right] = operands;
        let order = || {
            let pair = numbers(call, operands)?;
            Some(pair.0.partial_cmp(&pair.1))
        };
        Some(match self {
            Self::Or => ExpressionValue::Bool(left.holds(call)? || right.holds(call)?),
            Self::And => ExpressionValue::Bool(left.holds(call)? && right.holds(call)?),
            Self::Equal => ExpressionValue::Bool(left.evaluate(call)? == right.evaluate(call)?),
            Self::Less => ExpressionValue::Bool(order()?.is_some_and(std::cmp::Ordering::is_lt)),
            Self::LessOrEqual => {
                ExpressionValue::Bool(order()?.is_some_and(std::cmp::Ordering::is_le))
            }
            Self::Add => return arithmetic(call, operands, i64::saturating_add, |a, b| a + b),
            Self::Subtract => return arithmetic(call, operands, i64::saturating_sub, |a, b| a - b),
            Self::Multiply => return arithmetic(call, operands, i64::saturating_mul, |a, b| a * b),
            Self::Divide => {
                let (left, right) = numbers(call, operands)?;
                ExpressionValue::Float(left / right)
            }
        })
    }
}

impl ExpressionValue {
    /// An attribute of the call, converted by the kind in its row.
    fn of(attr: &Attr, info: &'static OpInfo, place: usize) -> Self {
        match (attr, info.attrs.get(place).map(|row| row.kind)) {
            (Attr::Absent, _) => Self::Absent,
            (Attr::Bool(value), _) => Self::Bool(*value),
            (Attr::Int(value), _) => Self::Int(*value),
            (Attr::Float(value), _) => Self::Float(*value),
            (Attr::Ints(dims), _) => Self::Dims(*dims),
            (Attr::Dtype(dtype), _) => Self::Dtype(*dtype),
            (Attr::Choice(index), Some(AttrKind::Choice(words))) => {
                words.get(usize::from(*index)).map_or(Self::Absent, |word| Self::Word(word))
            }
            (other, _) => Self::Attr(other.clone()),
        }
    }

    pub fn list(self) -> Option<Dims> {
        if let Self::Dims(dims) = self { Some(dims) } else { None }
    }

    pub fn dtype(self) -> Option<Dtype> {
        if let Self::Dtype(dtype) = self { Some(dtype) } else { None }
    }

    pub fn integer(self) -> Option<i64> {
        if let Self::Int(value) = self { Some(value) } else { None }
    }

    pub fn number(self) -> Option<Scalar> {
        if let Self::Float(value) = self {
            return Some(Scalar::Float(value));
        }
        self.integer().map(Scalar::Int)
    }

    /// Converts the value to an attribute of this kind.
    pub fn attr(self, kind: AttrKind) -> Option<Attr> {
        Some(match (self, kind) {
            (Self::Absent, _) => Attr::Absent,
            (Self::Bool(value), _) => Attr::Bool(value),
            (Self::Int(value), AttrKind::Scalar) => Attr::Scalar(Scalar::Int(value)),
            (Self::Int(value), _) => Attr::Int(value),
            (Self::Float(value), AttrKind::Scalar) => Attr::Scalar(Scalar::Float(value)),
            (Self::Float(value), _) => Attr::Float(value),
            (Self::Dims(dims), _) => Attr::Ints(dims),
            (Self::Dtype(dtype), _) => Attr::Dtype(dtype),
            (Self::Word(word), AttrKind::Choice(words)) => {
                let index = words.iter().position(|known| *known == word)?;
                Attr::Choice(u8::try_from(index).ok()?)
            }
            (Self::Word(_), _) => return None,
            (Self::Attr(attr), _) => attr,
        })
    }
}

impl FromIterator<i64> for ExpressionValue {
    /// Makes a list; one longer than the maximum rank becomes absent.
    fn from_iter<I: IntoIterator<Item = i64>>(items: I) -> Self {
        let items: SmallVec<[i64; 16]> = items.into_iter().collect();
        Dims::new(&items).map_or(Self::Absent, Self::Dims)
    }
}

fn is_half(dtype: Dtype) -> bool {
    matches!(dtype, Dtype::F16 | Dtype::Bf16)
}

fn wide(value: usize) -> Option<i64> {
    i64::try_from(value).ok()
}

/// Dimensions of the first operand that the call reduces or normalises.
fn reduced(call: &OpSpec<'_>) -> Option<SmallVec<[i64; 8]>> {
    let rank = wide(call.args.first()?.meta?.dims.len())?;
    let info = call.op.info();
    let attr = |name| info.attr_index(name).and_then(|place| call.attrs.get(place));
    if let Some(Attr::Ints(normalized)) = attr("normalized_shape") {
        return Some((rank.checked_sub(wide(normalized.len())?)?..rank).collect());
    }
    let wrapped = |dim: i64| {
        let dim = if dim < 0 { dim + rank } else { dim };
        (0..rank).contains(&dim).then_some(dim)
    };
    match attr("dim") {
        Some(Attr::Int(dim)) => Some(SmallVec::from_elem(wrapped(*dim)?, 1)),
        Some(Attr::Ints(dims)) if !dims.is_empty() => {
            dims.iter().map(|&dim| wrapped(dim)).collect()
        }
        _ => Some((0..rank).collect()),
    }
}

/// The operand or result that is the first argument.
fn meta<'q>(call: &OpSpec<'q>, args: &[Expression]) -> Option<&'q Meta> {
    let first = args.first()?;
    if let Expression::Operand(position) = first {
        return call.args.get(*position)?.meta;
    }
    call.outputs.first().filter(|_| matches!(first, Expression::Result))
}

/// The dimension along which an operand is sharded, and its shards.
fn shards<'q>(call: &OpSpec<'q>, args: &[Expression]) -> Option<(usize, &'q ShardRanges)> {
    let Expression::Operand(position) = args.first()? else { return None };
    match call.args.get(*position)?.placement {
        Placement::Shard { dim, ranges } => Some((*dim, ranges)),
        Placement::Replicate | Placement::Partial(_) => None,
    }
}

fn cut(call: &OpSpec<'_>, args: &[Expression]) -> Option<ExpressionValue> {
    let (Some(meta), Some((dim, _))) = (meta(call, args), shards(call, args)) else { return NO };
    let among = |dim: usize| match args.get(1) {
        Some(_) => {
            list(call, args, 1).is_some_and(|dims| wide(dim).is_some_and(|dim| dims.contains(&dim)))
        }
        None => true,
    };
    let empty = meta.dims.iter().enumerate().any(|(dim, &size)| size == 0 && among(dim));
    Some(ExpressionValue::Bool(!empty && among(dim)))
}

fn given(call: &OpSpec<'_>, args: &[Expression]) -> Option<ExpressionValue> {
    Some(ExpressionValue::Bool(if let Expression::Attr(place) = args.first()? {
        call.attrs.get(*place)? != &Attr::Absent
    } else {
        meta(call, args).is_some()
    }))
}

#[allow(
    clippy::as_conversions,
    clippy::cast_precision_loss,
    reason = "torch divides by the count as a double too"
)]
fn count(call: &OpSpec<'_>, args: &[Expression]) -> Option<ExpressionValue> {
    let shape = meta(call, args)?.dims;
    let among = match args.get(1) {
        Some(_) => list(call, args, 1)?,
        None => (0..shape.len()).map(wide).collect::<Option<ExpressionValue>>()?.list()?,
    };
    let size = |dim: &i64| shape.get(usize::try_from(*dim).ok()?).copied();
    Some(ExpressionValue::Float(among.iter().filter_map(size).product::<i64>() as f64))
}

fn list(call: &OpSpec<'_>, args: &[Expression], place: usize) -> Option<Dims> {
    args.get(place)?.evaluate(call)?.list()
}

fn integer(call: &OpSpec<'_>, arg: &Expression) -> Option<i64> {
    arg.evaluate(call)?.integer()
}

/// The sizes of a shape, each with a flag that is true for listed dimensions.
fn sizes(
    call: &OpSpec<'_>,
    args: &[Expression],
    size: impl Fn(i64, bool) -> Option<i64>,
) -> Option<ExpressionValue> {
    let (shape, dims) = (list(call, args, 0)?, list(call, args, 1)?);
    let among = |dim: usize| wide(dim).is_some_and(|dim| dims.contains(&dim));
    let kept = shape.iter().enumerate().filter_map(|(dim, &one)| size(one, among(dim)));
    Some(kept.collect())
}

fn numbers(call: &OpSpec<'_>, args: &[Expression]) -> Option<(f64, f64)> {
    let number = |place: usize| args.get(place)?.evaluate(call)?.number().map(Scalar::as_f64);
    Some((number(0)?, number(1)?))
}

/// Arithmetic in which integers stay integers.
fn arithmetic(
    call: &OpSpec<'_>,
    args: &[Expression],
    of_integers: fn(i64, i64) -> i64,
    of_floats: fn(f64, f64) -> f64,
) -> Option<ExpressionValue> {
    let integers = integer(call, args.first()?).zip(integer(call, args.get(1)?));
    if let Some((left, right)) = integers {
        return Some(ExpressionValue::Int(of_integers(left, right)));
    }
    let (left, right) = numbers(call, args)?;
    Some(ExpressionValue::Float(of_floats(left, right)))
}
