//! What a plan costs, in microseconds: work on the members, and what has to move first.

use gt_protocol::placement::Placement;
use gt_protocol::{Family, Meta, Op};
use std::fmt;
use std::str::FromStr;

/// Prices of one cluster in microseconds: defaults until a probe has measured them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Prices {
    /// One message between two workers.
    pub message: f64,
    /// One byte between two workers.
    pub byte: f64,
    /// One floating-point operation of a product.
    pub flop: f64,
    /// One byte that a kernel reads or writes.
    pub touch: f64,
    /// One kernel.
    pub kernel: f64,
}

/// Names of the prices in a text, in order.
const NAMES: [&str; 5] = ["message", "byte", "flop", "touch", "kernel"];

/// A text that is no list of prices.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "line {line}: {text:?} is no price; a line is NAME=MICROSECONDS, with a name of {NAMES:?} and a number from 0 on"
)]
pub struct PricesError {
    /// Counted from 1.
    pub line: usize,
    pub text: String,
}

/// One price a line; what stands after `#` is a comment. Prices that are absent have their default.
impl FromStr for Prices {
    type Err = PricesError;

    fn from_str(text: &str) -> Result<Self, PricesError> {
        let mut prices = Self::default();
        for (number, line) in (1..).zip(text.lines()) {
            let said = line.split('#').next().unwrap_or_default().trim();
            if said.is_empty() {
                continue;
            }
            let value = said.split_once('=').and_then(|(name, value)| {
                let place = NAMES.iter().position(|known| *known == name.trim())?;
                let value: f64 = value.trim().parse().ok()?;
                (value.is_finite() && value >= 0.0).then_some((place, value))
            });
            let mut all = prices.all();
            let Some((place, value)) =
                value.and_then(|(place, value)| Some((all.get_mut(place)?, value)))
            else {
                return Err(PricesError { line: number, text: said.to_owned() });
            };
            **place = value;
        }
        Ok(prices)
    }
}

impl fmt::Display for Prices {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut prices = *self;
        NAMES.iter().zip(prices.all()).try_for_each(|(name, value)| writeln!(out, "{name}={value}"))
    }
}

impl Default for Prices {
    fn default() -> Self {
        // Two processes of one host: 2 GB/s, 10 us; a core of 20 GFLOP/s and 5 GB/s.
        Self { message: 10.0, byte: 5e-4, flop: 5e-5, touch: 2e-4, kernel: 2.0 }
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

impl Prices {
    fn all(&mut self) -> [&mut f64; 5] {
        let Self { message, byte, flop, touch, kernel } = self;
        [message, byte, flop, touch, kernel]
    }

    /// An operand that lies as `have` along a mesh dimension of `members` is to lie as `want`. `bytes` are those of the
    /// value over the other dimensions' pieces.
    pub fn change(&self, have: &Placement, want: &Placement, bytes: u64, members: usize) -> f64 {
        if have == want || members < 2 {
            return 0.0;
        }
        let members = real(u64::try_from(members).unwrap_or(2));
        let share = real(bytes) * (members - 1.0) / members * self.byte;
        match (have, want) {
            (Placement::Partial(_), Placement::Shard { .. }) => self.message + share,
            (Placement::Partial(_), _) => 2.0 * (self.message + share),
            (Placement::Shard { .. }, Placement::Shard { .. }) => {
                2.0 * self.message + share / members.max(1.0)
            }
            (Placement::Shard { .. }, _) => self.message + share,
            (Placement::Replicate, _) => self.kernel,
        }
    }

    /// An operand comes from another mesh.
    pub fn fetch(&self, want: &Placement, bytes: u64, members: usize) -> f64 {
        let members = real(u64::try_from(members).unwrap_or(1));
        let copies = if want.cut().is_some() { 1.0 } else { members };
        members * self.message + copies * real(bytes) * self.byte
    }

    /// A whole operator on one worker.
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
        let flops = 2.0 * real(results) * real(u64::try_from(inner).unwrap_or(1));
        (flops * self.flop).max(memory) + self.kernel
    }
}

#[cfg(test)]
mod tests {
    use super::Prices;

    #[test]
    fn prices_are_read_as_they_are_written() {
        let prices = Prices { message: 3.5, byte: 0.0, ..Prices::default() };
        assert_eq!(prices.to_string().parse(), Ok(prices));
        let text = "# of a fast network\n message = 0.5 # us\n\nbyte=1e-5";
        let read: Prices = text.parse().unwrap();
        assert_eq!(read, Prices { message: 0.5, byte: 1e-5, ..Prices::default() });
        for (text, line) in
            [("mess=1", 1), ("byte=1\nflop=x", 2), ("touch=-1", 1), ("kernel=inf", 1)]
        {
            assert_eq!(text.parse::<Prices>().unwrap_err().line, line);
        }
    }
}
