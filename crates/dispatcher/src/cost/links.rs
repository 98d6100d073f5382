//! What traffic between two certain workers costs, where it is not what traffic costs in general.

use std::fmt;

/// A link's price in microseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LinkPrices {
    /// One message.
    pub message: f64,
    /// One byte.
    pub byte: f64,
}

impl LinkPrices {
    /// As slow as the slower of two, in each respect.
    #[must_use]
    pub fn slower(self, other: Self) -> Self {
        Self { message: self.message.max(other.message), byte: self.byte.max(other.byte) }
    }
}

/// Workers whose links can have prices of their own: the table is a square.
const WORKERS_MAX: u32 = 256;

/// The prices of one direction, where they are known.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct PairPrices {
    message: Option<f64>,
    byte: Option<f64>,
}

/// Which of a link's two prices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PriceKind {
    Message,
    Byte,
}

/// Prices by pair of workers. Those of one direction hold for the other too, unless that has its own.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Links {
    /// Rows and columns of `prices`.
    workers: usize,
    prices: Vec<PairPrices>,
}

impl Links {
    pub fn is_empty(&self) -> bool {
        self.prices.is_empty()
    }

    /// Whether a pair has a price, in either direction.
    pub fn knows(&self, from: u32, to: u32) -> bool {
        let nothing = PairPrices::default();
        self.at(from, to) != nothing || self.at(to, from) != nothing
    }

    /// Sets both prices of a pair; nothing for workers beyond the table's limit.
    pub fn set(&mut self, from: u32, to: u32, link: LinkPrices) {
        self.set_part(from, to, PriceKind::Message, link.message);
        self.set_part(from, to, PriceKind::Byte, link.byte);
    }

    /// Says whether it is a pair that can have prices.
    pub(super) fn set_part(&mut self, from: u32, to: u32, part: PriceKind, price: f64) -> bool {
        if from == to || from.max(to) >= WORKERS_MAX {
            return false;
        }
        let [from, to] = [from, to].map(place);
        self.grow(from.max(to) + 1);
        if let Some(prices) = self.prices.get_mut(from * self.workers + to) {
            *match part {
                PriceKind::Message => &mut prices.message,
                PriceKind::Byte => &mut prices.byte,
            } = Some(price);
        }
        true
    }

    /// The price from one worker to another, with `general` for what is not known.
    pub fn link(&self, from: u32, to: u32, general: LinkPrices) -> LinkPrices {
        let (forth, back) = (self.at(from, to), self.at(to, from));
        LinkPrices {
            message: forth.message.or(back.message).unwrap_or(general.message),
            byte: forth.byte.or(back.byte).unwrap_or(general.byte),
        }
    }

    fn at(&self, from: u32, to: u32) -> PairPrices {
        let [from, to] = [from, to].map(place);
        if from.max(to) >= self.workers {
            return PairPrices::default();
        }
        self.prices.get(from * self.workers + to).copied().unwrap_or_default()
    }

    fn grow(&mut self, workers: usize) {
        if workers <= self.workers {
            return;
        }
        let mut prices = vec![PairPrices::default(); workers * workers];
        if self.workers > 0 {
            for (wide, narrow) in prices.chunks_mut(workers).zip(self.prices.chunks(self.workers)) {
                for (new, old) in wide.iter_mut().zip(narrow) {
                    *new = *old;
                }
            }
        }
        (self.workers, self.prices) = (workers, prices);
    }
}

/// `message[0,1]=3` and `byte[0,1]=0.0001`, a line each.
impl fmt::Display for Links {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (place, prices) in self.prices.iter().enumerate() {
            let (from, to) = (place / self.workers, place % self.workers);
            for (name, price) in [("message", prices.message), ("byte", prices.byte)] {
                if let Some(price) = price {
                    writeln!(out, "{name}[{from},{to}]={price}")?;
                }
            }
        }
        Ok(())
    }
}

/// Reads `message[0,1]`.
pub(super) fn pair(name: &str) -> Option<(PriceKind, u32, u32)> {
    let (name, pair) = name.strip_suffix(']')?.split_once('[')?;
    let part = match name.trim() {
        "message" => PriceKind::Message,
        "byte" => PriceKind::Byte,
        _ => return None,
    };
    let (from, to) = pair.split_once(',')?;
    Some((part, from.trim().parse().ok()?, to.trim().parse().ok()?))
}

fn place(worker: u32) -> usize {
    usize::try_from(worker).unwrap_or_else(|_| unreachable!("worker {worker}"))
}
