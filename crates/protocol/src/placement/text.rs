//! Layouts as text: `shard(0)@[0,1]`, `shard(0),replicate@[[0,1],[2,3]]`, `partial(sum)@[4,5]`.
//!
//! Uneven shards are written out, member by member: `shard(0)[0:3|3:7]@[0,1]`; a member's several
//! intervals are joined by `+`. The parser also accepts `shard(1,blocks=3)` for the shards of three
//! blocks. In a text that places an existing value, `keep` stands for its present placement along
//! this dimension of the same mesh, and `reduce` for the same where that is not partial, else for
//! `replicate`.

use super::{
    Interval, Intervals, Layout, MESH_DIMS_MAX, MESH_MEMBERS_MAX, Mesh, Placement, Placements,
    ReduceOp, ShardRanges,
};
use crate::value::Dims;
use smallvec::SmallVec;
use std::fmt::{self, Write};

/// Error of a text that is no layout of a tensor of the given shape: the expected form, and the
/// position.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("layout {text:?}: {what}")]
pub struct LayoutError {
    pub text: String,
    pub what: String,
}

impl fmt::Display for Layout {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (axis, placement) in self.placements().iter().enumerate() {
            if axis > 0 {
                out.write_char(',')?;
            }
            write!(out, "{placement}")?;
        }
        write!(out, "@{}", self.mesh())
    }
}

impl fmt::Display for Placement {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Replicate => out.write_str("replicate"),
            Self::Partial(reduce_op) => write!(out, "partial({reduce_op})"),
            Self::Shard { dim, ranges } => {
                write!(out, "shard({dim})")?;
                if ranges.is_even() {
                    return Ok(());
                }
                write!(out, "[{ranges}]")
            }
        }
    }
}

impl fmt::Display for ReduceOp {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.name())
    }
}

/// `0:3|3:7`
impl fmt::Display for ShardRanges {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (member, intervals) in self.iter().enumerate() {
            if member > 0 {
                out.write_char('|')?;
            }
            for (position, Interval { start, end }) in intervals.iter().enumerate() {
                write!(out, "{}{start}:{end}", if position == 0 { "" } else { "+" })?;
            }
        }
        Ok(())
    }
}

/// `[0,1]`, `[[0,1],[2,3]]`
impl fmt::Display for Mesh {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let opens = |place: usize, axis: usize| {
            (axis..self.rank()).all(|inner| self.coordinate(place, inner) == 0)
        };
        for (place, member) in self.members().iter().enumerate() {
            let opening = (0..self.rank()).filter(|&axis| opens(place, axis)).count();
            if place > 0 {
                out.write_str("]".repeat(opening).as_str())?;
                out.write_char(',')?;
            }
            write!(out, "{}{member}", "[".repeat(opening))?;
        }
        out.write_str("]".repeat(self.rank()).as_str())
    }
}

impl Layout {
    /// The layout that `text` describes for a tensor of shape `dims`.
    ///
    /// # Errors
    /// The mistake in the text: a peer's text is never trusted.
    pub fn parse(text: &str, dims: &Dims) -> Result<Self, LayoutError> {
        parse(text, dims, None).map_err(|what| LayoutError { text: text.to_owned(), what })
    }

    /// The layout that `text` describes for a tensor of shape `dims` whose layout is `current`.
    ///
    /// # Errors
    /// As above.
    pub fn parse_over(text: &str, dims: &Dims, current: &Self) -> Result<Self, LayoutError> {
        parse(text, dims, Some(current)).map_err(|what| LayoutError { text: text.to_owned(), what })
    }
}

fn parse(text: &str, dims: &Dims, current: Option<&Layout>) -> Result<Layout, String> {
    let (placements, mesh) = text.split_once('@').ok_or("`@` and the workers are missing")?;
    let mesh = parse_mesh(mesh)?;
    let mut list = Placements::new();
    for word in split_outside(placements) {
        if list.len() == mesh.rank() {
            return Err(format!("more placements than the {} dimensions of the mesh", mesh.rank()));
        }
        let kept = current.and_then(|current| kept(word, current, &mesh, list.len()));
        list.push(match kept {
            Some(placement) => placement,
            None => parse_placement(word, dims, mesh.size(list.len()))?,
        });
    }
    if list.len() != mesh.rank() {
        return Err(format!("{} placements for a mesh of {} dimensions", list.len(), mesh.rank()));
    }
    for (axis, placement) in list.iter().enumerate() {
        let twice = list.iter().take(axis).any(|earlier| earlier.cut() == placement.cut());
        if let (Some(dim), true) = (placement.cut(), twice) {
            return Err(format!(
                "dimension {dim} is cut twice; cut it once over a mesh of one dimension"
            ));
        }
    }
    let mut reduces = list.iter().filter_map(|placement| match placement {
        Placement::Partial(reduce_op) => Some(reduce_op),
        Placement::Replicate | Placement::Shard { .. } => None,
    });
    // A sum of products is no product of sums, and mesh dimensions have no order.
    if let Some(first) = reduces.next()
        && let Some(other) = reduces.find(|&reduce_op| reduce_op != first)
    {
        return Err(format!("partial({first}) and partial({other}): one layout has one reduction"));
    }
    Ok(Layout::new(mesh, list))
}

