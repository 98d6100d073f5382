//! The meaning of a signal: the workers of the instructions that carry it, and the layout of the
//! values that they create.
//!
//! A client writes it as one line of text, in the instruction `configure`; [`Scope`] is that line
//! parsed. Printing and parsing are exact inverses: a text that [`fmt::Display`] would not have
//! written is refused. The line of an inner scope contains the settings of the scopes around it, so
//! no reader looks further. Nothing is planned here.

use crate::placement::MESH_DIMS_MAX;
use crate::value::DIMS_MAX;
use std::collections::BTreeSet;
use std::fmt;
use std::num::NonZeroU16;
use std::str::FromStr;

/// Maximum number of workers that one scope names: with their commas they fit the longest text of
/// an instruction.
pub const WORKERS_MAX: usize = 512;
/// Limit of a worker's index, so that no table indexed by it gets too long.
pub const WORKER_INDEX_MAX: u32 = 1 << 16;
/// Maximum bytes of a mesh dimension's name.
pub const MESH_NAME_BYTES_MAX: usize = 64;
/// Maximum number of blocks of a dimension, each of which is sharded (a fused QKV has three).
pub const BLOCKS_MAX: u32 = 1024;

/// Meaning of a signal. Every part may be absent: an empty text is the scope without settings.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Scope {
    /// Workers that it runs on, in the order of the shards; `None` where the planner chooses.
    pub workers: Option<Box<[u32]>>,
    /// The sharded dimension of values that are created here, and of the weight of a product
    /// (negative: from the end).
    pub axis: Option<i64>,
    /// True if values that are created here are replicated on every worker.
    pub replicated: bool,
    /// Names and sizes of the mesh dimensions in which the workers are arranged.
    pub mesh: Box<[MeshDim]>,
    /// One placement for each mesh dimension (for the one-dimensional list of workers where there
    /// is no mesh).
    pub placements: Box<[ScopePlacement]>,
    /// The sharded dimension consists of this many blocks, each of which is sharded.
    pub blocks: Option<u32>,
    /// The signal that the gradients carry.
    pub backward: Option<u32>,
    /// True if instructions here are to be compiled.
    pub compile: bool,
}

/// A mesh dimension's name and size.
pub type MeshDim = (Box<str>, u32);

/// Placement along one dimension of a mesh that a user asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScopePlacement {
    Replicate,
    Shard { dim: i64 },
}

/// Reason why a text is no scope.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ScopeError {
    #[error(
        "{0:?} is not one of workers, axis, replicated, mesh, placements, blocks, backward, compile with its value"
    )]
    Field(String),
    #[error("{0:?} contradicts another word, or is not as it is written")]
    Contradiction(String),
}

/// `workers=[0,1] axis=1 replicated=true mesh=dp:2,tp:2 placements=replicate,shard(1) blocks=3
/// backward=4 compile=true`, in this order; settings that are absent are left out.
impl fmt::Display for Scope {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut words: Vec<String> = Vec::new();
        if let Some(workers) = &self.workers {
            words.push(format!("workers=[{}]", joined(workers.iter())));
        }
        words.extend(self.axis.map(|axis| format!("axis={axis}")));
        words.extend(self.replicated.then(|| "replicated=true".to_owned()));
        if !self.mesh.is_empty() {
            let dims = self.mesh.iter().map(|(name, size)| format!("{name}:{size}"));
            words.push(format!("mesh={}", joined(dims)));
        }
        if !self.placements.is_empty() {
            words.push(format!("placements={}", joined(self.placements.iter())));
        }
        words.extend(self.blocks.map(|blocks| format!("blocks={blocks}")));
        words.extend(self.backward.map(|signal| format!("backward={signal}")));
        words.extend(self.compile.then(|| "compile=true".to_owned()));
        out.write_str(&words.join(" "))
    }
}

/// `shard(1)`
impl fmt::Display for ScopePlacement {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Replicate => out.write_str("replicate"),
            Self::Shard { dim } => write!(out, "shard({dim})"),
        }
    }
}

impl FromStr for Scope {
    type Err = ScopeError;

    fn from_str(text: &str) -> Result<Self, ScopeError> {
        let mut scope = Self::default();
        if !text.is_empty() {
            for word in text.split(' ') {
                scope.read(word).ok_or_else(|| ScopeError::Field(clipped(word)))?;
            }
        }
        match scope.contradiction() {
            // Comparing with the printed form refuses a wrong order, repeated words, and signs such
            // as `+1`.
            None if scope.to_string() == text => Ok(scope),
            None => Err(ScopeError::Contradiction(clipped(text))),
            Some(word) => Err(ScopeError::Contradiction(word.to_owned())),
        }
    }
}

