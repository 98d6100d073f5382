//! Numbers and strings as text, each with its inverse.

use crate::value::Scalar;
use std::fmt::{self, Write};

const NAN_BITS: u64 = 0x7ff8_0000_0000_0000;

/// Printed as Python's `repr`, so that a trace can be pasted into a program; NaNs other than the
/// usual one are printed with their bits.
pub(super) fn write_float(out: &mut fmt::Formatter<'_>, value: f64) -> fmt::Result {
    if value.is_nan() {
        return match value.to_bits() {
            NAN_BITS => out.write_str("nan"),
            bits => write!(out, "nan:{bits:#018x}"),
        };
    }
    let digits = format!("{value:?}");
    let Some((mantissa, exponent)) = digits.split_once('e') else { return out.write_str(&digits) };
    match exponent.strip_prefix('-') {
        Some(exponent) => write!(out, "{mantissa}e-{exponent:0>2}"),
        None => write!(out, "{mantissa}e+{exponent:0>2}"),
    }
}

/// Parses `inf`, `nan`, `nan:0x…`, and a word in the form of a float.
pub(super) fn parse_float(word: &str) -> Option<f64> {
    if let Some(bits) = word.strip_prefix("nan:0x") {
        let value = f64::from_bits(u64::from_str_radix(bits, 16).ok()?);
        return value.is_nan().then_some(value);
    }
    match word {
        "nan" => Some(f64::from_bits(NAN_BITS)),
        "inf" => Some(f64::INFINITY),
        "-inf" => Some(f64::NEG_INFINITY),
        _ => {
            let digits = word.strip_prefix('-').unwrap_or(word);
            if !digits.starts_with(|c: char| c.is_ascii_digit()) {
                return None;
            }
            word.parse().ok()
        }
    }
}

pub(super) fn parse_bool(word: &str) -> Option<bool> {
    match word {
        "true" => Some(true),
        "false" => Some(false),
        _ => None,
    }
}

pub(super) fn write_scalar(out: &mut fmt::Formatter<'_>, scalar: Scalar) -> fmt::Result {
    match scalar {
        Scalar::Bool(value) => write!(out, "{value}"),
        Scalar::Int(value) => write!(out, "{value}"),
        Scalar::Float(value) => write_float(out, value),
    }
}

/// Parses a bool, else an integer, else a float: a float is always recognisable as one.
pub(super) fn parse_scalar(word: &str) -> Option<Scalar> {
    let bool = parse_bool(word).map(Scalar::Bool);
    let int = || word.parse().ok().map(Scalar::Int);
    bool.or_else(int).or_else(|| parse_float(word).map(Scalar::Float))
}

/// In quotes, on one line, and without a `#`, so that a filter may cut a line at its first `#`.
pub(super) fn write_quoted(out: &mut fmt::Formatter<'_>, text: &str) -> fmt::Result {
    out.write_char('"')?;
    for c in text.chars() {
        match c {
            '"' => out.write_str("\\\"")?,
            '\\' => out.write_str("\\\\")?,
            '\n' => out.write_str("\\n")?,
            '\t' => out.write_str("\\t")?,
            '#' | '\u{2028}' | '\u{2029}' => write!(out, "\\u{{{:x}}}", u32::from(c))?,
            c if c.is_control() => write!(out, "\\u{{{:x}}}", u32::from(c))?,
            c => out.write_char(c)?,
        }
    }
    out.write_char('"')
}

/// Returns true if a signal's name needs no quotes.
pub(super) fn is_bare(name: &str) -> bool {
    name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && name.chars().all(is_bare_char)
}

pub(super) fn is_bare_char(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '-' | '/' | ':')
}
