//! Programs that a function's region has had.

use super::Unfit;
use super::program::RegionProgram;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// Time between two questions whether a program is compiled; it doubles up to the longest.
const ASK_FIRST: Duration = Duration::from_millis(100);
const ASK_LONGEST: Duration = Duration::from_secs(2);

/// Progress of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ProgramStage {
    /// Seen.
    Counted,
    /// A worker has its bytes, in this slot.
    Uploaded,
    /// A worker compiles it.
    Asked,
    Ready,
    Refused,
}

impl ProgramStage {
    pub(crate) fn text(self) -> &'static str {
        match self {
            Self::Counted => "counted",
            Self::Uploaded => "uploaded",
            Self::Asked => "compiling",
            Self::Ready => "compiled",
            Self::Refused => "refused",
        }
    }
}

#[derive(Debug)]
pub(crate) struct KnownProgram {
    pub stage: ProgramStage,
    pub instructions: usize,
    /// Words and facts of the program, which a digest alone does not tell apart from every other.
    words: Vec<u32>,
    facts: Vec<i64>,
    pub seen: u64,
    pub called: u64,
    /// Slot of the program's bytes, and the connection's number.
    bytes: Option<(u32, u32)>,
    /// Slot of the answer to the last question, which Python takes.
    pub answer: Option<u32>,
    asked: Option<Instant>,
    pause: Duration,
}

/// Programs by digest.
#[derive(Debug, Default)]
pub(crate) struct ProgramTable {
    pub entries: BTreeMap<u64, KnownProgram>,
    /// Words of programs that are to be uploaded.
    pub wanted: Vec<(u64, Vec<u32>)>,
    /// Calls after which a program is compiled, least number of instructions, most programs.
    pub threshold: u64,
    pub least: usize,
    pub most: usize,
}

/// Way in which a segment is sent.
pub(crate) enum Way {
    Plain,
    /// One by one, after the question whether the program in this slot is compiled.
    Asking(u32),
    /// By a call of the program in this slot.
    Called(u32),
    Unfit(Unfit),
}

impl ProgramTable {
    /// Counts a program, and says how it is sent.
    pub(crate) fn way(&mut self, program: &RegionProgram, epoch: u32) -> Way {
        if self.entries.len() >= self.most && !self.entries.contains_key(&program.digest) {
            return Way::Unfit(Unfit::Variants);
        }
        let entry = self.entries.entry(program.digest).or_insert_with(|| KnownProgram {
            stage: ProgramStage::Counted,
            instructions: program.instructions,
            words: program.words.clone(),
            facts: program.facts.clone(),
            seen: 0,
            called: 0,
            bytes: None,
            answer: None,
            asked: None,
            pause: ASK_FIRST,
        });
        if entry.words != program.words || entry.facts != program.facts {
            return Way::Unfit(Unfit::Variants);
        }
        entry.seen += 1;
        let bytes = entry.bytes.filter(|&(_, of)| of == epoch).map(|(slot, _)| slot);
        match (entry.stage, bytes) {
            (ProgramStage::Ready, Some(slot)) => {
                entry.called += 1;
                Way::Called(slot)
            }
            (ProgramStage::Uploaded | ProgramStage::Asked, Some(slot)) if entry.is_due() => {
                Way::Asking(slot)
            }
            (ProgramStage::Refused, _)
            | (ProgramStage::Uploaded | ProgramStage::Asked, Some(_)) => Way::Plain,
            // The bytes of another session are gone.
            (
                ProgramStage::Counted
                | ProgramStage::Uploaded
                | ProgramStage::Asked
                | ProgramStage::Ready,
                _,
            ) => {
                if entry.seen >= self.threshold {
                    self.wanted.push((program.digest, program.words.clone()));
                }
                Way::Plain
            }
        }
    }

    /// Notes the slot that a program's bytes are in.
    pub(crate) fn uploaded(&mut self, digest: u64, slot: u32, epoch: u32) {
        if let Some(entry) = self.entries.get_mut(&digest) {
            entry.bytes = Some((slot, epoch));
            entry.stage = ProgramStage::Uploaded;
            (entry.asked, entry.pause, entry.answer) = (None, ASK_FIRST, None);
        }
    }

    pub(crate) fn asked(&mut self, digest: u64, answer: u32) {
        if let Some(entry) = self.entries.get_mut(&digest) {
            entry.stage = ProgramStage::Asked;
            entry.answer = Some(answer);
            entry.asked = Some(Instant::now());
        }
    }

    /// Notes a worker's answer: 0 compiling, 1 ready, 2 refused.
    pub(crate) fn answered(&mut self, digest: u64, answer: i64) {
        if let Some(entry) = self.entries.get_mut(&digest) {
            entry.stage = match answer {
                0 => ProgramStage::Asked,
                1 => ProgramStage::Ready,
                _ => ProgramStage::Refused,
            };
        }
    }
}

impl KnownProgram {
    fn is_due(&mut self) -> bool {
        let is_due = self.asked.is_none_or(|asked| asked.elapsed() >= self.pause);
        if is_due && self.asked.is_some() {
            self.pause = (self.pause * 2).min(ASK_LONGEST);
        }
        is_due
    }
}
