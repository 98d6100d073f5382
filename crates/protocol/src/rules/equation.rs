//! Index equations of contractions: `...mk,...kn->...mn`. The first two terms are factors, those
//! after them are added to the product. Letters stand for an operand's last dimensions, `...` for
//! the dimensions before them, which broadcast.

use super::shape::part;
use crate::Dims;
use smallvec::SmallVec;

/// One operand of an equation.
#[derive(Clone, Copy)]
pub(super) struct EquationTerm<'a> {
    letters: &'a [u8],
    /// The letters that this operand lacks.
    dropped: &'a [u8],
    dims: &'a Dims,
}

/// An equation and the shapes of its operands; an operand that is absent has none.
pub(super) struct Equation<'a> {
    pub terms: SmallVec<[Option<EquationTerm<'a>>; 3]>,
    pub output: &'a [u8],
}

impl<'a> Equation<'a> {
    /// Parses an equation. An operand with too few dimensions lacks the letters that the result
    /// would take from it (`mk` of a vector is `k`).
    pub fn new(text: &'a str, operands: impl IntoIterator<Item = Option<&'a Dims>>) -> Self {
        // Splitting at one character: the set-up of a two-character search takes longer than the
        // search.
        let (terms, output) = text.split_once('-').unwrap_or((text, ""));
        let output = letters(output.trim_start_matches('>'));
        let of = |(term, dims): (&'a str, Option<&'a Dims>)| {
            Some(EquationTerm::new(letters(term), output, dims?))
        };
        Self { terms: terms.split(',').zip(operands).map(of).collect(), output }
    }

    /// The letters of the result that an operand has.
    pub fn kept(&self) -> impl DoubleEndedIterator<Item = u8> {
        let has =
            |letter: &u8| self.terms.iter().flatten().any(|term| term.place(*letter).is_some());
        self.output.iter().copied().filter(has)
    }
}

fn letters(term: &str) -> &[u8] {
    term.strip_prefix("...").unwrap_or(term).as_bytes()
}

impl<'a> EquationTerm<'a> {
    fn new(letters: &'a [u8], output: &'a [u8], dims: &'a Dims) -> Self {
        let dropped = if dims.len() < letters.len() { output } else { &[] };
        Self { letters, dropped, dims }
    }

    pub fn held(&self) -> impl DoubleEndedIterator<Item = u8> {
        self.letters.iter().copied().filter(|letter| !self.dropped.contains(letter))
    }

    /// The dimension that a letter stands for.
    pub fn place(&self, letter: u8) -> Option<usize> {
        let from_end = self.held().rev().position(|held| held == letter)?;
        self.dims.len().checked_sub(from_end + 1)
    }

    pub fn size_of(&self, letter: u8) -> Option<i64> {
        self.dims.get(self.place(letter)?).copied()
    }

    /// Number of dimensions before those of the letters.
    pub fn batch_rank(&self) -> usize {
        self.dims.len().saturating_sub(self.held().count())
    }

    pub fn batch(&self) -> Dims {
        part(self.dims.split_at(self.batch_rank()).0)
    }

    /// The letter of a dimension; `None` for a batch dimension.
    pub fn letter(&self, dim: usize) -> Option<u8> {
        self.held().nth(dim.checked_sub(self.batch_rank())?)
    }
}
