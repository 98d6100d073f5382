//! Parsing of an instruction's operands and attributes, in the form that the dispatcher must write.

use crate::failure::Fault;
use gt_protocol::{Attr, Id, Instruction, Scalar};

pub fn first_value(instruction: &Instruction<'_>) -> Result<Id, Fault> {
    instruction.values().next().ok_or_else(|| Fault::protocol("the operand is no value"))
}

/// A non-negative integer attribute.
pub fn unsigned(instruction: &Instruction<'_>, name: &str) -> Result<u64, Fault> {
    let Attr::Int(value) = instruction.attr(name) else {
        return Err(Fault::protocol(format!("{name} is missing")));
    };
    u64::try_from(*value).map_err(|_| Fault::protocol(format!("{name} is {value}")))
}

pub fn list<'a>(instruction: &'a Instruction<'_>, name: &str) -> Result<&'a [i64], Fault> {
    let Attr::List(values) = instruction.attr(name) else {
        return Err(Fault::protocol(format!("{name} is missing")));
    };
    Ok(values)
}

/// Compares bit by bit: -0.0 differs from 0.0 here, and a NaN equals itself.
pub fn same_attr(left: &Attr, right: &Attr) -> bool {
    match (left, right) {
        (Attr::Float(left), Attr::Float(right))
        | (Attr::Scalar(Scalar::Float(left)), Attr::Scalar(Scalar::Float(right))) => {
            left.to_bits() == right.to_bits()
        }
        (left, right) => left == right,
    }
}
