//! Operands before they belong to an instruction, and rules that are asked about them.

use crate::client::value::variable::Var;
use gt_protocol::rules::{self, Outputs, RuleError};
use gt_protocol::wire::EncodeError;
use gt_protocol::{Attr, Meta, Op, OperandKind, Scalar};
use pyo3::Python;
use smallvec::SmallVec;

/// An operand before it belongs to an instruction.
#[derive(Clone, Copy)]
pub(crate) enum Arg<'a> {
    Absent,
    Scalar(Scalar),
    /// Parts of a Python complex number. It is no operand of any instruction.
    Complex([f64; 2]),
    /// An integer from 2^63 to 2^64 - 1, which no [`Scalar`] holds; floating-point operators accept
    /// it. It is no operand of any instruction.
    Large(u64),
    Var(&'a Var),
}

/// Asks a rule about operands, whose values need not be at hand.
pub(crate) fn of_operands<T>(
    py: Python<'_>,
    args: &[Arg<'_>],
    rule: impl FnOnce(&[rules::RuleArg<'_>]) -> T,
) -> T {
    let metas: SmallVec<[Option<Meta>; 4]> = args
        .iter()
        .map(|arg| match arg {
            Arg::Var(var) => Some(var.meta(py)),
            Arg::Absent | Arg::Scalar(_) | Arg::Complex(_) | Arg::Large(_) => None,
        })
        .collect();
    let operands: SmallVec<[rules::RuleArg<'_>; 4]> = args
        .iter()
        .zip(&metas)
        .map(|(arg, meta)| match (meta, arg) {
            (Some(meta), _) => rules::RuleArg::Value(meta),
            (None, Arg::Scalar(scalar)) => rules::RuleArg::Scalar(*scalar),
            (None, Arg::Absent | Arg::Complex(_) | Arg::Large(_) | Arg::Var(_)) => {
                rules::RuleArg::Absent
            }
        })
        .collect();
    rule(&operands)
}

/// Infers the results of an operator.
pub(crate) fn infer(
    py: Python<'_>,
    op: Op,
    args: &[Arg<'_>],
    attrs: &[Attr],
) -> Result<Outputs, RuleError> {
    of_operands(py, args, |operands| rules::infer(op, operands, attrs))
}

/// Checks the number of operands against the row.
pub(crate) fn check_operands(op: Op, args: &[Arg<'_>]) -> Result<(), EncodeError> {
    let info = op.info();
    let (count, expected) = (args.len(), info.fixed_operands());
    if count < expected || (count > expected && !info.has_list()) {
        return Err(EncodeError::Operands { op: info.name, count, expected });
    }
    let mut pairs = args.iter().zip(info.operands);
    let missing = pairs.position(|(arg, operand)| {
        matches!(arg, Arg::Absent) && operand.kind == OperandKind::Required
    });
    missing.map_or(Ok(()), |position| Err(EncodeError::OperandAbsent { op: info.name, position }))
}
