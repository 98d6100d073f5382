//! The policy file: weights, priorities and limits by user and by named session. Reading it is here;
//! enforcing it is the core's (memory), `turns`' (weights, priorities) and the event loop's (sessions).

mod file;
mod tree;
mod words;

pub(crate) use file::{PolicyFile, watch};

use std::collections::BTreeMap;
use std::path::PathBuf;
use tree::{PolicyEntry, PolicyNode, PolicyNodeKind};

const KEYS: [&str; 2] = ["default", "users"];
const USER_KEYS: [&str; 6] =
    ["weight", "priority", "memory", "session_memory", "sessions", "named"];
const SESSION_KEYS: [&str; 2] = ["priority", "memory"];
/// Limits of weights: shares of a millionth are no shares.
const WEIGHT_MIN: f64 = 1e-3;
const WEIGHT_MAX: f64 = 1e3;
/// Number of letters that may differ in a word that is meant.
const LETTERS_MAX: usize = 2;

/// Class of a session: who has its turn first while shares allow it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Priority {
    Low,
    #[default]
    Normal,
    High,
}

impl Priority {
    const ALL: [(&str, Self); 3] =
        [("low", Self::Low), ("normal", Self::Normal), ("high", Self::High)];
}

/// Words of the file about a session with a name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct NamedPolicy {
    priority: Option<Priority>,
    /// `None` where it is not said; else the limit, if there is one.
    #[allow(clippy::option_option, reason = "the inner one is the word for no limit")]
    memory: Option<Option<u64>>,
}

/// Class and limit of one session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SessionPolicy {
    pub priority: Priority,
    /// Bytes of values that the session may hold.
    pub memory: Option<u64>,
}

/// Share and limits of one user.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct UserPolicy {
    /// Share of device time, against the weights of the other active users.
    pub weight: f64,
    /// Class of the user's sessions.
    pub priority: Priority,
    /// Bytes of values that all sessions of the user may hold together.
    pub memory: Option<u64>,
    /// Bytes of values that each session of the user may hold.
    pub session_memory: Option<u64>,
    /// Number of sessions at once.
    pub sessions: Option<u32>,
    /// Sessions with a name for which something else is said.
    named: BTreeMap<String, NamedPolicy>,
}

impl Default for UserPolicy {
    fn default() -> Self {
        Self {
            weight: 1.0,
            priority: Priority::default(),
            memory: None,
            session_memory: None,
            sessions: None,
            named: BTreeMap::new(),
        }
    }
}

impl UserPolicy {
    /// Class and limit of a session of the user, which may have a name.
    pub fn session(&self, name: Option<&str>) -> SessionPolicy {
        let named = name.and_then(|name| self.named.get(name)).copied().unwrap_or_default();
        SessionPolicy {
            priority: named.priority.unwrap_or(self.priority),
            memory: named.memory.unwrap_or(self.session_memory),
        }
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
            policy.default = user_policy(line, kind, &UserPolicy::default())?;
        }
        if let Some(PolicyNode { line, kind }) = users {
            for PolicyEntry { key, value, .. } in map(line, kind, "users")? {
                let user = user_policy(value.line, value.kind, &policy.default)?;
                policy.users.insert(key, user);
            }
        }
        Ok(policy)
    }

    /// Share and limits of a user.
    pub fn of(&self, user: &str) -> &UserPolicy {
        self.users.get(user).unwrap_or(&self.default)
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
    base: &UserPolicy,
) -> Result<UserPolicy, PolicyFault> {
    let mut user = base.clone();
    for PolicyEntry { key, line, value } in map(line, kind, "a user's policy")? {
        match key.as_str() {
            "named" => user.named.extend(named_policies(value)?),
            "weight" => {
                user.weight = read(&key, &value, "a number from 0.001 to 1000", |text| {
                    text.parse().ok().filter(|w| (WEIGHT_MIN..=WEIGHT_MAX).contains(w))
                })?;
            }
            "priority" => user.priority = priority(&key, &value)?,
            "memory" => user.memory = memory(&key, &value)?,
            "session_memory" => user.session_memory = memory(&key, &value)?,
            "sessions" => {
                user.sessions =
                    read(&key, &value, "a number of 1 and more, or `unlimited`", |text| {
                        words::limit(text, |text| {
                            text.parse().ok().filter(|&count: &u32| count > 0)
                        })
                    })?;
            }
            _ => return Err(unknown(line, &key, &USER_KEYS)),
        }
    }
    Ok(user)
}

