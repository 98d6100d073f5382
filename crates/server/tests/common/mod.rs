//! Helpers of the tests and the benchmark: a real dispatcher process, and toy peers that use every
//! transport.
#![allow(dead_code, reason = "each test binary uses a part of it")]

pub mod peer;
pub mod worker;

use std::io::{BufRead, BufReader, Read};
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread::JoinHandle;

/// A `gt-dispatcher` that is killed when the test is over.
pub struct Server {
    child: Child,
    pub address: String,
    pub unix: PathBuf,
    log: Option<JoinHandle<String>>,
    folder: PathBuf,
}

impl Server {
    /// Starts one on a free port and a Unix socket; returns when it listens.
    pub fn start(name: &str, arguments: &[&str]) -> Self {
        let folder = std::env::temp_dir().join(format!("gt-server-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let unix = folder.join("socket");
        let mut child = Command::new(env!("CARGO_BIN_EXE_gt-dispatcher"))
            .args(["--listen", "127.0.0.1:0", "--unix", unix.to_str().unwrap()])
            .args(arguments)
            .current_dir(&folder)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let first = lines.next().unwrap().unwrap();
        let address = first.strip_prefix("listening on ").unwrap().to_owned();
        let mut stderr = child.stderr.take().unwrap();
        let log = std::thread::spawn(move || {
            let mut text = String::new();
            stderr.read_to_string(&mut text).unwrap();
            text
        });
        Self { child, address, unix, log: Some(log), folder }
    }

    pub fn file(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// CPU time that the core's thread has used.
    pub fn core_time(&self) -> std::time::Duration {
        let tasks = std::fs::read_dir(format!("/proc/{}/task", self.child.id())).unwrap();
        let paths = tasks.map(|task| task.unwrap().path());
        let is_core = |task: &PathBuf| {
            std::fs::read_to_string(task.join("comm")).is_ok_and(|name| name.trim() == "gt-core")
        };
        let core = paths.into_iter().find(is_core).expect("the core has a thread");
        let times = std::fs::read_to_string(core.join("schedstat")).unwrap();
        let nanoseconds = times.split(' ').next().unwrap().parse().unwrap();
        std::time::Duration::from_nanos(nanoseconds)
    }

    /// Sends SIGTERM; returns its exit status and its log.
    pub fn stop(&mut self) -> (ExitStatus, String) {
        let pid = self.child.id().to_string();
        assert!(Command::new("kill").arg(pid).status().unwrap().success());
        let status = self.child.wait().unwrap();
        (status, self.log.take().unwrap().join().unwrap())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}
