//! Conversions of numbers that must fit.

use std::any::type_name;
use std::fmt::Display;

/// Converts a number to another type.
///
/// # Panics
/// The number does not fit: a bug of the simulator.
#[track_caller]
pub fn exact<From: Copy + Display + TryInto<Into>, Into>(number: From) -> Into {
    number.try_into().unwrap_or_else(|_| panic!("{number} is no {}", type_name::<Into>()))
}
