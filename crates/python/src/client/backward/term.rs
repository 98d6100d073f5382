//! Values of expressions in gradient formulas, and arithmetic on numbers and shapes. Nothing here
//! is emitted.
//!
//! The generator has checked the kinds of all expressions: a term of another kind than the one
//! asked for is a bug of ours.

use crate::client::emission::emit::Vars;
use crate::client::tape::formula::Infix;
use crate::client::value::variable::Var;
use gt_protocol::{Attr, AttrInfo, AttrKind, Dims, Dtype, Scalar};

#[derive(Clone)]
pub(crate) enum Term {
    Absent,
    Tensor(Var),
    /// The results of an operator with several.
    Several(Vars),
    /// The items of a list operand, some of which may be absent.
    Items(Vec<Term>),
    Number(Scalar),
    Dims(Dims),
    Dtype(Dtype),
    Word(&'static str),
}

impl Term {
    pub(crate) fn of_attr(attr: &Attr, kind: AttrKind) -> Self {
        match (attr, kind) {
            (Attr::Absent, _) => Self::Absent,
            (Attr::Bool(value), _) => Self::Number(Scalar::Bool(*value)),
            (Attr::Int(value), _) => Self::Number(Scalar::Int(*value)),
            (Attr::Float(value), _) => Self::Number(Scalar::Float(*value)),
            (Attr::Scalar(value), _) => Self::Number(*value),
            (Attr::Dtype(dtype), _) => Self::Dtype(*dtype),
            (Attr::Ints(dims), _) => Self::Dims(*dims),
            (Attr::Choice(place), AttrKind::Choice(words)) => words
                .get(usize::from(*place))
                .map_or_else(|| unreachable!("{place} of {words:?}"), |word| Self::Word(word)),
            (Attr::Choice(_) | Attr::List(_) | Attr::Text(_), _) => {
                unreachable!("{attr:?} in a gradient formula")
            }
        }
    }

    pub(crate) fn to_attr(&self, info: &AttrInfo) -> Attr {
        match (self, info.kind) {
            (Self::Absent, _) => Attr::Absent,
            (Self::Number(_), AttrKind::Bool) => Attr::Bool(self.truth()),
            (Self::Number(_), AttrKind::Int) => Attr::Int(self.int()),
            (Self::Number(_), AttrKind::Ints) => Attr::Ints(listed([self.int()])),
            (Self::Number(number), AttrKind::Float) => Attr::Float(number.as_f64()),
            (Self::Number(number), AttrKind::Scalar) => Attr::Scalar(*number),
            (Self::Dims(dims), AttrKind::Ints) => Attr::Ints(*dims),
            (Self::Dtype(dtype), AttrKind::Dtype) => Attr::Dtype(*dtype),
            (Self::Word(word), AttrKind::Choice(words)) => words
                .iter()
                .position(|known| known == word)
                .and_then(|place| u8::try_from(place).ok())
                .map_or_else(|| unreachable!("{word} among {words:?}"), Attr::Choice),
            (
                Self::Tensor(_)
                | Self::Several(_)
                | Self::Items(_)
                | Self::Number(_)
                | Self::Dims(_)
                | Self::Dtype(_)
                | Self::Word(_),
                _,
            ) => unreachable!("{} for the attribute {}", self.kind(), info.name),
        }
    }

    fn kind(&self) -> &'static str {
        match self {
            Self::Absent => "nothing",
            Self::Tensor(_) => "a tensor",
            Self::Several(_) => "several results",
            Self::Items(_) => "a list of tensors",
            Self::Number(_) => "a number",
            Self::Dims(_) => "integers",
            Self::Dtype(_) => "a dtype",
            Self::Word(_) => "a word",
        }
    }

    pub(crate) fn tensor(self) -> Var {
        match self {
            Self::Tensor(var) => var,
            other => unreachable!("{} where a tensor is needed", other.kind()),
        }
    }

    pub(crate) fn number(&self) -> Scalar {
        match self {
            Self::Number(number) => *number,
            other => unreachable!("{} where a number is needed", other.kind()),
        }
    }

    pub(crate) fn int(&self) -> i64 {
        match self.number() {
            Scalar::Int(value) => value,
            other => unreachable!("{other:?} where an integer is needed"),
        }
    }

    pub(crate) fn truth(&self) -> bool {
        self.number().as_f64() != 0.0
    }

    pub(crate) fn dims(&self) -> Dims {
        match self {
            Self::Dims(dims) => *dims,
            other => unreachable!("{} where integers are needed", other.kind()),
        }
    }

    /// `-x` of a number or of each of several integers; not for tensors.
    pub(crate) fn negative(&self) -> Self {
        match self {
            Self::Number(Scalar::Int(value)) => Self::Number(Scalar::Int(-value)),
            Self::Number(number) => Self::Number(Scalar::Float(-number.as_f64())),
            other => Self::Dims(listed(other.dims().iter().map(|value| -value))),
        }
    }

    /// `left op right`, for terms that are not tensors.
    pub(crate) fn infix(infix: Infix, left: &Self, right: &Self) -> Self {
        let equal = match (left, right) {
            (Self::Number(left), Self::Number(right)) => {
                return Self::Number(of_numbers(infix, *left, *right));
            }
            (Self::Word(left), Self::Word(right)) => left == right,
            (left, right) => left.dims() == right.dims(),
        };
        Self::Number(Scalar::Bool(equal == (infix == Infix::Eq)))
    }
}

