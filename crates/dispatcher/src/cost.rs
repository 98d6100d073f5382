//! Cost of a plan in microseconds: work on the members, and the transfers before it.

mod links;

pub use links::{LinkCost, Links};

use gt_protocol::placement::{Mesh, ONE_HOP_BYTES_MAX, Placement};
use gt_protocol::{Family, Meta, Op};
use std::fmt;
use std::str::FromStr;

/// Prices of one cluster in microseconds: defaults until a file or a probe gives others.
#[derive(Clone, Debug, PartialEq)]
pub struct CostModel {
    /// Price of one message between two workers.
    pub message: f64,
    /// Price of one byte between two workers.
    pub byte: f64,
    /// Price of one floating-point operation of a product.
    pub flop: f64,
    /// Price of one byte that a kernel reads or writes.
    pub touch: f64,
    /// Price of one kernel launch.
    pub kernel: f64,
    /// Not a price but a limit in bytes: smaller values are reduced together with others of their
    /// kind, up to this size in one exchange.
    pub bucket: u64,
    /// Prices of links between certain workers that differ from the general ones.
    pub links: Links,
}

/// Names of the prices in the text form, in order.
const NAMES: [&str; 5] = ["message", "byte", "flop", "touch", "kernel"];
/// Name of the limit of a bucket.
const BUCKET: &str = "bucket";

/// Error of a text that is no list of prices.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "line {line}: {text:?} is no price; a line is NAME=MICROSECONDS, with a name of {NAMES:?} (or message[A,B], byte[A,B] between workers A and B) and a number from 0 on, or {BUCKET}=BYTES"
)]
pub struct CostModelError {
    /// Line, counted from 1.
    pub line: usize,
    pub text: String,
}

/// One price a line; `#` starts a comment. Absent prices have their defaults.
impl FromStr for CostModel {
    type Err = CostModelError;

    fn from_str(text: &str) -> Result<Self, CostModelError> {
        let mut cost_model = Self::default();
        for (number, line) in (1..).zip(text.lines()) {
            let entry = line.split('#').next().unwrap_or_default().trim();
            if !entry.is_empty() && cost_model.parse_line(entry).is_none() {
                return Err(CostModelError { line: number, text: entry.to_owned() });
            }
        }
        Ok(cost_model)
    }
}

impl fmt::Display for CostModel {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { message, byte, flop, touch, kernel, bucket, links } = self;
        let mut all = NAMES.iter().zip([message, byte, flop, touch, kernel]);
        all.try_for_each(|(name, value)| writeln!(out, "{name}={value}"))?;
        if *bucket != Self::default().bucket {
            writeln!(out, "{BUCKET}={bucket}")?;
        }
        write!(out, "{links}")
    }
}

impl Default for CostModel {
    fn default() -> Self {
        // Defaults for two processes of one host: 2 GB/s, 10 us; a core of 20 GFLOP/s and 5 GB/s.
        let links = Links::default();
        let bucket = 1 << 20;
        Self { message: 10.0, byte: 5e-4, flop: 5e-5, touch: 2e-4, kernel: 2.0, bucket, links }
    }
}

#[allow(
    clippy::as_conversions,
    clippy::cast_precision_loss,
    reason = "an estimate: the last bits do not matter"
)]
pub(crate) fn real(count: u64) -> f64 {
    count as f64
}

impl CostModel {
    /// Parses one line; on an error nothing is changed.
    fn parse_line(&mut self, line: &str) -> Option<()> {
        let (name, value) = line.split_once('=')?;
        if name.trim() == BUCKET {
            self.bucket = value.trim().parse().ok()?;
            return Some(());
        }
        let price: f64 = value.trim().parse().ok()?;
        if !price.is_finite() || price < 0.0 {
            return None;
        }
        let name = name.trim();
        if let Some((part, from, to)) = links::pair(name) {
            return self.links.set_part(from, to, part, price).then_some(());
        }
        let place = NAMES.iter().position(|known| *known == name)?;
        let Self { message, byte, flop, touch, kernel, bucket: _, links: _ } = self;
        *[message, byte, flop, touch, kernel].into_iter().nth(place)? = price;
        Some(())
    }

