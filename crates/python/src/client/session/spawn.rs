//! Opening a connection: worker processes of the embedded dispatcher, started at the first operation.

use super::{errors, runtime};
use crate::client::connection::embedded_connection::{
    ConnectWorkersError, EmbeddedConnection, Log, StartedWorkers, WorkerProcess, connect_workers,
};
use crate::client::connection::payload::Payloads;
use crate::client::connection::ring_inbox::ring_inbox;
use crate::client::connection::worker_child::{ForkServer, WorkerChild};
use gt_dispatcher::CostModel;
use gt_protocol::message::{Peer, Reach};
use gt_protocol::wire::Frees;
use gt_server::{Backlog, LineLog};
use gt_transport::{
    Consumer, ControlKind, ControlRecord, Producer, SLABS, SlabReader, SlabWriter, create,
    send_record, slab, socket_pair,
};
use pyo3::exceptions::{PyOSError, PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use std::fs::File;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Words of a worker's ring: 256 KiB fit into the second-level cache and hold some ten thousand
/// instructions.
const RING_WORDS: u32 = 1 << 16;
/// Minimum number of workers from which they are forked from one process that has imported their
/// modules.
const FORKED_WORKERS_MIN: u32 = 2;

/// Options that gt/config/environment.py read from the environment.
#[derive(Clone, FromPyObject)]
pub(crate) struct Options {
    #[pyo3(attribute)]
    workers: Option<u32>,
    #[pyo3(attribute)]
    gpus: u32,
    #[pyo3(attribute)]
    backend: String,
    #[pyo3(attribute)]
    backend_name: String,
    #[pyo3(attribute)]
    executable: String,
    #[pyo3(attribute)]
    python_path: String,
    #[pyo3(attribute)]
    threads: Option<u32>,
    #[pyo3(attribute)]
    cores: u32,
    #[pyo3(attribute)]
    instruction_log: Option<String>,
    #[pyo3(attribute)]
    debug_dispatcher: bool,
    #[pyo3(attribute)]
    prices: Option<String>,
    #[pyo3(attribute)]
    verbose: bool,
    #[pyo3(attribute)]
    address: Option<String>,
}

/// Connects as configured: to an address, or to an embedded dispatcher with workers of its own.
pub(crate) fn open_default(py: Python<'_>) -> PyResult<()> {
    let options: Options = py.import("gt.config")?.call_method0("session_options")?.extract()?;
    if let Some(address) = &options.address {
        py.import("gt.session")?.call_method1("connect", (address,))?;
        return Ok(());
    }
    // A mistake in the configuration is reported before anything starts.
    py.import("gt.config.scopes")?.call_method0("read_environment")?;
    let cost_model =
        options.prices.as_deref().map_or_else(|| Ok(CostModel::default()), read_cost_model)?;
    let wanted = runtime::with(py, |runtime| runtime.workers).or(options.workers);
    let count = wanted.unwrap_or(options.gpus).max(1);
    let workers = start_workers(&options, count).map_err(|error| {
        PyOSError::new_err(format!("gt could not start {count} worker process(es): {error}"))
    })?;
    let lines = options.instruction_log.as_deref().map(open_log).transpose()?;
    let shows_decisions = options.debug_dispatcher;
    let log = (lines.is_some() || shows_decisions).then_some(Log {
        lines,
        clock: time_of_day,
        shows_decisions,
    });
    let announce = log.is_some();
    let mut connection = EmbeddedConnection::new(workers, log, options.backend_name.clone());
    connection.set_cost_model(cost_model);
    if options.verbose {
        use crate::client::connection::Connection;
        errors::announce_progress(py, &connection.describe())?;
    }
    runtime::install(py, Box::new(connection), announce, None);
    runtime::with(py, |runtime| runtime.answers.workers.extend(0..count));
    runtime::watch_deaths(py);
    py.import("gt.session")?.call_method0("register_exit")?;
    Ok(())
}

/// Reads the cost model from the file that `GT_PRICES` names.
fn read_cost_model(path: &str) -> PyResult<CostModel> {
    let text = std::fs::read_to_string(path)
        .map_err(|error| PyOSError::new_err(format!("GT_PRICES={path}: {error}")))?;
    text.parse().map_err(|error| PyValueError::new_err(format!("GT_PRICES={path}, {error}")))
}

/// Opens this program's log; a later session appends to an earlier one's.
fn open_log(path: &str) -> PyResult<LineLog> {
    static BEGUN: AtomicBool = AtomicBool::new(false);
    let begun = BEGUN.swap(true, Ordering::Relaxed);
    let mut options = File::options();
    options.create(true).write(true).append(begun).truncate(!begun);
    let lines = options.open(path).and_then(|file| LineLog::new(PathBuf::from(path), file));
    lines.map_err(|error| PyValueError::new_err(format!("GT_INSTRUCTION_LOG={path}: {error}")))
}

/// `12:03:07.123456`, in UTC.
fn time_of_day() -> String {
    let now =
        std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    let seconds = now.as_secs() % 86_400;
    let (hours, minutes, rest) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    format!("{hours:02}:{minutes:02}:{rest:02}.{:06}", now.subsec_micros())
}

fn start_workers(options: &Options, count: u32) -> Result<StartedWorkers, StartError> {
    let mut workers = StartedWorkers::default();
    // A GPU library cannot be used on both sides of a fork, so each worker with a GPU starts by
    // itself.
    if count >= FORKED_WORKERS_MIN && options.gpus == 0 && ForkServer::is_possible() {
        let (ours, theirs) = socket_pair()?;
        let child = start_process(options, count, "--fork-fd", &theirs, None)?;
        workers.fork_server = Some(ForkServer::new(child, ours));
    }
    for index in 0..count {
        let (link, slab) = start_worker(options, index, count, workers.fork_server.as_ref())?;
        workers.links.push(link);
        workers.chunks.push(slab);
    }
    let peer = |index| Peer { index, incarnation: 0, reach: Reach::Memory };
    for (from, source) in (0..).zip(&workers.links) {
        for (to, target) in (0..).zip(&workers.links).skip(1).filter(|(to, _)| *to > from) {
            connect_workers([peer(from), peer(to)], [&source.control, &target.control])?;
        }
    }
    let options = options.clone();
    workers.start = Some(Box::new(move |index, server| {
        start_worker(&options, index, count, server).map_err(|error| error.to_string())
    }));
    Ok(workers)
}

#[derive(Debug, thiserror::Error)]
enum StartError {
    #[error("{0}")]
    Ring(#[from] gt_transport::RingError),
    #[error("{0}")]
    Descriptor(#[from] gt_transport::DescriptorError),
    #[error("{0}")]
    Connect(#[from] ConnectWorkersError),
    #[error("{program}: {source}")]
    Process { program: String, source: std::io::Error },
    #[error("{0}")]
    System(#[from] std::io::Error),
}

/// Starts one worker with a ring each way. It inherits one end of a Unix socket and lives until the
/// other end closes.
fn start_worker(
    options: &Options,
    index: u32,
    count: u32,
    fork_server: Option<&ForkServer>,
) -> Result<(WorkerProcess, SlabReader), StartError> {
    let (ours, theirs) = socket_pair()?;
    let to_worker = create(RING_WORDS)?;
    let from_worker = create(RING_WORDS)?;
    let (payloads, chunks) = (slab::create()?, slab::create()?);
    let setup = ControlRecord { kind: ControlKind::Setup, index, value: SLABS };
    let descriptors = [&to_worker, &from_worker, &payloads, &chunks].map(AsFd::as_fd);
    send_record(ours.as_fd(), &setup, &descriptors)?;
    let child = match fork_server {
        Some(server) => server.fork(index, &theirs)?,
        None => WorkerChild::Started(start_process(
            options,
            count,
            "--control-fd",
            &theirs,
            Some(index),
        )?),
    };
    let control = Arc::new(ours);
    let consumer = Consumer::new(from_worker)?;
    let link = WorkerProcess {
        producer: Producer::new(to_worker)?,
        inbox: ring_inbox(consumer, Arc::clone(&control)),
        control,
        child,
        backlog: Backlog::default(),
        frees: Frees::default(),
        alive: true,
        has_started: false,
        payloads: Payloads::new(SlabWriter::new(payloads)?),
    };
    Ok((link, SlabReader::new(chunks)?))
}

/// Starts a process of `gt.worker` that inherits this end of a socket; an argument passes its
/// number.
fn start_process(
    options: &Options,
    count: u32,
    argument: &str,
    socket: &OwnedFd,
    index: Option<u32>,
) -> Result<Child, StartError> {
    let inherited = rustix::io::fcntl_dupfd_cloexec(socket, 3).map_err(std::io::Error::from)?;
    // The workers share the cores unless the user sets the number of threads of each.
    let threads = options.threads.unwrap_or(options.cores / count.max(1)).max(1);
    let mut command = Command::new(&options.executable);
    command
        .args(["-m", "gt.worker", argument, &inherited.as_raw_fd().to_string()])
        .args(["--threads", &threads.to_string()])
        // A user's random.py in the working directory must not be imported by the worker.
        .env("PYTHONSAFEPATH", "1")
        .env("PYTHONPATH", &options.python_path)
        .stdin(Stdio::null())
        .process_group(0);
    if let Some(index) = index {
        command.args(["--id", &index.to_string()]);
    }
    if options.backend != "auto" {
        command.args(["--backend", &options.backend]);
    }
    with_inherited(&inherited, || command.spawn())
        .map_err(|source| StartError::Process { program: options.executable.clone(), source })
}

/// Runs `start` while `descriptor` survives an exec. A child of another thread may inherit it at
/// that moment too; it would hold only the worker's end of the socket, which keeps nothing alive.
fn with_inherited<R>(
    descriptor: &OwnedFd,
    start: impl FnOnce() -> std::io::Result<R>,
) -> std::io::Result<R> {
    use rustix::io::{FdFlags, fcntl_setfd};
    fcntl_setfd(descriptor, FdFlags::empty())?;
    let started = start();
    fcntl_setfd(descriptor, FdFlags::CLOEXEC)?;
    started
}

/// `gt.gpu_workers(n)`: sets the number of workers that the embedded dispatcher starts.
pub(crate) fn choose_workers(py: Python<'_>, count: u32) -> PyResult<()> {
    if count == 0 {
        return Err(PyValueError::new_err("gpu_workers: expected at least 1 worker, got 0"));
    }
    runtime::with(py, |runtime| {
        if runtime.connection.is_some() {
            return Err(PyRuntimeError::new_err(
                "gpu_workers: the workers have started; call it before the first operation",
            ));
        }
        runtime.workers = Some(count);
        Ok(())
    })
}
