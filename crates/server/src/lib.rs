//! The dispatcher as a process: everything around the core that touches sockets, threads, clocks and files.
//!
//! The map:
//! - [`ServerOptions`], [`run`], [`main`]: from a command line to a process that serves until it is told to stop.
//! - `event_loop`, `client`, `outbox`, `outbound`, `link`, `frames`, `sleep`: the thread that owns the core. It polls rings, and sleeps in epoll.
//! - [`certificates`]: `gt cert`; `certificate`: what it wrote, read by the dispatcher.
//! - [`death`]: texts about a worker that has ended.
//! - `policy`: the file of weights and limits by user; `accounts`: who uses how much.
//! - `standby`, `journal`: a copy of the process that goes on when this one is killed, and what it lacks.
//! - `leases`: sessions that outlive their clients.
//! - `probing`: `--probe`, which that thread drives while no client is at work.
//! - [`Backlog`]: words on their way to a ring or a channel that is full, here and in a client.
//! - `net`: the other thread, where tokio serves sockets: handshakes, tokens, frames over TCP, life lines.
//! - `waker` and channels with limits stand between the two.
//! - `audit`: the log of who came, was refused, and left.
//! - [`trace`]: the instruction log; [`LineLog`]: its file, which may fail.
//!
//! **Architecture invariant:** only the core knows the meaning of an instruction. Only this crate
//! knows tokio, and tokio is not used on the thread that owns the core. Nothing is left in a file
//! system when the process ends.

mod accounts;
mod audit;
mod backlog;
mod certificate;
pub mod certificates;
mod client;
pub mod death;
mod event_loop;
mod file_stamp;
mod frames;
mod journal;
mod leases;
mod line_log;
mod link;
mod net;
mod net_event;
mod options;
mod outbound;
mod outbox;
mod policy;
mod policy_watch;
mod probing;
mod sleep;
mod standby;
mod stderr;
mod tokens;
pub mod trace;
mod turns;
mod waker;

pub use backlog::Backlog;
pub use certificate::TlsFileError;
pub use line_log::LineLog;
pub use net::ListenError;
pub use options::{Command, HELP, ServerOptions, UsageError};
pub use policy::PolicyError;
pub use sleep::SleepError;
pub use tokens::{NewTokenError, TokenFileError, new_token};

use accounts::Accounts;
use audit::{AuditFile, AuditLog, CoreAudit};
use certificate::ServerCertificate;
use event_loop::EventLoop;
use gt_dispatcher::{CostModel, CostModelError, Dispatcher};
use gt_transport::DescriptorError;
use leases::Leases;
use net::{Heirloom, Start};
use outbox::Outbox;
use policy::{ClusterPolicy, PolicyFile};
use policy_watch::watch_policy;
use probing::Probing;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use standby::Standby;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tokens::TokenList;
use tokio::sync::{mpsc, oneshot};
use trace::Trace;
use waker::Waker;