/// Named sessions of a user, with what is said of them.
fn named_policies(node: PolicyNode) -> Result<Vec<(String, NamedPolicy)>, PolicyFault> {
    let mut all = Vec::new();
    for PolicyEntry { key: name, value, .. } in map(node.line, node.kind, "named")? {
        let mut named = NamedPolicy::default();
        for PolicyEntry { key, line, value } in map(value.line, value.kind, "a session's policy")? {
            match key.as_str() {
                "priority" => named.priority = Some(priority(&key, &value)?),
                "memory" => named.memory = Some(memory(&key, &value)?),
                _ => return Err(unknown(line, &key, &SESSION_KEYS)),
            }
        }
        all.push((name, named));
    }
    Ok(all)
}

fn priority(key: &str, value: &PolicyNode) -> Result<Priority, PolicyFault> {
    let known = |text: &str| {
        Priority::ALL.into_iter().find(|(name, _)| *name == text).map(|(_, priority)| priority)
    };
    read(key, value, "low, normal or high", known)
}

fn memory(key: &str, value: &PolicyNode) -> Result<Option<u64>, PolicyFault> {
    read(key, value, "a size such as 8 GiB, or `unlimited`", |text| {
        words::limit(text, words::bytes)
    })
}

/// The value of a key that has one word.
fn read<T>(
    key: &str,
    value: &PolicyNode,
    expected: &str,
    parse: impl FnOnce(&str) -> Option<T>,
) -> Result<T, PolicyFault> {
    let PolicyNodeKind::Text(text) = &value.kind else {
        return Err(PolicyFault::new(value.line, format!("{key} is one value")));
    };
    let wrong = || PolicyFault::new(value.line, format!("{key}: {text:?} is not {expected}"));
    parse(text).ok_or_else(wrong)
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
        let default = UserPolicy { memory: eight, ..UserPolicy::default() };
        assert_eq!(policy.of("dave"), &default);
        assert_eq!(policy.of("carol"), &default);
        let alice = UserPolicy { weight: 3.0, ..UserPolicy::default() };
        assert_eq!(policy.of("alice"), &alice);
        let (memory, sessions) = (Some(1_500_000_000), Some(4));
        let bob = UserPolicy { memory, sessions, ..UserPolicy::default() };
        assert_eq!(policy.of("bob"), &bob);
        assert_eq!(policy.users().collect::<Vec<_>>(), ["alice", "bob", "carol"]);
    }

    #[test]
    fn sessions_have_classes_and_quotas() {
        let text = "\
default: {session_memory: 1 KiB, priority: low}
users:
  ada:
    priority: high
    named:
      serve: {memory: unlimited}
      train: {priority: normal, memory: 2 KiB}
  bob: {session_memory: unlimited}
";
        let policy = ClusterPolicy::parse(text).expect("it is right");
        let of = |user: &str, name| {
            let SessionPolicy { priority, memory } = policy.of(user).session(name);
            (priority, memory)
        };
        assert_eq!(of("ada", None), (Priority::High, Some(1024)));
        assert_eq!(of("ada", Some("other")), (Priority::High, Some(1024)));
        assert_eq!(of("ada", Some("serve")), (Priority::High, None));
        assert_eq!(of("ada", Some("train")), (Priority::Normal, Some(2048)));
        assert_eq!(of("bob", Some("train")), (Priority::Low, None));
        assert_eq!(of("carol", None), (Priority::Low, Some(1024)));
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
        check(
            "\nusers: {a: {quota: 3}}\n",
            2,
            "known are weight, priority, memory, session_memory,",
        );
        check("users: {a: {priority: 3}}\n", 1, "priority: \"3\" is not low, normal or high");
        check("users: {a: {sesion_memory: 3}}\n", 1, "did you mean session_memory?");
        check("users:\n  a: {named: {x: {wait: 3}}}\n", 2, "known are priority, memory");
        check("users: {a: {named: {x: {memroy: 3}}}}\n", 1, "did you mean memory?");
        check("users: {a: {named: [x]}}\n", 1, "named is a mapping");
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
