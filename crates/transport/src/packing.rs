//! Fewer bytes on a slow link, without loss. What the bytes mean is not known here: a look at them says which form is
//! shortest, and anything comes back as it was. What loses bits has happened before, to the numbers themselves
//! (`gt_worker`'s codecs); the forms only leave out what such numbers do not say.
//!
//! | form | of what | bytes of 16 |
//! |---|---|---|
//! | planes | 16-bit elements with few exponents | 12 |
//! | halves | float32 whose lower halves are zero | 8 |
//! | multiples | float32 that are small multiples of one number, block by block | 4.1 |
//!
//! A packed chunk: bytes before packing, the form in the two highest bits (4), then what the form's file says.

mod choice;
mod halves;
mod multiples;
mod planes;

pub use choice::{PackingChoice, PackingPolicy};

/// Smaller chunks are not worth a look.
pub const PACKED_BYTES_MIN: usize = 16 * 1024;

/// Where the form stands in the head.
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

/// Appends the shortest form that the bytes have; false, with `out` as it was, where none saves at least an eighth.
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

/// Writes what [`pack`] was given over the front of `out`, which grows where it must, and says how many bytes that are; none
/// where `packed` is nothing that [`pack`] makes of at most `bytes_max`.
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
