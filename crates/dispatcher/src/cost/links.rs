//! Prices of traffic between certain pairs of workers, where they differ from the general ones.

use std::fmt;

/// Prices of a link in microseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LinkCost {
    /// Price of one message.
    pub message: f64,
    /// Price of one byte.
    pub byte: f64,
}

impl LinkCost {
    /// Maximum of two prices, for messages and for bytes.
    #[must_use]
    pub fn slower(self, other: Self) -> Self {
        Self { message: self.message.max(other.message), byte: self.byte.max(other.byte) }
    }
}

/// Number of workers whose links can have prices of their own: the table is a square.
const WORKERS_MAX: u32 = 256;

/// The known prices of one direction.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct PairCost {
    message: Option<f64>,
    byte: Option<f64>,
}

/// Selects one of a link's two prices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CostKind {
    Message,
    Byte,
}

/// Prices by pair of workers. The prices of one direction also apply to the other, unless that has
/// its own.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Links {
    /// Number of rows and of columns of `prices`.
    workers: usize,
    costs: Vec<PairCost>,
}

impl Links {
    pub fn is_empty(&self) -> bool {
        self.costs.is_empty()
    }

    /// Returns true if a pair has a price, in either direction.
    pub fn knows(&self, from: u32, to: u32) -> bool {
        let nothing = PairCost::default();
        self.at(from, to) != nothing || self.at(to, from) != nothing
    }

    /// Sets both prices of a pair; does nothing for workers beyond the table's limit.
    pub fn set(&mut self, from: u32, to: u32, link: LinkCost) {
        self.set_part(from, to, CostKind::Message, link.message);
        self.set_part(from, to, CostKind::Byte, link.byte);
    }

    /// Sets one price of a pair; returns false for a pair that cannot have prices.
    pub(super) fn set_part(&mut self, from: u32, to: u32, part: CostKind, price: f64) -> bool {
        if from == to || from.max(to) >= WORKERS_MAX {
            return false;
        }
        let [from, to] = [from, to].map(place);
        self.grow(from.max(to) + 1);
        if let Some(costs) = self.costs.get_mut(from * self.workers + to) {
            *match part {
                CostKind::Message => &mut costs.message,
                CostKind::Byte => &mut costs.byte,
            } = Some(price);
        }
        true
    }

    /// The prices from one worker to another; `general` for unknown ones.
    pub fn link(&self, from: u32, to: u32, general: LinkCost) -> LinkCost {
        let (forth, back) = (self.at(from, to), self.at(to, from));
        LinkCost {
            message: forth.message.or(back.message).unwrap_or(general.message),
            byte: forth.byte.or(back.byte).unwrap_or(general.byte),
        }
    }

    fn at(&self, from: u32, to: u32) -> PairCost {
        let [from, to] = [from, to].map(place);
        if from.max(to) >= self.workers {
            return PairCost::default();
        }
        self.costs.get(from * self.workers + to).copied().unwrap_or_default()
    }

    fn grow(&mut self, workers: usize) {
        if workers <= self.workers {
            return;
        }
        let mut costs = vec![PairCost::default(); workers * workers];
        if self.workers > 0 {
            for (wide, narrow) in costs.chunks_mut(workers).zip(self.costs.chunks(self.workers)) {
                for (new, old) in wide.iter_mut().zip(narrow) {
                    *new = *old;
                }
            }
        }
        (self.workers, self.costs) = (workers, costs);
    }
}

/// Prints `message[0,1]=3` and `byte[0,1]=0.0001`, each on a line.
impl fmt::Display for Links {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (place, costs) in self.costs.iter().enumerate() {
            let (from, to) = (place / self.workers, place % self.workers);
            for (name, cost) in [("message", costs.message), ("byte", costs.byte)] {
                if let Some(cost) = cost {
                    writeln!(out, "{name}[{from},{to}]={cost}")?;
                }
            }
        }
        Ok(())
    }
}

/// Parses `message[0,1]`.
pub(super) fn pair(name: &str) -> Option<(CostKind, u32, u32)> {
    let (name, pair) = name.strip_suffix(']')?.split_once('[')?;
    let part = match name.trim() {
        "message" => CostKind::Message,
        "byte" => CostKind::Byte,
        _ => return None,
    };
    let (from, to) = pair.split_once(',')?;
    Some((part, from.trim().parse().ok()?, to.trim().parse().ok()?))
}

fn place(worker: u32) -> usize {
    usize::try_from(worker).unwrap_or_else(|_| unreachable!("worker {worker}"))
}
