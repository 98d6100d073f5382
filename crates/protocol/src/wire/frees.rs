//! Frees that wait to be sent: one instruction that grows, so that each of a run of frees is one
//! word.

use super::encode::{FREE_HEADER_WORDS, encode_free};
use super::words::count_word;
use super::{FRAME_WORDS_MAX, halves};

/// Whole instructions that free slots.
#[derive(Debug, Default)]
pub struct Frees {
    words: Vec<u32>,
    /// Index of the last instruction's first word; the length where no instruction may grow.
    last: usize,
}

impl Frees {
    /// Adds slots to the last instruction, or begins another one where that has no room.
    #[inline]
    pub fn add(&mut self, slots: &[u32]) {
        let length = self.words.len() - self.last + slots.len();
        match self.words.get_mut(self.last..) {
            Some([first, _, _, count, ..]) if length <= FRAME_WORDS_MAX => {
                *first = u32::from(halves(*first).0) | count_word(length) << 16;
                *count = count_word(length - FREE_HEADER_WORDS);
                self.words.extend_from_slice(slots);
            }
            Some(_) | None => self.begin(slots),
        }
    }

    fn begin(&mut self, slots: &[u32]) {
        let start = self.words.len();
        encode_free(slots, &mut self.words);
        let is_one = slots.len() <= FRAME_WORDS_MAX - FREE_HEADER_WORDS;
        self.last = if is_one { start } else { self.words.len() };
    }

    pub fn words(&self) -> &[u32] {
        &self.words
    }

    pub fn clear(&mut self) {
        self.words.clear();
        self.last = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::Frees;
    use crate::wire::{FRAME_WORDS_MAX, cut, freed};

    /// The slots of each instruction.
    fn instructions(frees: &Frees) -> Vec<Vec<u32>> {
        let mut rest = frees.words();
        let mut all = Vec::new();
        while let Some(first) = cut::first(rest).unwrap() {
            all.push(freed(first).unwrap().to_vec());
            rest = &rest[first.len()..];
        }
        assert!(rest.is_empty(), "{rest:?} is no whole instruction");
        all
    }

    #[test]
    fn a_run_of_frees_is_one_instruction() {
        let mut frees = Frees::default();
        frees.add(&[]);
        assert!(frees.words().is_empty());
        frees.add(&[7]);
        frees.add(&[3, 9]);
        frees.add(&[]);
        assert_eq!(instructions(&frees), [[7, 3, 9]]);
        frees.clear();
        frees.add(&[1]);
        assert_eq!(instructions(&frees), [[1]]);
    }

    #[test]
    fn a_frame_holds_as_many_as_its_length_can_say() {
        let most: Vec<u32> = (0..).take(FRAME_WORDS_MAX - 4).collect();
        let mut frees = Frees::default();
        frees.add(&most[1..]);
        frees.add(&most[..1]);
        frees.add(&[5]);
        frees.add(&[6]);
        let lengths: Vec<usize> = instructions(&frees).iter().map(Vec::len).collect();
        assert_eq!(lengths, [FRAME_WORDS_MAX - 4, 2]);
        let longer: Vec<u32> = (0..).take(FRAME_WORDS_MAX + 9).collect();
        frees.clear();
        frees.add(&longer);
        frees.add(&[5]);
        let found = instructions(&frees);
        assert_eq!(found.concat(), [&longer[..], &[5]].concat());
        assert_eq!(found.len(), 3);
    }
}
