//! Instructions between client, dispatcher and workers. Most define no value; the collectives' values follow from
//! their attributes.

use super::call::Call;
use super::shape::{with_size, wrap_dim};
use super::{Inferred, Outputs, Rule, RuleError, Table, one, row};
use crate::{Attr, Meta, Op};

static RULES: Table<Rule> = &[
    (Op::Free, nothing),
    (Op::Read, read),
    (Op::Chunk, chunk),
    (Op::Synchronize, nothing),
    (Op::Signal, nothing),
    (Op::Site, nothing),
    (Op::Session, nothing),
    (Op::Configure, nothing),
    (Op::Distribute, distribute),
    (Op::AllReduce, same),
    (Op::AllGather, all_gather),
    (Op::Send, send),
    (Op::Receive, receive),
];

pub(super) fn infer(call: &Call<'_>) -> Inferred {
    row(RULES, call.op)?(call)
}

/// Checked by its form alone; defines no value.
#[allow(clippy::unnecessary_wraps, reason = "a rule of the table")]
fn nothing(_call: &Call<'_>) -> Inferred {
    Ok(Outputs::new())
}

fn same(call: &Call<'_>) -> Inferred {
    one(*call.tensor(0)?)
}

fn send(call: &Call<'_>) -> Inferred {
    call.tensor(0)?;
    nothing(call)
}

fn read(call: &Call<'_>) -> Inferred {
    let (value, start, count) = (call.tensor(0)?, call.integer(1)?, call.integer(2)?);
    let end = start.checked_add(count);
    if start < 0 || count < 0 || end.is_none_or(|end| end > value.elements()) {
        return Err(RuleError::index(format!(
            "read: {count} elements from {start} on are not all in {value}"
        )));
    }
    nothing(call)
}

fn chunk(call: &Call<'_>) -> Inferred {
    let (value, offset) = (call.tensor(0)?, call.integer(0)?);
    if u64::try_from(offset).map_or(true, |offset| offset > value.bytes()) {
        return Err(RuleError::index(format!("chunk: offset {offset} is not in {value}")));
    }
    nothing(call)
}

fn distribute(call: &Call<'_>) -> Inferred {
    let value = call.tensor(0)?;
    if let Attr::Int(dim) = call.attr(0) {
        wrap_dim(*dim, value.dims.len())?;
    }
    one(*value)
}

fn all_gather(call: &Call<'_>) -> Inferred {
    let (shard, sizes) = (call.tensor(0)?, call.dims(2)?);
    let dim = wrap_dim(call.integer(1)?, shard.dims.len())?;
    let total = sizes.iter().fold(0_i64, |total, &size| total.saturating_add(size));
    if shard.dims.is_empty() || sizes.iter().any(|size| *size < 0) {
        return Err(RuleError::runtime(format!("all_gather: sizes {sizes} of {shard}")));
    }
    one(Meta::new(shard.dtype, with_size(&shard.dims, dim, total)))
}

fn receive(call: &Call<'_>) -> Inferred {
    one(Meta::new(call.dtype(3)?, *call.dims(2)?))
}
