//! Layouts and scopes in the form that a client writes: texts.

use crate::arithmetic::tensor::wide;
use crate::exact::exact;
use crate::random::Random;

/// Maximum number of dimensions of a mesh.
const MESH_DIMS_MAX: usize = 3;
/// Number of meshes that a client uses repeatedly, so that operands meet on one.
const MESHES_MAX: usize = 3;

/// The meshes and layouts that a client uses.
#[derive(Clone, Debug)]
pub struct Cluster {
    /// Percent of distributions that name a layout, and of scope steps that are taken.
    pub layouts: u64,
    workers: u32,
    meshes: Vec<DrawnMesh>,
}

#[derive(Clone, Debug)]
struct DrawnMesh {
    shape: Vec<usize>,
    members: Vec<u32>,
}

impl Cluster {
    /// Workers are numbered below `workers`; some of them may have left.
    pub fn new(random: &mut Random, workers: u32, layouts: u64) -> Self {
        let count = 1 + random.index(MESHES_MAX);
        let meshes = (0..count).map(|_| DrawnMesh::draw(random, workers)).collect();
        Self { layouts, workers, meshes }
    }

    fn mesh(&self, random: &mut Random) -> DrawnMesh {
        let usual = random.pick(&self.meshes).cloned();
        match usual {
            Some(mesh) if random.percent(85) => mesh,
            Some(_) | None => DrawnMesh::draw(random, self.workers),
        }
    }

    /// A layout of a value with these sizes.
    pub fn layout(&self, random: &mut Random, dims: &[usize]) -> String {
        let mesh = self.mesh(random);
        let mut free: Vec<usize> = (0..dims.len()).collect();
        let reduce_op = ["sum", "sum", "max", "min", "prod"][random.index(5)];
        let placements: Vec<String> = mesh
            .shape
            .iter()
            .map(|&members| match random.below(10) {
                0..6 if !free.is_empty() => {
                    let dim = free.remove(random.index(free.len()));
                    cut(random, dim, dims[dim], members)
                }
                6 | 7 => format!("partial({reduce_op})"),
                _ => "replicate".to_owned(),
            })
            .collect();
        format!("{}@{}", placements.join(","), mesh.text())
    }

    /// Text of a signal's scope; sometimes empty.
    pub fn scope(&self, random: &mut Random) -> String {
        let mesh = self.mesh(random);
        let members: Vec<String> = mesh.members.iter().map(ToString::to_string).collect();
        let workers = format!("workers=[{}]", members.join(","));
        let dim = wide(random.index(4)) - 2;
        let blocks = if random.percent(20) { " blocks=2" } else { "" };
        match random.below(8) {
            0 => String::new(),
            1 => workers,
            2 => format!("axis={dim}{blocks}"),
            3 => format!("{workers} axis={dim}{blocks}"),
            4 => format!("{workers} replicated=true"),
            _ => {
                let names = ["dp", "tp", "pp"].iter().zip(&mesh.shape);
                let sizes: Vec<String> =
                    names.map(|(name, size)| format!("{name}:{size}")).collect();
                let placements: Vec<String> = mesh
                    .shape
                    .iter()
                    .map(|_| match random.below(3) {
                        0 => "replicate".to_owned(),
                        _ => format!("shard({})", wide(random.index(4)) - 2),
                    })
                    .collect();
                let cuts = placements.iter().any(|placement| placement != "replicate");
                let blocks = if cuts { blocks } else { "" };
                format!(
                    "{workers} mesh={} placements={}{blocks}",
                    sizes.join(","),
                    placements.join(",")
                )
            }
        }
    }
}

impl DrawnMesh {
    fn draw(random: &mut Random, workers: u32) -> Self {
        let rank = [1, 1, 1, 2, 2, MESH_DIMS_MAX][random.index(6)];
        let mut size_max = exact::<_, usize>(workers).max(1);
        let shape: Vec<usize> = (0..rank)
            .map(|_| {
                let size = 1 + random.index(size_max);
                size_max /= size;
                size
            })
            .collect();
        let mut all: Vec<u32> = (0..workers.max(1)).collect();
        let members = (0..shape.iter().product())
            .map(|_| all.remove(if random.percent(60) { 0 } else { random.index(all.len()) }));
        Self { members: members.collect(), shape }
    }

    /// `[[0,1],[2,3]]`
    fn text(&self) -> String {
        let mut parts: Vec<String> = self.members.iter().map(ToString::to_string).collect();
        for &size in self.shape.iter().rev() {
            parts = parts.chunks(size).map(|row| format!("[{}]", row.join(","))).collect();
        }
        parts.concat()
    }
}

/// Even shards, those of blocks, or any that hold each index once.
fn cut(random: &mut Random, dim: usize, size: usize, members: usize) -> String {
    match random.below(8) {
        0 if size.is_multiple_of(2) && size > 0 => format!("shard({dim},blocks=2)"),
        1 => format!("shard({dim})[{}]", in_order(random, size, members)),
        2 => format!("shard({dim})[{}]", mixed(random, size, members)),
        _ => format!("shard({dim})"),
    }
}

/// One interval for each member, in order; some are empty.
fn in_order(random: &mut Random, size: usize, members: usize) -> String {
    let mut bounds: Vec<usize> = (1..members).map(|_| random.index(size + 1)).collect();
    bounds.push(size);
    bounds.sort_unstable();
    let mut start = 0;
    let ranges = bounds.into_iter().map(|end| {
        let shard = if start == end { String::new() } else { format!("{start}:{end}") };
        start = end;
        shard
    });
    ranges.collect::<Vec<_>>().join("|")
}

/// Several intervals for each member, in any order.
fn mixed(random: &mut Random, size: usize, members: usize) -> String {
    let mut ranges = vec![Vec::new(); members];
    let mut start = 0;
    while start < size {
        // The text of a layout has a maximum length.
        let end = (start + 1 + size / 20 + random.index(3)).min(size);
        let shard = &mut ranges[random.index(members)];
        let place = if random.percent(70) { shard.len() } else { 0 };
        shard.insert(place, format!("{start}:{end}"));
        start = end;
    }
    ranges.iter().map(|shard| shard.join("+")).collect::<Vec<_>>().join("|")
}
