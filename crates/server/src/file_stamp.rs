//! Noticing that a file has changed.

use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{Duration, SystemTime};

/// Time between two looks at a watched file.
pub(crate) const INTERVAL: Duration = Duration::from_secs(1);

/// Properties by which a changed file is known: an editor writes it anew or puts another in its
/// place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FileStamp {
    inode: u64,
    bytes: u64,
    modified: Option<SystemTime>,
}

impl FileStamp {
    /// State of a file; `None` where there is none.
    pub fn of(path: &Path) -> Option<Self> {
        let file = std::fs::metadata(path).ok()?;
        Some(Self { inode: file.ino(), bytes: file.len(), modified: file.modified().ok() })
    }
}
