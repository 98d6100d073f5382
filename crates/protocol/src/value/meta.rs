//! Shapes and the metadata of a value.

use super::dtype::Dtype;
use std::fmt;

/// Maximum number of dimensions of a tensor, so that a shape is a plain array without an
/// allocation.
pub const DIMS_MAX: usize = 8;

/// A short inline list of integers: a shape, or the dimensions in an attribute.
#[derive(Clone, Copy, Eq)]
pub struct Dims {
    length: u8,
    values: [i64; DIMS_MAX],
}

impl Dims {
    /// The empty list: the shape of a scalar.
    pub const EMPTY: Self = Self { length: 0, values: [0; DIMS_MAX] };

    /// Copy of the list, or `None` if it is longer than [`DIMS_MAX`].
    pub fn new(values: &[i64]) -> Option<Self> {
        let mut dims = Self::EMPTY;
        dims.values.get_mut(..values.len())?.copy_from_slice(values);
        dims.length = u8::try_from(values.len()).ok()?;
        Some(dims)
    }

    pub fn len(&self) -> usize {
        usize::from(self.length)
    }

    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// Number of dimensions, in the integer type of dimensions.
    pub fn rank(&self) -> i64 {
        self.length.into()
    }

    pub fn as_slice(&self) -> &[i64] {
        self.values.split_at(self.len()).0
    }

    pub fn as_mut_slice(&mut self) -> &mut [i64] {
        let length = self.len();
        self.values.split_at_mut(length).0
    }

    /// Adds a value at the end; false if the list is full.
    #[must_use]
    pub fn push(&mut self, value: i64) -> bool {
        let Some(place) = self.values.get_mut(usize::from(self.length)) else { return false };
        *place = value;
        self.length += 1;
        true
    }

    /// The product of the sizes (1 for a scalar), or `None` when it does not fit.
    #[inline]
    pub fn elements(&self) -> Option<i64> {
        let product = self.iter().try_fold(1_i64, |product, &size| product.checked_mul(size));
        if product.is_none() && self.contains(&0) { Some(0) } else { product }
    }
}

/// Compares the used entries in a loop: for so few a call of `memcmp` takes longer.
impl PartialEq for Dims {
    #[inline]
    fn eq(&self, other: &Self) -> bool {
        self.length == other.length && self.iter().zip(other.iter()).all(|(mine, its)| mine == its)
    }
}

impl std::hash::Hash for Dims {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.as_slice().hash(state);
    }
}

impl std::ops::Deref for Dims {
    type Target = [i64];

    fn deref(&self) -> &[i64] {
        self.as_slice()
    }
}

impl fmt::Debug for Dims {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.as_slice(), out)
    }
}

/// `[2, 3]`, as `PyTorch` prints a size in its messages.
impl fmt::Display for Dims {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.as_slice(), out)
    }
}

/// Dtype and shape of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Meta {
    pub dtype: Dtype,
    pub dims: Dims,
}

impl Meta {
    pub fn new(dtype: Dtype, dims: Dims) -> Self {
        Self { dtype, dims }
    }

    /// Number of elements; a shape is checked for overflow when it is made, so the product fits.
    #[inline]
    pub fn elements(&self) -> i64 {
        self.dims.elements().unwrap_or(i64::MAX)
    }

    /// Bytes of a contiguous value.
    #[inline]
    pub fn bytes(&self) -> u64 {
        u64::try_from(self.elements()).unwrap_or(0).saturating_mul(self.dtype.size())
    }
}

/// `f32[2,3]`
impl fmt::Display for Meta {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}[", self.dtype.short())?;
        for (position, size) in self.dims.iter().enumerate() {
            write!(out, "{}{size}", if position == 0 { "" } else { "," })?;
        }
        out.write_str("]")
    }
}
