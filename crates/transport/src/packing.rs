//! Lossless packing of bytes for a slow link. The meaning of the bytes is not known here: a sample
//! decides which form is shortest, and unpacking restores them exactly. Lossy codecs (in
//! `gt_worker`) have rounded the numbers before; the forms only leave out the bits that are then
//! redundant.
//!
//! | form | elements | bytes of 16 |
//! |---|---|---|
//! | planes | 16-bit elements with few exponents | 12 |
//! | halves | float32 whose lower halves are zero | 8 |
//! | multiples | float32 that are small multiples of one number, block by block | 4.1 |
//!
//! A packed chunk: the number of bytes before packing, with the form in the two highest bits (4
//! bytes), then the content that the form's file describes.

mod choice;
mod halves;
mod multiples;
mod planes;

pub use choice::{PackingChoice, PackingPolicy};

/// Bytes below which chunks are not worth a try.
pub const PACKED_BYTES_MIN: usize = 16 * 1024;

/// Position of the form in the head.
const FORM_SHIFT: u32 = 30;

#[derive(Clone, Copy, Debug)]
enum PackedForm {
    Planes,
    Halves,
    Multiples,
}

impl PackedForm {
    const fn number(self) -> u32 {
        match self {
            Self::Planes => 0,
            Self::Halves => 1,
            Self::Multiples => 2,
        }
    }

    fn pack(self, bytes: &[u8], out: &mut Vec<u8>) -> bool {
        match self {
            Self::Planes => planes::pack(bytes, out),
            Self::Halves => halves::pack(bytes, out),
            Self::Multiples => multiples::pack(bytes, out),
        }
    }
}

/// Appends the shortest form that fits the bytes; returns false, with `out` unchanged, where none
/// saves at least an eighth.
pub fn pack(bytes: &[u8], out: &mut Vec<u8>) -> bool {
    let Ok(length) = u32::try_from(bytes.len()) else { return false };
    if bytes.len() < PACKED_BYTES_MIN || length >> FORM_SHIFT != 0 {
        return false;
    }
    let start = out.len();
    for form in [PackedForm::Multiples, PackedForm::Halves, PackedForm::Planes] {
        out.extend_from_slice(&(length | form.number() << FORM_SHIFT).to_le_bytes());
        if form.pack(bytes, out) && out.len() - start <= bytes.len() - bytes.len() / 8 {
            return true;
        }
        out.truncate(start);
    }
    false
}

/// Unpacks the output of [`pack`] to the front of `out`, which grows if necessary, and returns the
/// number of bytes; `None` where `packed` is no output of [`pack`] for at most `bytes_max` bytes.
pub fn unpack(packed: &[u8], bytes_max: usize, out: &mut Vec<u8>) -> Option<usize> {
    let (head, body) = packed.split_first_chunk::<4>()?;
    let head = u32::from_le_bytes(*head);
    let length = usize::try_from(head & !(u32::MAX << FORM_SHIFT)).ok()?;
    if length > bytes_max || !length.is_multiple_of(2) {
        return None;
    }
    if out.len() < length {
        out.resize(length, 0);
    }
    let to = out.get_mut(..length)?;
    match head >> FORM_SHIFT {
        0 => planes::unpack(body, to),
        1 => halves::unpack(body, to),
        2 => multiples::unpack(body, to),
        _ => None,
    }?;
    Some(length)
}