/// Arithmetic by Python's rules: integers stay integers except in a division.
fn of_numbers(infix: Infix, left: Scalar, right: Scalar) -> Scalar {
    let whole = |number| match number {
        Scalar::Bool(value) => Some(i64::from(value)),
        Scalar::Int(value) => Some(value),
        Scalar::Float(_) => None,
    };
    let (x, y) = (left.as_f64(), right.as_f64());
    let ints = whole(left).zip(whole(right));
    let number = |of_ints: fn(i64, i64) -> i64, of_floats: fn(f64, f64) -> f64| match ints {
        Some((x, y)) => Scalar::Int(of_ints(x, y)),
        None => Scalar::Float(of_floats(x, y)),
    };
    let order = ints.map_or_else(|| x.partial_cmp(&y), |(x, y)| Some(x.cmp(&y)));
    Scalar::Bool(match infix {
        Infix::Add => return number(i64::wrapping_add, |x, y| x + y),
        Infix::Sub => return number(i64::wrapping_sub, |x, y| x - y),
        Infix::Mul => return number(i64::wrapping_mul, |x, y| x * y),
        Infix::Remainder => return number(i64::wrapping_rem_euclid, f64::rem_euclid),
        Infix::Div => return Scalar::Float(x / y),
        Infix::FloorDivide | Infix::Pow | Infix::Matmul => unreachable!("{infix:?} of numbers"),
        Infix::Eq => order.is_some_and(std::cmp::Ordering::is_eq),
        Infix::Ne => !order.is_some_and(std::cmp::Ordering::is_eq),
        Infix::Lt => order.is_some_and(std::cmp::Ordering::is_lt),
        Infix::Le => order.is_some_and(std::cmp::Ordering::is_le),
        Infix::Gt => order.is_some_and(std::cmp::Ordering::is_gt),
        Infix::Ge => order.is_some_and(std::cmp::Ordering::is_ge),
    })
}

/// Integers as a shape. No formula makes more of them than the rank limit of a tensor, plus one.
pub(crate) fn listed(values: impl IntoIterator<Item = i64>) -> Dims {
    let mut dims = Dims::EMPTY;
    for value in values {
        assert!(dims.push(value), "{dims} and {value} are more than a shape has");
    }
    dims
}

/// Tests whether a reduction over `dim` reduces a dimension: `dim` is a number, several numbers, or
/// absent, which means all.
pub(crate) fn reduces(dim: &Term, rank: usize) -> impl Fn(usize) -> bool {
    let dims = match dim {
        Term::Number(_) => listed([dim.int()]),
        Term::Dims(dims) => *dims,
        Term::Absent => Dims::EMPTY,
        other => unreachable!("{} where dimensions are needed", other.kind()),
    };
    move |place| dims.is_empty() || dims.iter().any(|&dim| wrapped(dim, rank) == place)
}

/// A dimension counted from the front.
fn wrapped(dim: i64, rank: usize) -> usize {
    let signed = i64::try_from(rank).expect("a rank is small");
    match usize::try_from(if dim < 0 { dim + signed } else { dim }) {
        Ok(place) => place,
        Err(_) => unreachable!("dimension {dim} of {rank}"),
    }
}

/// Indices of `count` dimensions, as integers.
pub(crate) fn places(count: usize) -> impl DoubleEndedIterator<Item = i64> {
    0..i64::try_from(count).expect("a count of dimensions is small")
}

/// A count as a number.
pub(crate) fn int(value: usize) -> Term {
    Term::Number(Scalar::Int(i64::try_from(value).expect("a count is below 2^63")))
}

pub(crate) fn size(dims: &Dims, dim: i64) -> Term {
    match dims.get(wrapped(dim, dims.len())) {
        Some(size) => Term::Number(Scalar::Int(*size)),
        None => unreachable!("dimension {dim} of {dims}"),
    }
}

pub(crate) fn product(dims: &Dims) -> Term {
    Term::Number(Scalar::Int(dims.elements().expect("checked where the shape was made")))
}

/// `dims[start:end]`, as Python has it.
pub(crate) fn range(dims: &Dims, start: Option<i64>, end: Option<i64>) -> Dims {
    let bound = |bound: i64| {
        let length = i64::try_from(dims.len()).expect("a rank is small");
        let place = if bound < 0 { bound + length } else { bound };
        usize::try_from(place.clamp(0, length)).expect("clamped to 0 and above")
    };
    let (start, end) = (start.map_or(0, bound), end.map_or(dims.len(), bound));
    listed(dims.get(start..end).unwrap_or_default().iter().copied())
}

/// The permutation that undoes `order`.
pub(crate) fn inverse(order: &Dims) -> Dims {
    let rank = order.len();
    let back = |place| order.iter().position(|&dim| wrapped(dim, rank) == place);
    listed((0..rank).map(|place| match back(place) {
        Some(found) => int(found).int(),
        None => unreachable!("{order} is no permutation"),
    }))
}

/// The order of dimensions that swaps the last two.
pub(crate) fn swapped(rank: i64) -> Dims {
    listed((0..rank).map(|dim| match rank - dim {
        1 => dim - 1,
        2 => dim + 1,
        _ => dim,
    }))
}
