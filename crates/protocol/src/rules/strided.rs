//! Evaluation of a view's columns `strided.*` for a call. The attributes may come from a peer:
//! nothing overflows or panics, and an expression that does not fit gives `None`.

use super::shape::length;
use crate::operator::{List, Number, Strided, ViewError};
use crate::{Attr, Dims};

/// Environment of an expression.
#[derive(Clone, Copy, Debug)]
pub struct ViewCall<'a> {
    pub attrs: &'a [Attr],
    pub sizes: &'a Dims,
    pub strides: &'a Dims,
    pub result: &'a Dims,
}

impl Strided {
    /// Strides of the result, and its offset, counted from the operand's first element.
    pub fn place(&self, call: &ViewCall<'_>) -> Option<(Dims, i64)> {
        let scope = self.scope(*call, Dims::EMPTY);
        Some((scope.list(&self.strides)?, scope.number(&self.offset)?))
    }

    /// The first mistake, or the result's sizes (for a row without a rule of its own).
    pub fn check(&self, attrs: &[Attr], sizes: &Dims) -> Result<Option<Dims>, String> {
        let call = ViewCall { attrs, sizes, strides: sizes, result: &Dims::EMPTY };
        let scope = self.scope(call, Dims::EMPTY);
        for error in self.errors {
            if scope.number(&error.condition) != Some(0) {
                return Err(scope.text(error));
            }
        }
        Ok(self.sizes.as_ref().and_then(|sizes| scope.list(sizes)))
    }

    /// The attribute with which the operator restores its operand, of these sizes, from its result.
    pub fn undone(&self, attrs: &[Attr], sizes: &Dims) -> Option<Dims> {
        let call = ViewCall { attrs, sizes, strides: sizes, result: &Dims::EMPTY };
        self.scope(call, Dims::EMPTY).list(self.undo.as_ref()?)
    }

    /// The attribute of one operator that replaces two.
    pub fn merged(&self, first: &[Attr], second: &[Attr]) -> Option<Dims> {
        let Some(Attr::Ints(before)) = first.first() else { return None };
        let none = Dims::EMPTY;
        let call = ViewCall { attrs: second, sizes: before, strides: before, result: &none };
        self.scope(call, *before).list(self.merged.as_ref()?)
    }

    fn scope<'a>(&self, call: ViewCall<'a>, before: Dims) -> Evaluator<'a> {
        Evaluator { call, dims: self.dims, before }
    }
}

struct Evaluator<'a> {
    call: ViewCall<'a>,
    dims: u16,
    before: Dims,
}

impl Evaluator<'_> {
    fn is_dims(&self, attr: usize) -> bool {
        attr < 16 && self.dims >> attr & 1 != 0
    }

    /// A dimension counted from the front. A scalar counts as having one.
    fn wrapped(&self, dim: i64) -> Option<i64> {
        let rank = length(self.call.sizes.len()).max(1);
        let wrapped = if dim < 0 { dim.saturating_add(rank) } else { dim };
        (0..rank).contains(&wrapped).then_some(wrapped)
    }

    fn number(&self, number: &Number) -> Option<i64> {
        let both = |left, right| Some((self.number(left)?, self.number(right)?));
        Some(match *number {
            Number::Literal(value) => value,
            Number::Attr(place) => match (self.call.attrs.get(place)?, self.is_dims(place)) {
                (Attr::Int(dim), true) => self.wrapped(*dim)?,
                (Attr::Int(value), false) => *value,
                (Attr::Bool(value), false) => i64::from(*value),
                (_, _) => return None,
            },
            // A scalar has no such dimension: it counts as size and stride 1.
            Number::At(list, place) => {
                let place = usize::try_from(self.number(place)?).ok()?;
                self.list(list)?.get(place).copied().unwrap_or(1)
            }
            Number::Length(list) => length(self.list(list)?.len()),
            Number::Add(left, right) => both(left, right).map(|(a, b)| a.saturating_add(b))?,
            Number::Subtract(left, right) => both(left, right).map(|(a, b)| a.saturating_sub(b))?,
            Number::Multiply(left, right) => both(left, right).map(|(a, b)| a.saturating_mul(b))?,
            Number::Divide(left, right) => {
                let (a, b) = both(left, right).filter(|(_, b)| *b > 0)?;
                a.checked_div_euclid(b)?
            }
            Number::Min(left, right) => both(left, right).map(|(a, b)| a.min(b))?,
            Number::Max(left, right) => both(left, right).map(|(a, b)| a.max(b))?,
            Number::Less(left, right) => both(left, right).map(|(a, b)| i64::from(a < b))?,
            Number::Equal(left, right) => both(left, right).map(|(a, b)| i64::from(a == b))?,
            Number::If(condition, yes, no) => {
                return self.number(if self.number(condition)? == 0 { no } else { yes });
            }
        })
    }

    fn list(&self, list: &List) -> Option<Dims> {
        let call = &self.call;
        Some(match *list {
            List::Sizes => *call.sizes,
            List::Strides => *call.strides,
            List::Result => *call.result,
            List::Before => self.before,
            List::Attr(place) => match (call.attrs.get(place)?, self.is_dims(place)) {
                (Attr::Ints(dims), true) => collected(dims.iter().map(|&dim| self.wrapped(dim)))?,
                (Attr::Ints(values), false) => *values,
                (_, _) => return None,
            },
            List::Of(numbers) => collected(numbers.iter().map(|number| self.number(number)))?,
            List::Join(left, right) => {
                let (left, right) = (self.list(left)?, self.list(right)?);
                collected(left.iter().chain(right.iter()).copied().map(Some))?
            }
            List::Set(list, place, value) => {
                let (mut list, place) = (self.list(list)?, usize::try_from(self.number(place)?));
                if let Some(place) = list.as_mut_slice().get_mut(place.ok()?) {
                    *place = self.number(value)?;
                }
                list
            }
            List::Without(list, places) => {
                let (list, places) = (self.list(list)?, self.list(places)?);
                let kept = list.iter().enumerate().filter(|(at, _)| !places.contains(&length(*at)));
                collected(kept.map(|(_, &value)| Some(value)))?
            }
            List::Pick(list, places) => {
                let (list, places) = (self.list(list)?, self.list(places)?);
                let at = |&place: &i64| list.get(usize::try_from(place).ok()?).copied();
                collected(places.iter().map(at))?
            }
            List::Inverse(order) => {
                let order = self.list(order)?;
                let place = |dim| order.iter().position(|&at| at == length(dim)).map(length);
                collected((0..order.len()).map(place))?
            }
            List::Stretched => stretched(call)?,
            List::Regrouped => regrouped(call.sizes, call.strides, call.result)?,
        })
    }

    fn text(&self, error: &ViewError) -> String {
        let mut parts = error.text.split("{}");
        let mut text = parts.next().unwrap_or_default().to_owned();
        for (part, number) in parts.zip(error.numbers) {
            let number = self.number(number);
            text.push_str(&number.map_or_else(|| "?".to_owned(), |number| number.to_string()));
            text.push_str(part);
        }
        text
    }
}

