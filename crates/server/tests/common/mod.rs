//! Helpers of the tests and the benchmark: a real dispatcher process, and toy peers that use every
//! transport.
#![allow(dead_code, reason = "each test binary uses a part of it")]

pub mod counting;
pub mod peer;
pub mod standby;
pub mod worker;

use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Time in which a dispatcher that is asked to end has ended, on a busy machine too.
const HANG: Duration = Duration::from_secs(30);

/// A `gt-dispatcher` that is killed when the test is over.
pub struct Server {
    child: Child,
    pub address: String,
    pub unix: PathBuf,
    log: Arc<Mutex<String>>,
    log_end: Option<JoinHandle<()>>,
    folder: PathBuf,
    has_group: bool,
}

impl Server {
    /// Starts one on a free port and a Unix socket; returns when it listens.
    pub fn start(name: &str, arguments: &[&str]) -> Self {
        let folder = std::env::temp_dir().join(format!("gt-server-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let unix = folder.join("socket");
        let mut command = Command::new(env!("CARGO_BIN_EXE_gt-dispatcher"));
        let has_group = arguments.contains(&"--standby");
        if has_group {
            // All processes that go on one after the other are ended by the number of the first.
            command.process_group(0);
        }
        let mut child = command
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
        let stderr = BufReader::new(child.stderr.take().unwrap());
        let log = Arc::new(Mutex::new(String::new()));
        let written = Arc::clone(&log);
        let log_end = std::thread::spawn(move || {
            for line in stderr.lines() {
                *written.lock().unwrap() += &(line.unwrap() + "\n");
            }
        });
        Self { child, address, unix, log, log_end: Some(log_end), folder, has_group }
    }

    /// Its log so far.
    pub fn log(&self) -> String {
        self.log.lock().unwrap().clone()
    }

    /// Number of the process that was started first.
    pub fn first_process(&self) -> u32 {
        self.child.id()
    }

    /// Collects the process that was started first, which has been killed.
    pub fn reap(&mut self) {
        self.child.wait().unwrap();
    }

    /// Waits until nobody writes to the log any more: no process is left.
    pub fn end_of_log(&mut self) -> String {
        let written = self.log_end.take().unwrap();
        let deadline = Instant::now() + HANG;
        while !written.is_finished() {
            assert!(Instant::now() < deadline, "a process is left:\n{}", self.log());
            std::thread::sleep(Duration::from_millis(2));
        }
        written.join().unwrap();
        self.log()
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
        (status, self.end_of_log())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if self.has_group {
            let group = format!("-{}", self.child.id());
            let _ =
                Command::new("kill").args(["-KILL", "--", &group]).stderr(Stdio::null()).status();
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}