/// Placement that `keep` or `reduce` stands for along a dimension of `mesh`.
fn kept(word: &str, current: &Layout, mesh: &Mesh, axis: usize) -> Option<Placement> {
    let reduces = match word.trim() {
        "keep" => false,
        "reduce" => true,
        _ => return None,
    };
    let current = current.placements().get(axis).filter(|_| current.mesh() == mesh);
    let placement = current.filter(|placement| !(reduces && placement.is_partial()));
    Some(placement.cloned().unwrap_or_default())
}

/// The words between commas outside of brackets.
fn split_outside(text: &str) -> impl Iterator<Item = &str> {
    let mut depth = 0_usize;
    text.split(move |letter: char| {
        match letter {
            '(' | '[' => depth += 1,
            ')' | ']' => depth = depth.saturating_sub(1),
            _ => {}
        }
        letter == ',' && depth == 0
    })
}

fn parse_placement(word: &str, dims: &Dims, members: usize) -> Result<Placement, String> {
    match word.trim() {
        "replicate" => return Ok(Placement::Replicate),
        "partial(sum)" => return Ok(Placement::Partial(ReduceOp::Sum)),
        "partial(max)" => return Ok(Placement::Partial(ReduceOp::Max)),
        "partial(min)" => return Ok(Placement::Partial(ReduceOp::Min)),
        "partial(prod)" => return Ok(Placement::Partial(ReduceOp::Prod)),
        _ => {}
    }
    let unknown =
        || format!("`{word}` is none of replicate, shard(DIM) and partial(sum|max|min|prod)");
    let (inside, rest) = word
        .trim()
        .strip_prefix("shard(")
        .and_then(|rest| rest.split_once(')'))
        .ok_or_else(unknown)?;
    let (dim, blocks) = match inside.split_once(",blocks=") {
        Some((dim, blocks)) => (dim, Some(number(blocks)?)),
        None => (inside, None),
    };
    let rank = dims.rank();
    let dim = number(dim)?;
    let place = usize::try_from(if dim < 0 { dim + rank } else { dim });
    let size = place.as_ref().ok().and_then(|&place| dims.get(place));
    let (Ok(place), Some(&size)) = (place, size) else {
        return Err(format!("dimension {dim} of a tensor of shape {dims}"));
    };
    let ranges = match (rest, blocks) {
        ("", None) => ShardRanges::even(size, members),
        ("", Some(blocks)) if blocks > 0 && size % blocks == 0 => {
            ShardRanges::blocked(size, blocks, members)
        }
        ("", Some(blocks)) => {
            return Err(format!("{blocks} blocks do not divide dimension {place} of size {size}"));
        }
        (list, _) => parse_ranges(list, size, members)?,
    };
    Ok(Placement::Shard { dim: place, ranges })
}

fn parse_ranges(list: &str, size: i64, members: usize) -> Result<ShardRanges, String> {
    let inside = list.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
    let inside = inside.ok_or_else(|| format!("`{list}` is no list of ranges"))?;
    let shard = |member: &str| -> Result<Intervals, String> {
        let parts = member.split('+').filter(|part| !part.is_empty());
        parts
            .map(|part| {
                let (start, end) =
                    part.split_once(':').ok_or_else(|| format!("`{part}` is no START:END"))?;
                Ok(Interval { start: number(start)?, end: number(end)? })
            })
            .collect()
    };
    let intervals: Vec<Intervals> = inside.split('|').map(shard).collect::<Result<_, _>>()?;
    let ranges = ShardRanges::new(intervals);
    if ranges.len() != members {
        return Err(format!("{} ranges for {members} workers", ranges.len()));
    }
    if !ranges.cover(size) {
        return Err(format!("the ranges [{ranges}] do not hold each of {size} indexes once"));
    }
    Ok(ranges)
}

fn parse_mesh(text: &str) -> Result<Mesh, String> {
    let text = text.trim();
    let rank = text.bytes().take_while(|&byte| byte == b'[').count();
    if !(1..=MESH_DIMS_MAX).contains(&rank) {
        return Err(format!("workers stand in one to {MESH_DIMS_MAX} brackets"));
    }
    let words = text.split(['[', ']', ',']).map(str::trim).filter(|word| !word.is_empty());
    let mut members: SmallVec<[u32; 8]> = SmallVec::new();
    for word in words {
        if members.len() == MESH_MEMBERS_MAX {
            return Err(format!("more than {MESH_MEMBERS_MAX} workers"));
        }
        members.push(word.parse().map_err(|_| format!("`{word}` is no worker"))?);
    }
    // The number of members of the first innermost list, then of the first list of lists, and so
    // on: the sizes from the last one on.
    let mut shape: SmallVec<[usize; MESH_DIMS_MAX]> = SmallVec::new();
    let mut held = 1;
    for depth in 1..=rank {
        let close = "]".repeat(depth);
        let first = text.split_once(close.as_str()).map_or("", |(first, _)| first);
        let words = first.split(['[', ']', ',']).filter(|word| !word.trim().is_empty()).count();
        shape.insert(0, words / held);
        held = words.max(1);
    }
    let mesh = Mesh::new(&shape, &members)
        .ok_or("the workers are no mesh: unequal rows, or a worker twice")?;
    // Comparing with the printed mesh refuses misplaced brackets.
    let same = mesh.to_string() == text.replace(' ', "");
    if same { Ok(mesh) } else { Err("brackets do not match".to_owned()) }
}

fn number(text: &str) -> Result<i64, String> {
    text.trim().parse().map_err(|_| format!("`{text}` is no number"))
}
