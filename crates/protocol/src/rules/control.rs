//! Instructions between client, dispatcher and workers. Most define no value; the attributes of a
//! collective determine its values.

use super::call::Call;
use super::error::RuleError;
use super::outputs::{Inferred, Outputs, one};
use super::shape::{with_size, wrap_dim};
use crate::placement::Layout;
use crate::{Attr, Meta};

/// Checks the form only; defines no value.
#[allow(clippy::unnecessary_wraps, reason = "a rule of the table")]
pub(super) fn nothing(_call: &Call<'_>) -> Inferred {
    Ok(Outputs::new())
}

pub(super) fn same(call: &Call<'_>) -> Inferred {
    one(*call.tensor(0)?)
}

pub(super) fn send(call: &Call<'_>) -> Inferred {
    call.tensor(0)?;
    nothing(call)
}

pub(super) fn read(call: &Call<'_>) -> Inferred {
    let (value, start, count) = (call.tensor(0)?, call.integer(1)?, call.integer(2)?);
    let end = start.checked_add(count);
    if start < 0 || count < 0 || end.is_none_or(|end| end > value.elements()) {
        return Err(RuleError::index(format!(
            "read: {count} elements from {start} on are not all in {value}"
        )));
    }
    nothing(call)
}

pub(super) fn chunk(call: &Call<'_>) -> Inferred {
    let (value, offset) = (call.tensor(0)?, call.integer(0)?);
    if u64::try_from(offset).map_or(true, |offset| offset > value.bytes()) {
        return Err(RuleError::index(format!("chunk: offset {offset} is not in {value}")));
    }
    nothing(call)
}

pub(super) fn distribute(call: &Call<'_>) -> Inferred {
    let value = call.tensor(0)?;
    if let Attr::Int(dim) = call.attr(0) {
        wrap_dim(*dim, value.dims.len())?;
    }
    one(*value)
}

pub(super) fn local_shard(call: &Call<'_>) -> Inferred {
    let value = call.tensor(0)?;
    let (Attr::Text(text), member) = (call.attr(0), call.integer(1)?) else {
        return Err(RuleError::runtime("local_shard: the layout is missing"));
    };
    let layout = Layout::parse(text, &value.dims)
        .map_err(|error| RuleError::runtime(format!("local_shard: {error}")))?;
    let members = layout.mesh().len();
    let place = usize::try_from(member).ok().filter(|&place| place < members);
    let Some(place) = place else {
        return Err(RuleError::index(format!(
            "local_shard: member {member} of a mesh of {members} members"
        )));
    };
    one(Meta::new(value.dtype, layout.local_dims(&value.dims, place)))
}

pub(super) fn all_gather(call: &Call<'_>) -> Inferred {
    let shard = call.tensor(0)?;
    let (dim, total) = cut(call, shard, 1, 2)?;
    one(Meta::new(shard.dtype, with_size(&shard.dims, dim, total)))
}

/// Checks the form. The result is each member's own shard, and a rule does not know the member.
pub(super) fn reduce_scatter(call: &Call<'_>) -> Inferred {
    let whole = call.tensor(0)?;
    let (dim, total) = cut(call, whole, 2, 3)?;
    if whole.dims.get(dim) != Some(&total) {
        let sizes = call.list(3)?;
        return Err(RuleError::runtime(format!("reduce_scatter: sizes {sizes:?} of {whole}")));
    }
    one_of_several(call)
}

/// Checks the form, as [`reduce_scatter`] does.
pub(super) fn all_to_all(call: &Call<'_>) -> Inferred {
    let shard = call.tensor(0)?;
    let (_, _) = cut(call, shard, 1, 2)?;
    let (to, total) = cut(call, shard, 3, 4)?;
    let sizes = call.list(4)?;
    if shard.dims.get(to) != Some(&total) {
        return Err(RuleError::runtime(format!("all_to_all: sizes {sizes:?} of {shard}")));
    }
    one_of_several(call)
}

fn one_of_several(call: &Call<'_>) -> Inferred {
    Err(RuleError::runtime(format!("{}: only a member knows its shard", call.info.name)))
}

/// The dimension in the attribute `dim`, and the sum of the sizes in `sizes`, one for each member.
fn cut(call: &Call<'_>, value: &Meta, dim: usize, sizes: usize) -> Result<(usize, i64), RuleError> {
    let (members, sizes) = (call.list(0)?, call.list(sizes)?);
    let dim = wrap_dim(call.integer(dim)?, value.dims.len())?;
    let total = sizes.iter().fold(0_i64, |total, &size| total.saturating_add(size));
    let fits = sizes.len() == members.len() && sizes.iter().all(|size| *size >= 0);
    if value.dims.is_empty() || !fits {
        let name = call.info.name;
        return Err(RuleError::runtime(format!("{name}: sizes {sizes:?} of {value}")));
    }
    Ok((dim, total))
}

pub(super) fn receive(call: &Call<'_>) -> Inferred {
    one(Meta::new(call.dtype(3)?, *call.dims(2)?))
}

pub(super) fn broadcast(call: &Call<'_>) -> Inferred {
    one(Meta::new(call.dtype(3)?, *call.dims(2)?))
}
