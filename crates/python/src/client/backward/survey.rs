//! Facts about the graph that a pass needs before it begins: the nodes that lead to a wanted
//! gradient, and the point after which nothing more can arrive at a leaf that has hooks. A pass
//! that needs neither does not look at the graph.

use super::hooks;
use crate::client::tape::{Edge, SharedNode};
use crate::client::value::variable::Var;
use pyo3::prelude::*;
use std::collections::{BTreeMap, BTreeSet};

/// Place in the graph where a wanted gradient is found.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Target {
    Node(u64, u32),
    Leaf(usize),
}

/// Indices of the captured gradients that each place fills.
pub(super) type Targets = BTreeMap<Target, Vec<usize>>;

/// A leaf whose hooks are called with the sum of all that arrives.
struct Leaf {
    var: Var,
    /// Sequence number of the first recorded node that leads to the leaf; `None` for a root.
    first: Option<u64>,
    sum: Option<Var>,
}

#[derive(Default)]
pub(super) struct Survey {
    leaves: BTreeMap<usize, Leaf>,
    /// Nodes that lead to a wanted gradient; `None` where leaves accumulate.
    wanted: Option<Wanted>,
}

#[derive(Default)]
struct Wanted {
    /// Nodes with a wanted output, or an operand that leads to a wanted gradient.
    reached: BTreeSet<u64>,
    /// Nodes with an operand that leads to a wanted gradient.
    passed: BTreeSet<u64>,
    leaves: BTreeSet<usize>,
}

impl Survey {
    /// The sum so far at a leaf whose hooks wait for all of its gradients.
    pub(super) fn hooked(&mut self, leaf: &Var) -> Option<&mut Option<Var>> {
        if self.leaves.is_empty() {
            return None;
        }
        self.leaves.get_mut(&leaf.address()).map(|leaf| &mut leaf.sum)
    }

    /// Takes out a leaf to which no remaining node leads: none before `sequence`, or none at all.
    pub(super) fn complete(&mut self, sequence: Option<u64>) -> Option<(Var, Option<Var>)> {
        let is_complete = |leaf: &&Leaf| match (leaf.first, sequence) {
            (None, _) => true,
            (Some(_), None) => false,
            (Some(first), Some(sequence)) => first >= sequence,
        };
        let address = self.leaves.values().find(is_complete)?.var.address();
        self.leaves.remove(&address).map(|leaf| (leaf.var, leaf.sum))
    }

    /// Returns true if a gradient at this node's outputs is needed.
    pub(super) fn is_reached(&self, node: &SharedNode) -> bool {
        self.wanted.as_ref().is_none_or(|wanted| wanted.reached.contains(&node.sequence))
    }

    /// Returns true if the gradients of this node's operands are needed.
    pub(super) fn is_passed(&self, node: &SharedNode) -> bool {
        self.wanted.as_ref().is_none_or(|wanted| wanted.passed.contains(&node.sequence))
    }

    /// Returns true if a gradient at this edge is needed.
    pub(super) fn is_wanted(&self, edge: &Edge) -> bool {
        self.wanted.as_ref().is_none_or(|wanted| wanted.reaches(edge))
    }
}

impl Wanted {
    fn reaches(&self, edge: &Edge) -> bool {
        match edge {
            Edge::Node(node, _) => self.reached.contains(&node.sequence),
            Edge::Leaf(leaf) => self.leaves.contains(&leaf.address()),
            Edge::Nowhere => false,
        }
    }
}

impl Survey {
    /// Surveys the graph behind the roots, where the pass needs to know something of it. Leaves
    /// accumulate where there are no targets.
    pub(super) fn look<'a>(
        &mut self,
        py: Python<'_>,
        roots: impl Iterator<Item = &'a Edge>,
        targets: Option<&Targets>,
    ) {
        let has_hooks = hooks::any_of_leaves();
        if targets.is_none() && !has_hooks {
            return;
        }
        let mut nodes: BTreeMap<u64, SharedNode> = BTreeMap::new();
        let mut queue: Vec<SharedNode> = Vec::new();
        for root in roots {
            match root {
                Edge::Node(node, _) => queue.push(node.clone_ref(py)),
                Edge::Leaf(leaf) => self.enter_leaf(py, leaf, None, targets),
                Edge::Nowhere => {}
            }
        }
        while let Some(node) = queue.pop() {
            if nodes.contains_key(&node.sequence) {
                node.release(py);
                continue;
            }
            queue.extend(node.inputs.iter().filter_map(|input| match &input.edge {
                Some(Edge::Node(from, _)) => Some(from.clone_ref(py)),
                Some(Edge::Leaf(_) | Edge::Nowhere) | None => None,
            }));
            nodes.insert(node.sequence, node);
        }
        if let Some(targets) = targets {
            self.wanted = Some(leading_to(targets, &nodes));
        }
        if has_hooks {
            for node in nodes.values() {
                for edge in node.inputs.iter().filter_map(|input| input.edge.as_ref()) {
                    if let Edge::Leaf(leaf) = edge {
                        self.enter_leaf(py, leaf, Some(node.sequence), targets);
                    }
                }
            }
        }
        for node in nodes.into_values() {
            node.release(py);
        }
    }

    /// Enters a leaf that has hooks; nodes come in the order of their recording.
    fn enter_leaf(
        &mut self,
        py: Python<'_>,
        leaf: &Var,
        first: Option<u64>,
        targets: Option<&Targets>,
    ) {
        let is_wanted =
            targets.is_none_or(|targets| targets.contains_key(&Target::Leaf(leaf.address())));
        if is_wanted && hooks::has_leaf_hooks(py, leaf) {
            let entry = self.leaves.entry(leaf.address());
            let known = entry.or_insert_with(|| Leaf { var: leaf.clone_ref(py), first, sum: None });
            known.first = known.first.or(first);
        }
    }
}

/// Nodes that lead to a wanted gradient. Nodes are visited in recording order, so operands come
/// before the nodes that use them.
fn leading_to(targets: &Targets, nodes: &BTreeMap<u64, SharedNode>) -> Wanted {
    let mut wanted = Wanted::default();
    let mut outputs = BTreeSet::new();
    for target in targets.keys() {
        match target {
            Target::Node(sequence, _) => outputs.insert(*sequence),
            Target::Leaf(address) => wanted.leaves.insert(*address),
        };
    }
    for (sequence, node) in nodes {
        let mut edges = node.inputs.iter().filter_map(|input| input.edge.as_ref());
        let is_passed = edges.any(|edge| wanted.reaches(edge));
        if is_passed {
            wanted.passed.insert(*sequence);
        }
        if is_passed || outputs.contains(sequence) {
            wanted.reached.insert(*sequence);
        }
    }
    wanted
}
