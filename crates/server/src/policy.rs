//! The policy file: weights and limits by user. Reading it is here; enforcing it is the core's
//! (memory), `turns`' (weights) and the event loop's (sessions).

mod file;
mod tree;

pub(crate) use file::{PolicyFile, watch};

use std::collections::BTreeMap;
use std::path::PathBuf;
use tree::{PolicyEntry, PolicyNode, PolicyNodeKind};

const KEYS: [&str; 2] = ["default", "users"];
const USER_KEYS: [&str; 3] = ["weight", "memory", "sessions"];
const UNITS: [(&str, f64); 9] = [
    ("B", 1.0),
    ("KB", 1e3),
    ("MB", 1e6),
    ("GB", 1e9),
    ("TB", 1e12),
    ("KIB", 1024.0),
    ("MIB", 1_048_576.0),
    ("GIB", 1_073_741_824.0),
    ("TIB", 1_099_511_627_776.0),
];
/// Limits of weights: shares of a millionth are no shares.
const WEIGHT_MIN: f64 = 1e-3;
const WEIGHT_MAX: f64 = 1e3;
/// Word for a limit that a user does not have although the default has one.
const UNLIMITED: &str = "unlimited";
/// Number of letters that may differ in a word that is meant.
const LETTERS_MAX: usize = 2;

/// Share and limits of one user.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct UserPolicy {
    /// Share of device time, against the weights of the other active users.
    pub weight: f64,
    /// Bytes of values that all sessions of the user may hold together.
    pub memory: Option<u64>,
    /// Number of sessions at once.
    pub sessions: Option<u32>,
}

impl Default for UserPolicy {
    fn default() -> Self {
        Self { weight: 1.0, memory: None, sessions: None }
    }
}

/// Contents of a policy file.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct ClusterPolicy {
    default: UserPolicy,
    users: BTreeMap<String, UserPolicy>,
}

/// A mistake in the text of a policy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PolicyFault {
    /// Line, from 1; 0 for the whole file.
    pub line: usize,
    pub text: String,
}

impl PolicyFault {
    fn new(line: usize, text: impl Into<String>) -> Self {
        Self { line, text: text.into() }
    }
}

/// Reason why a policy file is not taken.
#[derive(Debug, thiserror::Error)]
pub enum PolicyError {
    #[error("cannot read the policy {}: {source}", path.display())]
    Read { path: PathBuf, source: std::io::Error },
    #[error("{}:{line}: {text}", path.display())]
    Line { path: PathBuf, line: usize, text: String },
}

impl ClusterPolicy {
    /// Reads the text of a policy file.
    pub fn parse(text: &str) -> Result<Self, PolicyFault> {
        let mut policy = Self::default();
        let Some(PolicyNode { line, kind }) = tree::read(text)? else { return Ok(policy) };
        let entries = map(line, kind, "a policy")?;
        let (mut default, mut users) = (None, None);
        for PolicyEntry { key, line, value } in entries {
            match key.as_str() {
                "default" => default = Some(value),
                "users" => users = Some(value),
                _ => return Err(unknown(line, &key, &KEYS)),
            }
        }
        if let Some(PolicyNode { line, kind }) = default {
            policy.default = user_policy(line, kind, UserPolicy::default())?;
        }
        if let Some(PolicyNode { line, kind }) = users {
            for PolicyEntry { key, value, .. } in map(line, kind, "users")? {
                let user = user_policy(value.line, value.kind, policy.default)?;
                policy.users.insert(key, user);
            }
        }
        Ok(policy)
    }

    /// Share and limits of a user.
    pub fn of(&self, user: &str) -> UserPolicy {
        self.users.get(user).copied().unwrap_or(self.default)
    }

    /// The users that the file names.
    pub fn users(&self) -> impl Iterator<Item = &str> {
        self.users.keys().map(String::as_str)
    }
}

/// The entries of a mapping; none for a key without a value.
fn map(line: usize, kind: PolicyNodeKind, what: &str) -> Result<Vec<PolicyEntry>, PolicyFault> {
    match kind {
        PolicyNodeKind::Map(entries) => Ok(entries),
        PolicyNodeKind::Text(text) if text.is_empty() || text == "~" || text == "null" => {
            Ok(Vec::new())
        }
        PolicyNodeKind::Text(_) | PolicyNodeKind::List => {
            Err(PolicyFault::new(line, format!("{what} is a mapping, `key: value`")))
        }
    }
}

/// Share and limits of a user who has `base` where nothing else is said.
fn user_policy(
    line: usize,
    kind: PolicyNodeKind,
    base: UserPolicy,
) -> Result<UserPolicy, PolicyFault> {
    let mut user = base;
    for PolicyEntry { key, line, value } in map(line, kind, "a user's policy")? {
        if !USER_KEYS.contains(&key.as_str()) {
            return Err(unknown(line, &key, &USER_KEYS));
        }
        let PolicyNodeKind::Text(text) = &value.kind else {
            return Err(PolicyFault::new(value.line, format!("{key} is one value")));
        };
        let wrong = |expected: &str| {
            PolicyFault::new(value.line, format!("{key}: {text:?} is not {expected}"))
        };
        match key.as_str() {
            "weight" => {
                let weight = text.parse().ok().filter(|w| (WEIGHT_MIN..=WEIGHT_MAX).contains(w));
                user.weight = weight.ok_or_else(|| wrong("a number from 0.001 to 1000"))?;
            }
            "memory" => {
                user.memory = limit(text, bytes)
                    .ok_or_else(|| wrong("a size such as 8 GiB, or `unlimited`"))?;
            }
            _ => {
                let count = |text: &str| text.parse().ok().filter(|&count: &u32| count > 0);
                user.sessions = limit(text, count)
                    .ok_or_else(|| wrong("a number of 1 and more, or `unlimited`"))?;
            }
        }
    }
    Ok(user)
}

