//! YAML as a tree of texts with their lines, without anything that a policy has no use for: tags,
//! anchors, aliases, several documents, keys that stand twice.

use super::PolicyFault;
use saphyr_parser::{Event, Parser, Span, StrInput};

/// Limit of nested collections: a policy has three.
const DEPTH_MAX: usize = 8;
/// Limit of all keys and values: users of a cluster, some keys each.
const NODES_MAX: usize = 1 << 16;

/// A value of the file, with its line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PolicyNode {
    pub line: usize,
    pub kind: PolicyNodeKind,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum PolicyNodeKind {
    /// A scalar, as it is written; empty for none.
    Text(String),
    List,
    Map(Vec<PolicyEntry>),
}

/// A key with its line, and its value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PolicyEntry {
    pub key: String,
    pub line: usize,
    pub value: PolicyNode,
}

/// Reads the only document of a text; `None` for a text without one.
pub(super) fn read(text: &str) -> Result<Option<PolicyNode>, PolicyFault> {
    let mut reader = PolicyReader { parser: Parser::new_from_str(text), nodes: 0 };
    let mut document = None;
    // The loop ends: each round takes one of the parser's finitely many events.
    while let Some((event, line)) = reader.next()? {
        match event {
            Event::DocumentStart(_) if document.is_none() => {
                let (event, line) = reader.need()?;
                document = Some(reader.node(event, line, 0)?);
            }
            Event::DocumentStart(_) => {
                return Err(PolicyFault::new(line, "a second document begins here"));
            }
            Event::StreamEnd => break,
            Event::Nothing
            | Event::StreamStart
            | Event::DocumentEnd
            | Event::Alias(_)
            | Event::Scalar(..)
            | Event::SequenceStart(..)
            | Event::SequenceEnd
            | Event::MappingStart(..)
            | Event::MappingEnd => {}
        }
    }
    Ok(document)
}

struct PolicyReader<'t> {
    parser: Parser<'t, StrInput<'t>>,
    nodes: usize,
}

impl<'t> PolicyReader<'t> {
    fn next(&mut self) -> Result<Option<(Event<'t>, usize)>, PolicyFault> {
        match self.parser.next_event() {
            None => Ok(None),
            Some(Ok((event, Span { start, .. }))) => Ok(Some((event, start.line()))),
            Some(Err(error)) => Err(PolicyFault::new(error.marker().line(), error.info())),
        }
    }

    fn need(&mut self) -> Result<(Event<'t>, usize), PolicyFault> {
        self.next()?.ok_or_else(|| PolicyFault::new(0, "the file ends in the middle"))
    }

    fn node(
        &mut self,
        event: Event<'t>,
        line: usize,
        depth: usize,
    ) -> Result<PolicyNode, PolicyFault> {
        self.nodes += 1;
        if depth > DEPTH_MAX || self.nodes > NODES_MAX {
            return Err(PolicyFault::new(line, "the file is nested too deep or too long"));
        }
        let kind = match event {
            Event::Scalar(text, _, 0, None) => PolicyNodeKind::Text(text.into_owned()),
            Event::MappingStart(0, None) => PolicyNodeKind::Map(self.entries(depth)?),
            Event::SequenceStart(0, None) => {
                self.skip_list(depth)?;
                PolicyNodeKind::List
            }
            Event::Alias(_)
            | Event::Scalar(..)
            | Event::MappingStart(..)
            | Event::SequenceStart(..) => return Err(fancy(line)),
            Event::Nothing
            | Event::StreamStart
            | Event::StreamEnd
            | Event::DocumentStart(_)
            | Event::DocumentEnd
            | Event::SequenceEnd
            | Event::MappingEnd => return Err(PolicyFault::new(line, "a value is missing")),
        };
        Ok(PolicyNode { line, kind })
    }

    fn entries(&mut self, depth: usize) -> Result<Vec<PolicyEntry>, PolicyFault> {
        let mut entries: Vec<PolicyEntry> = Vec::new();
        // The loop ends with the mapping, or with the text.
        loop {
            let (event, line) = self.need()?;
            if event == Event::MappingEnd {
                return Ok(entries);
            }
            let PolicyNodeKind::Text(key) = self.node(event, line, depth + 1)?.kind else {
                return Err(PolicyFault::new(line, "a key is not a word"));
            };
            if let Some(first) = entries.iter().find(|entry| entry.key == key) {
                let text = format!("{key:?} stands twice, first in line {}", first.line);
                return Err(PolicyFault::new(line, text));
            }
            let (event, value_line) = self.need()?;
            let value = self.node(event, value_line, depth + 1)?;
            entries.push(PolicyEntry { key, line, value });
        }
    }

    fn skip_list(&mut self, depth: usize) -> Result<(), PolicyFault> {
        // The loop ends with the list, or with the text.
        loop {
            let (event, line) = self.need()?;
            if event == Event::SequenceEnd {
                return Ok(());
            }
            self.node(event, line, depth + 1)?;
        }
    }
}

fn fancy(line: usize) -> PolicyFault {
    PolicyFault::new(line, "tags, anchors and aliases have no meaning in a policy")
}
