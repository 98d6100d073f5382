//! Conversions of numbers that fit.

use std::any::type_name;
use std::fmt::Display;

/// A number as another type, which has it.
///
/// # Panics
/// Where the type does not have it: a mistake of the simulator.
#[track_caller]
pub fn exact<From: Copy + Display + TryInto<Into>, Into>(number: From) -> Into {
    number.try_into().unwrap_or_else(|_| panic!("{number} is no {}", type_name::<Into>()))
}
