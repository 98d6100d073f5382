//! Sizes and limits as words of a policy.

const UNITS: [(&str, f64); 9] = [
    ("B", 1.0),
    ("KB", 1e3),
    ("MB", 1e6),
    ("GB", 1e9),
    ("TB", 1e12),
    ("KIB", 1024.0),
    ("MIB", 1_048_576.0),
    ("GIB", 1_073_741_824.0),
    ("TIB", 1_099_511_627_776.0),
];
/// Word for a limit that a user does not have although the default has one.
const UNLIMITED: &str = "unlimited";

/// A limit or the word for none; `None` for anything else.
#[allow(clippy::option_option, reason = "the outer one is the parser's")]
pub(super) fn limit<T>(text: &str, parse: impl FnOnce(&str) -> Option<T>) -> Option<Option<T>> {
    if text == UNLIMITED { Some(None) } else { parse(text).map(Some) }
}

/// Bytes of a size: `8 GiB`, `1.5GB`, `1000`.
#[allow(
    clippy::as_conversions,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a size of 0 and more; saturates"
)]
pub(super) fn bytes(text: &str) -> Option<u64> {
    let digits = text.find(|letter: char| !letter.is_ascii_digit() && letter != '.');
    let (number, unit) = text.split_at(digits.unwrap_or(text.len()));
    let unit = unit.trim().to_ascii_uppercase();
    let unit = if unit.is_empty() { "B" } else { &unit };
    let (_, factor) = UNITS.iter().find(|(name, _)| *name == unit)?;
    let number: f64 = number.parse().ok()?;
    Some((number * factor) as u64)
}