/// A limit or the word for none; `None` for anything else.
#[allow(clippy::option_option, reason = "the outer one is the parser's")]
fn limit<T>(text: &str, parse: impl FnOnce(&str) -> Option<T>) -> Option<Option<T>> {
    if text == UNLIMITED { Some(None) } else { parse(text).map(Some) }
}

/// Bytes of a size: `8 GiB`, `1.5GB`, `1000`.
#[allow(
    clippy::as_conversions,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a size of 0 and more; saturates"
)]
fn bytes(text: &str) -> Option<u64> {
    let digits = text.find(|letter: char| !letter.is_ascii_digit() && letter != '.');
    let (number, unit) = text.split_at(digits.unwrap_or(text.len()));
    let unit = unit.trim().to_ascii_uppercase();
    let unit = if unit.is_empty() { "B" } else { &unit };
    let (_, factor) = UNITS.iter().find(|(name, _)| *name == unit)?;
    let number: f64 = number.parse().ok()?;
    Some((number * factor) as u64)
}

fn unknown(line: usize, key: &str, known: &[&str]) -> PolicyFault {
    let meant = meant(key, known.iter().copied());
    let advice = meant.map_or_else(
        || format!("known are {}", known.join(", ")),
        |meant| format!("did you mean {meant}?"),
    );
    PolicyFault::new(line, format!("unknown key {key:?}; {advice}"))
}

/// The known word that a word is most like.
pub(crate) fn meant<'k>(word: &str, known: impl Iterator<Item = &'k str>) -> Option<&'k str> {
    let near = known.map(|known| (distance(word, known), known)).min();
    near.filter(|&(letters, _)| letters <= LETTERS_MAX).map(|(_, known)| known)
}

/// Number of letters to insert, remove or replace in one word to get the other.
fn distance(one: &str, other: &str) -> usize {
    let other: Vec<char> = other.chars().collect();
    let mut row: Vec<usize> = (0..=other.len()).collect();
    for (at, letter) in one.chars().enumerate() {
        let mut next = vec![at + 1];
        for (place, &second) in other.iter().enumerate() {
            let replaced = row[place] + usize::from(letter != second);
            next.push(replaced.min(row[place + 1] + 1).min(next[place] + 1));
        }
        row = next;
    }
    row[other.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    const EXAMPLE: &str = "\
default: {weight: 1, memory: 8 GiB}
users:
  alice: {weight: 3, memory: unlimited}
  bob:
    memory: 1.5 GB
    sessions: 4
  carol:
";

    /// Checks the error of a text.
    fn check(text: &str, line: usize, expected: &str) {
        let fault = ClusterPolicy::parse(text).expect_err(text);
        assert_eq!(fault.line, line, "of {text:?}: {}", fault.text);
        assert!(fault.text.contains(expected), "of {text:?}: {}", fault.text);
    }

    #[test]
    fn a_policy() {
        let policy = ClusterPolicy::parse(EXAMPLE).expect("the example is right");
        let eight = Some(8 << 30);
        let default = UserPolicy { weight: 1.0, memory: eight, sessions: None };
        assert_eq!(policy.of("dave"), default);
        assert_eq!(policy.of("carol"), default);
        let alice = UserPolicy { weight: 3.0, memory: None, sessions: None };
        assert_eq!(policy.of("alice"), alice);
        let bob = UserPolicy { weight: 1.0, memory: Some(1_500_000_000), sessions: Some(4) };
        assert_eq!(policy.of("bob"), bob);
        assert_eq!(policy.users().collect::<Vec<_>>(), ["alice", "bob", "carol"]);
    }

    #[test]
    fn texts_without_a_word_limit_nobody() {
        for text in ["", "# nothing\n", "---\n", "users:\n", "default: ~\nusers: {}\n"] {
            assert_eq!(ClusterPolicy::parse(text), Ok(ClusterPolicy::default()), "of {text:?}");
        }
    }

    #[test]
    fn mistakes() {
        check("defaults: {}\n", 1, "unknown key \"defaults\"; did you mean default?");
        check("users:\n  a:\n    wieght: 3\n", 3, "did you mean weight?");
        check("\nusers: {a: {priority: 3}}\n", 2, "known are weight, memory, sessions");
        check("default: {weight: 0}\n", 1, "weight: \"0\" is not a number from 0.001 to 1000");
        check("default: {weight: NaN}\n", 1, "is not a number");
        check("default:\n  memory: 8 GBi\n", 2, "is not a size such as 8 GiB");
        check("default:\n  memory: -1\n", 2, "is not a size");
        check("default:\n  memory: [1]\n", 2, "memory is one value");
        check("default: {sessions: 0}\n", 1, "is not a number of 1 and more");
        check("users: [alice]\n", 1, "users is a mapping");
        check("users:\n  a: {}\n  a: {}\n", 3, "\"a\" stands twice, first in line 2");
        check("users: &all {a: {}}\n", 1, "anchors and aliases");
        check("users:\n  a: *all\n", 2, "");
        check("default: !!str x\n", 1, "tags");
        check("default: {}\n---\nusers: {}\n", 2, "a second document");
        check("users: {a: {weight: 1}\n", 2, "");
        check("3\n", 1, "a policy is a mapping");
        check(&format!("default: {}{}\n", "[".repeat(99), "]".repeat(99)), 1, "nested too deep");
    }
}
