//! Fields of a frame, written and read: 64-bit numbers, byte strings, scalars.

use super::{LIST_MAX, WireError, WireReason, words_of};
use crate::integer::to_usize;
use crate::value::{DIMS_MAX, Dims, Dtype, Scalar};

/// The low half of a 64-bit number.
#[allow(
    clippy::as_conversions,
    clippy::cast_possible_truncation,
    reason = "only the low half is needed"
)]
const fn low(value: u64) -> u32 {
    value as u32
}

/// Appends a 64-bit number: low word, high word.
pub(crate) fn push_u64(out: &mut Vec<u32>, value: u64) {
    out.extend_from_slice(&[low(value), low(value >> 32)]);
}

pub(super) fn push_i64(out: &mut Vec<u32>, value: i64) {
    push_u64(out, value.cast_unsigned());
}

pub(super) fn push_scalar(out: &mut Vec<u32>, scalar: Scalar) {
    out.extend_from_slice(&scalar_words(scalar));
}

/// The three words of a scalar: its kind, low half, high half.
pub fn scalar_words(scalar: Scalar) -> [u32; 3] {
    let (tag, bits) = match scalar {
        Scalar::Bool(value) => (0, u64::from(value)),
        Scalar::Int(value) => (1, value.cast_unsigned()),
        Scalar::Float(value) => (2, value.to_bits()),
    };
    [tag, low(bits), low(bits >> 32)]
}

/// The scalar in three words.
pub fn scalar(words: &[u32; 3]) -> Result<Scalar, WireError> {
    WordReader::new(words, 0).scalar()
}

/// Appends a count and the numbers.
pub(crate) fn push_dims(out: &mut Vec<u32>, dims: &Dims) {
    push_list(out, dims.as_slice());
}

/// A count as a word. The caller has checked it against a limit.
#[allow(clippy::expect_used, reason = "a count of ours, not of a peer")]
pub(crate) fn count_word(count: usize) -> u32 {
    u32::try_from(count).expect("a count within its limit")
}

/// Appends a count and the numbers. The caller has checked the count against its limit.
pub(super) fn push_list(out: &mut Vec<u32>, values: &[i64]) {
    out.push(count_word(values.len()));
    for &value in values {
        push_i64(out, value);
    }
}

/// Appends a byte length and the bytes, padded with zeros. The caller has checked the length against its limit.
pub(crate) fn push_bytes(out: &mut Vec<u32>, bytes: &[u8]) {
    out.push(count_word(bytes.len()));
    let start = out.len();
    out.resize(start + words_of(bytes.len()), 0);
    let target = bytemuck::cast_slice_mut::<u32, u8>(out.split_at_mut(start).1);
    target.split_at_mut(bytes.len()).0.copy_from_slice(bytes);
}

/// Reads the words of one frame from front to back; every method stops at the declared end.
pub struct WordReader<'a> {
    words: &'a [u32],
    position: usize,
}

impl<'a> WordReader<'a> {
    pub(crate) const fn new(words: &'a [u32], position: usize) -> Self {
        Self { words, position }
    }

    /// An error at the word that was read last.
    #[cold]
    pub(crate) const fn error(&self, reason: WireReason) -> WireError {
        WireError { word: self.position.saturating_sub(1), reason }
    }

    #[inline]
    pub(crate) fn word(&mut self) -> Result<u32, WireError> {
        let Some(&word) = self.words.get(self.position) else {
            return Err(WireError { word: self.words.len(), reason: WireReason::Truncated });
        };
        self.position += 1;
        Ok(word)
    }

    pub(crate) fn u64(&mut self) -> Result<u64, WireError> {
        let low = self.word()?;
        Ok(u64::from(low) | u64::from(self.word()?) << 32)
    }

    pub(crate) fn i64(&mut self) -> Result<i64, WireError> {
        Ok(self.u64()?.cast_signed())
    }

    pub(crate) fn f64(&mut self) -> Result<f64, WireError> {
        Ok(f64::from_bits(self.u64()?))
    }

    pub(crate) fn bool(&mut self) -> Result<bool, WireError> {
        match self.word()? {
            0 => Ok(false),
            1 => Ok(true),
            other => Err(self.error(WireReason::Value("bool", other))),
        }
    }

