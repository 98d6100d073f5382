//! The policy file on disk: read at the start, and again whenever it has changed.

use super::{ClusterPolicy, PolicyError, PolicyFault};
use crate::file_stamp::{FileStamp, INTERVAL};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError};

/// A policy file that is watched.
#[derive(Debug)]
pub(crate) struct PolicyFile {
    path: PathBuf,
    /// State of the file that was read last; `None` where there was none.
    stamp: Option<FileStamp>,
}

impl PolicyFile {
    /// Reads a file, which is watched from then on.
    pub fn open(path: &Path) -> Result<(Self, ClusterPolicy), PolicyError> {
        let stamp = FileStamp::of(path);
        let policy = read(path)?;
        Ok((Self { path: path.to_owned(), stamp }, policy))
    }

    /// Reads the file again if it has changed; `None` if it has not.
    pub fn changed(&mut self) -> Option<Result<ClusterPolicy, PolicyError>> {
        let now = FileStamp::of(&self.path);
        if now == self.stamp {
            return None;
        }
        self.stamp = now;
        Some(read(&self.path))
    }
}

fn read(path: &Path) -> Result<ClusterPolicy, PolicyError> {
    let text = std::fs::read_to_string(path)
        .map_err(|source| PolicyError::Read { path: path.to_owned(), source })?;
    ClusterPolicy::parse(&text).map_err(|PolicyFault { line, text }| PolicyError::Line {
        path: path.to_owned(),
        line,
        text,
    })
}

/// Passes on each changed policy, until `stop` is closed. A policy with a mistake is not passed on:
/// the one before stays.
pub(crate) fn watch(
    mut file: PolicyFile,
    stop: &Receiver<()>,
    mut tell: impl FnMut(ClusterPolicy),
) {
    // The loop ends with the dispatcher, which holds the sender.
    while stop.recv_timeout(INTERVAL) == Err(RecvTimeoutError::Timeout) {
        match file.changed() {
            None => {}
            Some(Ok(policy)) => {
                tracing::info!("policy {}: taken as it is now", file.path.display());
                tell(policy);
            }
            Some(Err(error)) => tracing::error!("{error}; the policy from before stays"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A file that ends with its test.
    struct Scratch(PathBuf);

    impl Scratch {
        fn new(name: &str) -> Self {
            Self(std::env::temp_dir().join(format!("gt-policy-{name}-{}", std::process::id())))
        }

        fn write(&self, text: &str) {
            // Another file in its place, as editors do it.
            let next = self.0.with_extension("next");
            std::fs::write(&next, text).expect("the folder can be written to");
            std::fs::rename(&next, &self.0).expect("the folder can be written to");
        }
    }

    impl Drop for Scratch {
        fn drop(&mut self) {
            let _ = std::fs::remove_file(&self.0);
        }
    }

    #[test]
    fn a_changed_file_is_read_once_and_a_broken_one_names_its_line() {
        let scratch = Scratch::new("changed");
        scratch.write("default: {weight: 2}\n");
        let (mut file, policy) = PolicyFile::open(&scratch.0).expect("it is right");
        assert!((policy.of("ada").weight - 2.0).abs() < 1e-9);
        assert!(file.changed().is_none(), "nothing has changed");
        scratch.write("default: {weight: 5}\n");
        let changed = file.changed().expect("it has changed").expect("it is right");
        assert!((changed.of("ada").weight - 5.0).abs() < 1e-9);
        scratch.write("default:\n  weight: x\n");
        let error = file.changed().expect("it has changed").expect_err("x is no weight");
        let place = format!("{}:2: ", scratch.0.display());
        assert!(error.to_string().starts_with(&place), "{error}");
        assert!(file.changed().is_none(), "a mistake is told once");
        std::fs::remove_file(&scratch.0).expect("it is there");
        let error = file.changed().expect("it is gone").expect_err("it is gone");
        assert!(error.to_string().starts_with("cannot read the policy"), "{error}");
    }
}