fn collected(numbers: impl Iterator<Item = Option<i64>>) -> Option<Dims> {
    let mut list = Dims::EMPTY;
    for number in numbers {
        list.push(number?).then_some(())?;
    }
    Some(list)
}

/// Strides of a broadcast: repeated dimensions have stride 0, new ones of size 1 are placed before
/// the next one.
fn stretched(call: &ViewCall<'_>) -> Option<Dims> {
    let (old, new) = (call.sizes, call.result);
    let added = new.len().checked_sub(old.len())?;
    let mut strides = *new;
    for place in (0..new.len()).rev() {
        let size = *new.get(place)?;
        let stride = match place.checked_sub(added) {
            Some(before) if *old.get(before)? == size => *call.strides.get(before)?,
            None if size == 1 && !old.is_empty() => new.get(place + 1)? * strides.get(place + 1)?,
            Some(_) | None => 0,
        };
        *strides.as_mut_slice().get_mut(place)? = stride;
    }
    Some(strides)
}

/// Strides of a reshape; dimensions that are merged must be contiguous. (The rule of
/// `at::detail::computeStride`: walk both shapes from the end, chunk by chunk.)
pub fn regrouped(old: &Dims, strides: &Dims, new: &Dims) -> Option<Dims> {
    if old.contains(&0) || new.contains(&0) {
        return Some(if old == new { *strides } else { contiguous(new) });
    }
    let mut result = *new;
    let mut place = new.len();
    let mut chunk_stride = strides.last().copied().unwrap_or(1);
    let mut chunk_size = 1_i64;
    for dim in (0..old.len()).rev() {
        chunk_size *= old.get(dim)?;
        let ends = dim == 0
            || (*old.get(dim - 1)? != 1 && *strides.get(dim - 1)? != chunk_size * chunk_stride);
        if !ends {
            continue;
        }
        let mut viewed = 1_i64;
        while place > 0 && (viewed < chunk_size || *new.get(place - 1)? == 1) {
            place -= 1;
            *result.as_mut_slice().get_mut(place)? = viewed * chunk_stride;
            viewed *= new.get(place)?;
        }
        if viewed != chunk_size {
            return None;
        }
        if dim > 0 {
            chunk_stride = *strides.get(dim - 1)?;
            chunk_size = 1;
        }
    }
    // Only dimensions of size 1 can be left, in a reshape of a scalar.
    for entry in result.as_mut_slice().iter_mut().take(place) {
        *entry = 1;
    }
    Some(result)
}

/// Strides of row-major elements, as `PyTorch` computes them: an empty dimension counts as one of
/// size 1.
pub fn contiguous(dims: &Dims) -> Dims {
    let mut strides = *dims;
    let mut stride = 1_i64;
    for (place, size) in strides.as_mut_slice().iter_mut().rev().zip(dims.iter().rev()) {
        *place = stride;
        stride = stride.saturating_mul((*size).max(1));
    }
    strides
}