impl FromStr for ScopePlacement {
    type Err = ScopeError;

    fn from_str(text: &str) -> Result<Self, ScopeError> {
        let dim = || dim(text.strip_prefix("shard(")?.strip_suffix(')')?);
        match text {
            "replicate" => Some(Self::Replicate),
            _ => dim().map(|dim| Self::Shard { dim }),
        }
        .ok_or_else(|| ScopeError::Field(clipped(text)))
    }
}

impl Scope {
    /// Takes in `key=value`.
    fn read(&mut self, word: &str) -> Option<()> {
        let (key, value) = word.split_once('=')?;
        match key {
            "workers" => self.workers = Some(workers(value)?),
            "axis" => self.axis = Some(dim(value)?),
            "replicated" => self.replicated = value == "true",
            "mesh" => self.mesh = mesh(value)?,
            "placements" => {
                self.placements =
                    limited(value, MESH_DIMS_MAX, |placement| placement.parse().ok())?;
            }
            "blocks" => {
                let blocks = value.parse().ok()?;
                self.blocks = (2..=BLOCKS_MAX).contains(&blocks).then_some(blocks);
                self.blocks?;
            }
            // Width of the signal in an instruction's header.
            "backward" => self.backward = Some(u32::from(value.parse::<NonZeroU16>().ok()?.get())),
            "compile" => self.compile = value == "true",
            _ => return None,
        }
        Some(())
    }

    /// The first setting that contradicts the others.
    fn contradiction(&self) -> Option<&'static str> {
        let cuts = self
            .placements
            .iter()
            .any(|placement| matches!(placement, ScopePlacement::Shard { .. }));
        let size =
            self.mesh.iter().fold(1_u64, |size, (_, dim)| size.saturating_mul(u64::from(*dim)));
        let workers = self.workers.as_ref().and_then(|workers| u64::try_from(workers.len()).ok());
        let dims = self.mesh.len().max(1);
        if self.replicated && (self.axis.is_some() || cuts) {
            Some("replicated")
        } else if !self.placements.is_empty()
            && (self.axis.is_some() || self.placements.len() != dims)
        {
            Some("placements")
        } else if !self.mesh.is_empty() && workers.is_some_and(|workers| workers != size) {
            Some("mesh")
        } else if self.blocks.is_some() && self.axis.is_none() && !cuts {
            Some("blocks")
        } else {
            None
        }
    }
}

fn joined<T: ToString>(words: impl Iterator<Item = T>) -> String {
    words.map(|word| word.to_string()).collect::<Vec<_>>().join(",")
}

/// Parses the comma-separated parts of a text, at least one and at most `max`.
fn limited<T>(text: &str, max: usize, read: impl Fn(&str) -> Option<T>) -> Option<Box<[T]>> {
    if text.split(',').take(max + 1).count() > max {
        return None;
    }
    text.split(',').map(read).collect()
}

fn workers(text: &str) -> Option<Box<[u32]>> {
    let listed = text.strip_prefix('[')?.strip_suffix(']')?;
    let index = |word: &str| word.parse().ok().filter(|index| *index < WORKER_INDEX_MAX);
    let workers = limited(listed, WORKERS_MAX, index)?;
    let different: BTreeSet<&u32> = workers.iter().collect();
    (different.len() == workers.len()).then_some(workers)
}

fn mesh(text: &str) -> Option<Box<[MeshDim]>> {
    let mesh: Box<[MeshDim]> = limited(text, MESH_DIMS_MAX, |dim| {
        let (name, size) = dim.split_once(':')?;
        let size = size.parse().ok().filter(|size| *size > 0)?;
        is_mesh_name(name).then(|| (Box::from(name), size))
    })?;
    let different: BTreeSet<&str> = mesh.iter().map(|(name, _)| name.as_ref()).collect();
    (different.len() == mesh.len()).then_some(mesh)
}

/// A letter or underscore, then letters, digits and underscores.
fn is_mesh_name(name: &str) -> bool {
    let letter = |first: u8| first.is_ascii_alphabetic() || first == b'_';
    name.len() <= MESH_NAME_BYTES_MAX
        && name.bytes().next().is_some_and(letter)
        && name.bytes().all(|byte| letter(byte) || byte.is_ascii_digit())
}

/// Parses a dimension that some tensor may have.
fn dim(text: &str) -> Option<i64> {
    let most = i64::try_from(DIMS_MAX).ok()?;
    text.parse().ok().filter(|dim| (-most..most).contains(dim))
}

/// Clips a peer's text to at most one line, for an error message.
fn clipped(text: &str) -> String {
    text.chars().take(80).collect()
}

#[cfg(test)]
mod tests;