    pub(crate) fn dtype(&mut self) -> Result<Dtype, WireError> {
        let code = self.word()?;
        Dtype::from_code(code).ok_or_else(|| self.error(WireReason::Value("dtype", code)))
    }

    /// A word that must fit 16 bits.
    pub(crate) fn u16(&mut self, what: &'static str) -> Result<u16, WireError> {
        let word = self.word()?;
        u16::try_from(word).map_err(|_| self.error(WireReason::Value(what, word)))
    }

    pub(crate) fn scalar(&mut self) -> Result<Scalar, WireError> {
        let tag = self.word()?;
        let bits = self.u64()?;
        match (tag, bits) {
            (0, 0) => Ok(Scalar::Bool(false)),
            (0, 1) => Ok(Scalar::Bool(true)),
            (1, _) => Ok(Scalar::Int(bits.cast_signed())),
            (2, _) => Ok(Scalar::Float(f64::from_bits(bits))),
            _ => Err(self.error(WireReason::Value("scalar tag", tag))),
        }
    }

    pub(crate) fn dims(&mut self) -> Result<Dims, WireError> {
        let count = self.word()?;
        if usize::try_from(count).map_or(true, |count| count > DIMS_MAX) {
            return Err(self.error(WireReason::Limit("length of a list", count.into())));
        }
        let mut dims = Dims::EMPTY;
        for _ in 0..count {
            // It cannot be full: the count is checked.
            let _ = dims.push(self.i64()?);
        }
        Ok(dims)
    }

    /// Reads a count of at most [`LIST_MAX`] and the numbers. Nothing is allocated before they are
    /// all known to be there.
    pub(crate) fn list(&mut self) -> Result<Box<[i64]>, WireError> {
        let count = self.word()?;
        let length = to_usize(count);
        if length > LIST_MAX {
            return Err(self.error(WireReason::Limit("length of a list", count.into())));
        }
        let end = self.position + 2 * length;
        let Some(words) = self.words.get(self.position..end) else {
            return Err(WireError { word: self.words.len(), reason: WireReason::Truncated });
        };
        self.position = end;
        let (pairs, _) = words.as_chunks::<2>();
        let number =
            |&[low, high]: &[u32; 2]| (u64::from(low) | u64::from(high) << 32).cast_signed();
        Ok(pairs.iter().map(number).collect())
    }

    /// Borrows a byte string of at most `bytes_max` bytes.
    pub(crate) fn bytes(&mut self, bytes_max: usize) -> Result<&'a [u8], WireError> {
        let length = self.word()?;
        let bytes = to_usize(length);
        if bytes > bytes_max {
            return Err(self.error(WireReason::Limit("byte length", length.into())));
        }
        let end = self.position + words_of(bytes);
        let Some(words) = self.words.get(self.position..end) else {
            return Err(WireError { word: self.words.len(), reason: WireReason::Truncated });
        };
        self.position = end;
        let (bytes, padding) = bytemuck::cast_slice::<u32, u8>(words).split_at(bytes);
        if padding.iter().any(|&byte| byte != 0) {
            return Err(self.error(WireReason::Padding));
        }
        Ok(bytes)
    }

    /// Borrows a text of at most `bytes_max` bytes.
    pub(crate) fn text(&mut self, bytes_max: usize) -> Result<&'a str, WireError> {
        std::str::from_utf8(self.bytes(bytes_max)?).map_err(|_| self.error(WireReason::Utf8))
    }

    /// Borrows what is left, at most `words_max` words.
    pub(crate) fn rest(&mut self, words_max: usize) -> Result<&'a [u32], WireError> {
        let rest = self.words.get(self.position..).unwrap_or_default();
        if rest.len() > words_max {
            let length = u64::try_from(rest.len()).unwrap_or(u64::MAX);
            return Err(self.error(WireReason::Limit("length of a list", length)));
        }
        self.position = self.words.len();
        Ok(rest)
    }

    /// Returns true if nothing is left.
    pub(crate) const fn is_at_end(&self) -> bool {
        self.position == self.words.len()
    }

    /// Checks that every declared word has been read.
    #[inline]
    pub(crate) fn finish(&self) -> Result<(), WireError> {
        match self.words.len() - self.position {
            0 => Ok(()),
            rest => Err(WireError { word: self.position, reason: WireReason::Trailing(rest) }),
        }
    }
}