    /// Price of a link between two workers without a price of its own.
    pub fn general(&self) -> LinkCost {
        LinkCost { message: self.message, byte: self.byte }
    }

    /// Price along a mesh dimension: the slowest link of any line, since all members of a line
    /// exchange together.
    pub fn along(&self, mesh: &Mesh, axis: usize) -> LinkCost {
        if self.links.is_empty() {
            return self.general();
        }
        let slowest = mesh
            .lines(axis)
            .fold(None, |known, places| self.slowest(known, &mesh.workers(&places)));
        slowest.unwrap_or_else(|| self.general())
    }

    /// Price of the slowest link among all members of a mesh.
    pub fn among(&self, mesh: &Mesh) -> LinkCost {
        if self.links.is_empty() {
            return self.general();
        }
        self.slowest(None, mesh.members()).unwrap_or_else(|| self.general())
    }

    fn slowest(&self, known: Option<LinkCost>, workers: &[u32]) -> Option<LinkCost> {
        let pairs = workers.iter().flat_map(|&from| workers.iter().map(move |&to| (from, to)));
        pairs.filter(|(from, to)| from != to).fold(known, |known, (from, to)| {
            let link = self.links.link(from, to, self.general());
            Some(known.map_or(link, |known| known.slower(link)))
        })
    }

    /// Price of the slowest link from the members of one mesh to the members of another, paired by
    /// index, repeating.
    pub fn between(&self, from: &Mesh, to: &Mesh) -> LinkCost {
        if self.links.is_empty() {
            return self.general();
        }
        let sources = from.members().iter().cycle();
        let pairs = sources.zip(to.members()).filter(|(source, target)| source != target);
        pairs
            .map(|(&source, &target)| self.links.link(source, target, self.general()))
            .reduce(LinkCost::slower)
            .unwrap_or_else(|| self.general())
    }

    /// Cost of changing an operand's placement from `have` to `want` along a mesh dimension of
    /// `members`. `bytes` is the size of the value after sharding by the other dimensions.
    pub fn change(
        &self,
        (have, want): (&Placement, &Placement),
        bytes: u64,
        members: usize,
        link: LinkCost,
    ) -> f64 {
        if have == want || members < 2 {
            return 0.0;
        }
        let one_hop = members == 2 || bytes <= ONE_HOP_BYTES_MAX;
        let members =
            real(u64::try_from(members).unwrap_or_else(|_| unreachable!("{members} members")));
        let share = real(bytes) * (members - 1.0) / members * link.byte;
        match (have, want) {
            (Placement::Partial(_), Placement::Shard { .. }) => link.message + share,
            // In one hop every member receives from all the others.
            (Placement::Partial(_), _) if one_hop => {
                link.message + real(bytes) * (members - 1.0) * link.byte
            }
            (Placement::Partial(_), _) => 2.0 * (link.message + share),
            (Placement::Shard { dim, ranges }, Placement::Shard { dim: same, ranges: target })
                if dim == same && target.total() > ranges.total() =>
            {
                // Elements that two members hold afterwards are sent.
                let sent = target.total() - ranges.total();
                let rows = real(u64::try_from(ranges.total()).unwrap_or_default()).max(1.0);
                let sent = real(u64::try_from(sent).unwrap_or_default()) / rows;
                2.0 * link.message + real(bytes) * sent / members * link.byte
            }
            (Placement::Shard { .. }, Placement::Shard { .. }) => {
                2.0 * link.message + share / members.max(1.0)
            }
            (Placement::Shard { .. }, _) => link.message + share,
            (Placement::Replicate, _) => self.kernel,
        }
    }

    /// Cost of fetching an operand from another mesh.
    pub fn fetch(&self, want: &Placement, bytes: u64, members: usize, link: LinkCost) -> f64 {
        let members =
            real(u64::try_from(members).unwrap_or_else(|_| unreachable!("{members} members")));
        let copies = if want.cut().is_some() { 1.0 } else { members };
        members * link.message + copies * real(bytes) * link.byte
    }