/// Reason why a dispatcher does not start, or ends early.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServeError {
    #[error(transparent)]
    TokenList(#[from] TokenFileError),
    #[error(transparent)]
    Tls(#[from] TlsFileError),
    #[error(transparent)]
    Policy(#[from] PolicyError),
    #[error(transparent)]
    Listen(#[from] ListenError),
    #[error("cannot write the instruction log {}: {source}", path.display())]
    Trace { path: PathBuf, source: io::Error },
    #[error("cannot write the audit log {}: {source}", path.display())]
    Audit { path: PathBuf, source: io::Error },
    #[error("cannot read the prices {}: {why}", path.display())]
    CostModel { path: PathBuf, why: String },
    #[error(transparent)]
    Waker(#[from] DescriptorError),
    #[error(transparent)]
    Sleep(#[from] SleepError),
    #[error("the sockets' thread failed: {0}")]
    Net(#[from] io::Error),
    #[error("the core's thread panicked")]
    Panic,
}

/// Exit code for a command line that cannot be read, and for one that cannot be served.
const USAGE: u8 = 2;
const FAILED: u8 = 1;

/// The program: reads the arguments (without the program's name), serves, and returns the exit code.
pub fn main(arguments: impl IntoIterator<Item = OsString>) -> u8 {
    match Command::parse(arguments) {
        Ok(Command::Serve(options)) => {
            start_log(&options);
            run(&options).map_or_else(|error| complain(&error, FAILED), |()| 0)
        }
        Ok(Command::Help) => say(HELP),
        Ok(Command::Version) => say(concat!("gt-dispatcher ", env!("CARGO_PKG_VERSION"), "\n")),
        Err(error) => complain(&error, USAGE),
    }
}

/// Serves until SIGINT or SIGTERM. Prints its addresses on stdout.
///
/// # Errors
/// [`ServeError`]: it could not start, or a thread of it failed.
pub fn run(options: &ServerOptions) -> Result<(), ServeError> {
    let tokens = options.token_file.as_deref().map(TokenList::read).transpose()?;
    let tls = options.tls.as_ref().map(|files| certificate::read(&files.certificate, &files.key));
    let certificate = tls.transpose()?;
    let tls = certificate.as_ref().map(ServerCertificate::acceptor).transpose()?;
    let policy = open_policy(options, tokens.as_ref())?;
    let listeners = net::bind(options, tokens.as_ref())?;
    let trace = open_trace(options)?;
    let (audit, core_audit) = open_audit_log(options)?;
    raise_descriptor_limit();
    let mut dispatcher = Dispatcher::new();
    dispatcher.set_tracing(trace.is_some());
    dispatcher.set_reasoning(trace.as_ref().is_some_and(Trace::shows_decisions));
    if let Some(path) = &options.prices {
        dispatcher.set_cost_model(read_cost_model(path, options.probe)?);
    }
    let probing = options.prices.clone().filter(|_| options.probe).map(Probing::new);
    let waker = Arc::new(Waker::new()?);
    // The channel is unbounded: see `NetEvent`.
    let (events, inbox) = mpsc::unbounded_channel();
    let event_loop =
        EventLoop::new(dispatcher, Outbox::new(trace), probing, inbox, Arc::clone(&waker))?
            .with_leases(Leases::new(options.lease))
            .with_successor_wait(options.successor_wait)
            .with_audit(core_audit)
            .with_accounts(Accounts::new(policy.as_ref().map(|(_, policy)| policy.clone())))
            .with_standby(open_standby(options, &listeners, (tokens.as_ref(), certificate))?);
    // Its end stops the thread.
    let _watching =
        policy.map(|(file, _)| watch_policy(file, &events, &waker, audit.clone())).transpose()?;
    let (ended, core_ended) = oneshot::channel();
    let core = std::thread::Builder::new().name("gt-core".into()).spawn(move || {
        let (outcome, successor) = event_loop.run();
        if let Some(successor) = successor {
            // The process was the standby of the one that began here, whose other threads it lacks.
            std::mem::forget(ended);
            successor.finish(outcome.is_ok());
        }
        // If this is not received, the sockets' thread has ended first.
        let _: Result<(), ()> = ended.send(());
        outcome
    })?;
    let tokens = options.token_file.clone().zip(tokens);
    let start = Start {
        listeners,
        tokens,
        tls,
        audit,
        events,
        waker,
        core_ended,
        peers: Vec::new(),
        incarnations: (BTreeMap::new(), 0),
        before: None,
    };
    let served = net::serve(start, options);
    core.join().map_err(|_| ServeError::Panic)??;
    Ok(served?)
}

/// Prepares a standby, if one is asked for.
fn open_standby(
    options: &ServerOptions,
    listeners: &net::Listeners,
    (tokens, certificate): (Option<&TokenList>, Option<ServerCertificate>),
) -> io::Result<Option<Standby>> {
    if !options.standby {
        return Ok(None);
    }
    let mut heirloom = Heirloom::new(listeners, options)?;
    heirloom.tokens = tokens.cloned();
    heirloom.certificate = certificate;
    Standby::new(heirloom).map(Some)
}

/// Opens the policy file, and warns of users whom nobody can be.
fn open_policy(
    options: &ServerOptions,
    tokens: Option<&TokenList>,
) -> Result<Option<(PolicyFile, ClusterPolicy)>, PolicyError> {
    let Some(path) = &options.policy else { return Ok(None) };
    let (file, policy) = PolicyFile::open(path)?;
    let shown = path.display();
    let Some(tokens) = tokens else {
        tracing::warn!("policy {shown}: without --token-file all clients are one user");
        return Ok(Some((file, policy)));
    };
    for user in policy.users().filter(|user| !tokens.users().any(|known| known == *user)) {
        let meant = policy::meant(user, tokens.users());
        let advice = meant.map(|meant| format!("; did you mean {meant}?")).unwrap_or_default();
        tracing::warn!("policy {shown}: the token file has no user {user:?}{advice}");
    }
    Ok(Some((file, policy)))
}

/// Reads the prices from a file; the defaults if it `may_be_absent` and is.
fn read_cost_model(path: &Path, may_be_absent: bool) -> Result<CostModel, ServeError> {
    let failed = |why: String| ServeError::CostModel { path: path.to_owned(), why };
    let text = match std::fs::read_to_string(path) {
        Err(error) if may_be_absent && error.kind() == io::ErrorKind::NotFound => String::new(),
        read => read.map_err(|error| failed(error.to_string()))?,
    };
    text.parse().map_err(|error: CostModelError| failed(error.to_string()))
}

/// The audit log of the sockets' thread, and of the core's.
fn open_audit_log(options: &ServerOptions) -> Result<(AuditLog, CoreAudit), ServeError> {
    let Some(path) = &options.audit_log else { return Ok(Default::default()) };
    let wrong = |source| ServeError::Audit { path: path.clone(), source };
    let file = AuditFile::open(path).map_err(wrong)?;
    let log = file.log().map_err(wrong)?;
    let core = CoreAudit::new(log.clone(), options.standby.then_some(file));
    Ok((log, core))
}

fn open_trace(options: &ServerOptions) -> Result<Option<Trace>, ServeError> {
    let traces = &options.traces;
    let path = traces.instruction_log.as_deref();
    let wrong =
        |source| ServeError::Trace { path: path.map(Path::to_owned).unwrap_or_default(), source };
    Trace::open(path, traces.has_payloads, traces.shows_decisions).map_err(wrong)
}

fn start_log(options: &ServerOptions) {
    let log = tracing_subscriber::fmt()
        .with_max_level(options.log_level)
        .with_target(false)
        .with_ansi(false)
        .with_writer(|| stderr::Stderr);
    // Refused if the surrounding program already has a logger.
    let _ = log.try_init();
}

/// Raises the limit of descriptors: each peer needs up to three, and the usual soft limit of 1024
/// exists for programs that use `select`.
fn raise_descriptor_limit() {
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    // Refused in a sandbox; then fewer peers fit, and accepting reports it.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum });
}

fn say(text: &str) -> u8 {
    io::stdout().write_all(text.as_bytes()).map_or(FAILED, |()| 0)
}

fn complain(error: &dyn std::error::Error, code: u8) -> u8 {
    // If this fails, nobody reads stderr.
    let _ = writeln!(io::stderr(), "gt-dispatcher: {error}");
    code
}
