//! float32 that are integer multiples, up to 127, of one number, as a codec with a scale for each
//! block leaves them. Neither the blocks nor their scales are known here: a run continues for as
//! long as its numbers have a sufficiently large common divisor.
//!
//! Behind the head, run by run: the divisor (4 bytes), count minus one (1), a signed byte for each
//! number. If the divisor is a NaN, four unpacked bytes for each number follow.

/// Maximum length of a run, that of a codec's block.
const NUMBERS_MAX: usize = 256;
/// Minimum length of a run: shorter ones take more bytes than their numbers.
const NUMBERS_MIN: usize = 8;
const MULTIPLE_MAX: f32 = 127.0;
/// Fraction of the largest number below which a remainder cannot be the divisor: the largest number
/// would be too large a multiple of it, even after rounding.
const REMAINDER_MIN: f32 = 0.99 / MULTIPLE_MAX;
/// Number of elements after which it is clear whether packing pays.
const TRIAL_NUMBERS: usize = 4096;

/// Common divisor of the numbers of a run.
#[derive(Clone, Copy, Debug, Default)]
struct Grid {
    /// The divisor; 0 while there are only zeros.
    divisor: f32,
    largest: f32,
}

impl Grid {
    /// Adds one number; `None` if it is no multiple, or the others would not be multiples of the
    /// new divisor.
    #[inline]
    fn with(self, number: f32) -> Option<Self> {
        if number.to_bits() == 0 {
            return Some(self);
        }
        let size = number.abs();
        let quotient = size / self.divisor;
        if (1.0..=MULTIPLE_MAX).contains(&quotient) && quotient.fract() == 0.0 {
            return Some(Self { largest: self.largest.max(size), ..self });
        }
        if size.is_normal() { self.divided(size) } else { None }
    }

    /// Greatest common divisor by Euclid's algorithm, whose remainders are exact.
    #[cold]
    fn divided(self, size: f32) -> Option<Self> {
        let largest = self.largest.max(size);
        let (mut large, mut divisor) =
            if self.divisor > 0.0 { (size, self.divisor) } else { (size, size) };
        loop {
            let rest = large % divisor;
            if rest == 0.0 {
                break;
            }
            if rest < largest * REMAINDER_MIN {
                return None;
            }
            (large, divisor) = (divisor, rest);
        }
        (largest <= divisor * MULTIPLE_MAX).then_some(Self { divisor, largest })
    }

    /// Appends the numbers as multiples; false if they would not be restored exactly.
    fn multiples(self, numbers: &[[u8; 4]], out: &mut Vec<u8>) -> bool {
        let start = out.len();
        let mut is_exact = true;
        out.extend(numbers.iter().map(|bytes| {
            let number = f32::from_le_bytes(*bytes);
            let multiple = if self.divisor > 0.0 { whole(number / self.divisor) } else { 0 };
            is_exact &= (f32::from(multiple) * self.divisor).to_le_bytes() == *bytes;
            multiple.cast_unsigned()
        }));
        if !is_exact {
            out.truncate(start);
        }
        is_exact
    }
}

#[allow(
    clippy::as_conversions,
    clippy::cast_possible_truncation,
    reason = "a whole number up to 127; of any other one the result is compared with it"
)]
const fn whole(number: f32) -> i8 {
    number as i8
}

/// Appends the packed form; returns false, possibly with a part of it appended, where it does not
/// pay.
pub fn pack(bytes: &[u8], out: &mut Vec<u8>) -> bool {
    let (mut numbers, rest) = bytes.as_chunks::<4>();
    if !rest.is_empty() {
        return false;
    }
    let (start, all) = (out.len(), numbers.len());
    let mut is_tried = false;
    // Numbers before `numbers` that are in no run.
    let mut single: &[[u8; 4]] = &[];
    while !numbers.is_empty() {
        let (grid, count) = run(numbers);
        let Some((front, others)) = numbers.split_at_checked(count) else { return false };
        let at = out.len();
        if count >= NUMBERS_MIN && append(grid, front, single, out) {
            single = &[];
        } else {
            out.truncate(at);
            let Some(more) = joined(bytes, single.len() + count, others.len()) else {
                return false;
            };
            single = more;
        }
        numbers = others;
        let done = all - numbers.len();
        if !is_tried && done >= TRIAL_NUMBERS.min(all) {
            is_tried = true;
            if (out.len() - start + 4 * single.len()) * 2 > done * 4 {
                return false;
            }
        }
    }
    append_single(single, out);
    true
}

/// The last `count` elements before the last `behind` ones.
fn joined(bytes: &[u8], count: usize, behind: usize) -> Option<&[[u8; 4]]> {
    let (numbers, _) = bytes.as_chunks::<4>();
    let end = numbers.len().checked_sub(behind)?;
    numbers.get(end.checked_sub(count)?..end)
}

/// The longest run at the front of `numbers`; at least one number.
fn run(numbers: &[[u8; 4]]) -> (Grid, usize) {
    let mut grid = Grid::default();
    let mut count = 0;
    for bytes in numbers.iter().take(NUMBERS_MAX) {
        match grid.with(f32::from_le_bytes(*bytes)) {
            Some(wider) => grid = wider,
            None => break,
        }
        count += 1;
    }
    (grid, count.max(1))
}

/// Appends numbers that are in no run, then a run; returns false, possibly with a part of it
/// appended, where a number would not be restored exactly.
fn append(grid: Grid, run: &[[u8; 4]], single: &[[u8; 4]], out: &mut Vec<u8>) -> bool {
    append_single(single, out);
    append_head(grid.divisor, run.len(), out);
    grid.multiples(run, out)
}

fn append_single(single: &[[u8; 4]], out: &mut Vec<u8>) {
    for numbers in single.chunks(NUMBERS_MAX) {
        append_head(f32::NAN, numbers.len(), out);
        out.extend_from_slice(numbers.as_flattened());
    }
}

fn append_head(divisor: f32, count: usize, out: &mut Vec<u8>) {
    let less_one = u8::try_from(count - 1).unwrap_or(u8::MAX);
    debug_assert_eq!(usize::from(less_one) + 1, count, "numbers of a run");
    out.extend_from_slice(&divisor.to_le_bytes());
    out.push(less_one);
}

/// Unpacks the output of [`pack`] to all of `out`; `None` where `packed` is no output of it for
/// this many bytes.
pub fn unpack(mut packed: &[u8], out: &mut [u8]) -> Option<()> {
    let (mut to, left) = out.as_chunks_mut::<4>();
    if !left.is_empty() {
        return None;
    }
    while !to.is_empty() {
        let (divisor, rest) = packed.split_first_chunk::<4>()?;
        let (&less_one, rest) = rest.split_first()?;
        let (divisor, count) = (f32::from_le_bytes(*divisor), usize::from(less_one) + 1);
        let (run, others) = to.split_at_mut_checked(count)?;
        if divisor.is_nan() {
            let (numbers, rest) = rest.split_at_checked(count * size_of::<f32>())?;
            run.as_flattened_mut().copy_from_slice(numbers);
            packed = rest;
        } else {
            let (multiples, rest) = rest.split_at_checked(count)?;
            for (to, multiple) in run.iter_mut().zip(multiples) {
                *to = (f32::from(multiple.cast_signed()) * divisor).to_le_bytes();
            }
            packed = rest;
        }
        to = others;
    }
    packed.is_empty().then_some(())
}