    /// Cost of a whole operator on one worker.
    pub fn work(&self, op: Op, operands: &[Option<Meta>], outputs: &[Meta]) -> f64 {
        let touched: u64 = operands.iter().flatten().chain(outputs).map(Meta::bytes).sum();
        let memory = real(touched) * self.touch;
        if op.info().family != Family::Contract {
            return memory + self.kernel;
        }
        let inner = operands.first().copied().flatten();
        let inner = inner.and_then(|meta| meta.dims.last().copied()).unwrap_or(1);
        let results: u64 =
            outputs.iter().filter_map(|meta| u64::try_from(meta.elements()).ok()).sum();
        let flops = 2.0
            * real(results)
            * real(
                u64::try_from(inner).unwrap_or_else(|_| unreachable!("size {inner} is negative")),
            );
        (flops * self.flop).max(memory) + self.kernel
    }
}

#[cfg(test)]
mod tests {
    use super::{CostModel, LinkCost};
    use gt_protocol::placement::Mesh;

    #[test]
    fn prices_are_read_as_they_are_written() {
        let mut cost_model = CostModel { message: 3.5, byte: 0.0, ..CostModel::default() };
        cost_model.links.set(2, 0, LinkCost { message: 40.0, byte: 1e-3 });
        assert_eq!(cost_model.to_string().parse(), Ok(cost_model.clone()));
        let text = "# of a fast network\n message = 0.5 # us\n\nbyte=1e-5";
        let read: CostModel = text.parse().unwrap();
        assert_eq!(read, CostModel { message: 0.5, byte: 1e-5, ..CostModel::default() });
        for (text, line) in [
            ("mess=1", 1),
            ("byte=1\nflop=x", 2),
            ("touch=-1", 1),
            ("kernel=inf", 1),
            ("byte[0]=1", 1),
            ("byte[0,0]=1", 1),
            ("flop[0,1]=1", 1),
            ("message[0,256]=1", 1),
        ] {
            assert_eq!(text.parse::<CostModel>().unwrap_err().line, line);
        }
    }

    #[test]
    fn a_pair_has_its_own_prices_in_both_directions_or_in_each() {
        let text = "byte=0.5\nmessage[0,2]=7\nmessage[1,0]=3\nmessage[0,1]=4\nbyte[1,0]=0.1";
        let cost_model: CostModel = text.parse().unwrap();
        let link = |from, to| {
            let LinkCost { message, byte } = cost_model.links.link(from, to, cost_model.general());
            (message, byte)
        };
        assert_eq!(link(0, 2), (7.0, 0.5));
        assert_eq!(link(2, 0), (7.0, 0.5));
        assert_eq!(link(0, 1), (4.0, 0.1));
        assert_eq!(link(1, 0), (3.0, 0.1));
        assert_eq!(link(1, 2), (10.0, 0.5));
        assert_eq!(link(9, 2), (10.0, 0.5));
    }

    #[test]
    fn a_line_is_as_slow_as_its_slowest_link() {
        let text = "message=1\nbyte=1\nmessage[0,2]=9\nmessage[2,3]=4\nbyte[1,3]=5";
        let cost_model: CostModel = text.parse().unwrap();
        let mesh = Mesh::new(&[2, 2], &[0, 1, 2, 3]).unwrap();
        let parts = |link: LinkCost| (link.message, link.byte);
        assert_eq!(parts(cost_model.along(&mesh, 0)), (9.0, 5.0));
        assert_eq!(parts(cost_model.along(&mesh, 1)), (4.0, 1.0));
        assert_eq!(parts(cost_model.among(&mesh)), (9.0, 5.0));
        assert_eq!(
            parts(cost_model.between(&Mesh::line(&[0, 1]), &Mesh::line(&[2, 3]))),
            (9.0, 5.0)
        );
        assert_eq!(parts(cost_model.between(&Mesh::line(&[1]), &Mesh::line(&[1, 2]))), (1.0, 1.0));
    }
}
