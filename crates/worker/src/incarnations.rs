//! Incarnations: successive workers with one index; which of them is alive, and which one new
//! instructions mean. The information comes over two connections, in either order, so a state never
//! goes back.

use crate::peers::PeerId;
use std::collections::BTreeMap;

/// States by index. An unknown worker has no predecessors.
#[derive(Debug, Default)]
pub struct Incarnations(BTreeMap<u32, Incarnation>);

#[derive(Debug, Default)]
struct Incarnation {
    /// The incarnation that new instructions mean.
    current: u32,
    /// All incarnations before this one are gone.
    gone_before: u32,
}

impl Incarnations {
    /// Sets the incarnation that instructions mean from now on; all before it are gone.
    pub fn set_current(&mut self, peer: PeerId) {
        self.0.entry(peer.index).or_default().current = peer.incarnation;
        self.lose_earlier(peer);
    }

    pub fn current(&self, index: u32) -> PeerId {
        let incarnation = self.0.get(&index).map_or(0, |one| one.current);
        PeerId { index, incarnation }
    }

    /// Returns true if no new instruction means it.
    pub fn is_past(&self, peer: PeerId) -> bool {
        peer < self.current(peer.index)
    }

    /// Marks this incarnation and all before it as gone; returns false if that was known.
    pub fn lose(&mut self, peer: PeerId) -> bool {
        self.lose_earlier(PeerId { incarnation: peer.incarnation.saturating_add(1), ..peer })
    }

    /// Marks all incarnations before this one as gone; returns false if that was known.
    pub fn lose_earlier(&mut self, peer: PeerId) -> bool {
        let gone_before = &mut self.0.entry(peer.index).or_default().gone_before;
        let is_news = *gone_before < peer.incarnation;
        *gone_before = peer.incarnation.max(*gone_before);
        is_news
    }

    pub fn is_gone(&self, peer: PeerId) -> bool {
        self.0.get(&peer.index).is_some_and(|one| peer.incarnation < one.gone_before)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peers() -> [PeerId; 3] {
        [0, 1, 2].map(|incarnation| PeerId { index: 4, incarnation })
    }

    #[test]
    fn a_late_word_of_an_earlier_ones_end_does_not_concern_the_next() {
        let [first, second, third] = peers();
        let mut incarnations = Incarnations::default();
        incarnations.set_current(third);
        assert!(incarnations.is_gone(first) && incarnations.is_gone(second));
        assert!(!incarnations.lose(second), "known");
        assert!(!incarnations.is_gone(third));
        assert!(incarnations.lose(third));
        assert!(!incarnations.lose_earlier(third));
        assert!(incarnations.is_gone(third), "a reported loss is not undone");
    }

    #[test]
    fn instructions_mean_the_first_until_they_are_told_of_another() {
        let [first, second, _] = peers();
        let mut incarnations = Incarnations::default();
        assert_eq!(incarnations.current(4), first);
        // The second one has joined, but instructions do not mean it yet.
        incarnations.lose_earlier(second);
        assert_eq!((incarnations.current(4), incarnations.is_past(first)), (first, false));
        incarnations.set_current(second);
        assert_eq!((incarnations.current(4), incarnations.is_past(first)), (second, true));
        assert!(!incarnations.is_past(PeerId { index: 3, incarnation: 0 }));
    }
}
