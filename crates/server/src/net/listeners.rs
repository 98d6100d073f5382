//! Listeners: TCP, a Unix socket, and the local socket.

use super::greeting::GreetingError;
use super::secret::random_secret;
use super::strangers::{StrangerPlace, Strangers};
use super::{Net, tcp_peer};
use crate::audit::Quoted;
use crate::options::ServerOptions;
use crate::tokens::TokenList;
use std::future::Future;
use std::io::{self, Write};
use std::net::{SocketAddr, TcpListener as StdTcpListener, ToSocketAddrs};
use std::os::fd::{AsRawFd, RawFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{SocketAddr as UnixAddress, UnixListener as StdUnixListener};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;
use tokio::net::{TcpListener, UnixListener};
use tokio::task::JoinHandle;

/// Pause after a failed accept (no descriptors left): long enough not to spin, short enough not to
/// be noticed.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Reason why the dispatcher cannot listen.
#[derive(Debug, thiserror::Error)]
pub enum ListenError {
    #[error("{0:?} is no address to listen on: {1}")]
    Address(String, io::Error),
    #[error("cannot listen on {0}: {1}")]
    Bind(String, io::Error),
    #[error(
        "{0} can be reached from other machines: give --token-file FILE (`gt token NAME >> FILE` for each user), or listen on 127.0.0.1"
    )]
    NoTokens(SocketAddr),
    #[error("{} exists and is no socket of a dispatcher that has ended", .0.display())]
    Taken(PathBuf),
}

/// The sockets on which the dispatcher listens.
#[derive(Debug)]
pub(crate) struct Listeners {
    tcp: Option<StdTcpListener>,
    unix: Option<(StdUnixListener, PathGuard)>,
    local_socket: StdUnixListener,
    /// `sun_path` of the local socket, with its leading zero.
    pub local_address: Vec<u8>,
}

/// Removes the socket's path when the dispatcher ends.
#[derive(Debug)]
struct PathGuard(PathBuf);

impl Drop for PathGuard {
    fn drop(&mut self) {
        // Another process may have removed it.
        let _ = std::fs::remove_file(&self.0);
    }
}

/// Copies of the listeners, for a standby.
#[derive(Debug)]
pub(crate) struct InheritedListeners {
    tcp: Option<StdTcpListener>,
    unix: Option<(StdUnixListener, PathBuf)>,
    local_socket: StdUnixListener,
    local_address: Vec<u8>,
}

impl InheritedListeners {
    pub fn descriptors(&self) -> impl Iterator<Item = RawFd> {
        let tcp = self.tcp.as_ref().map(AsRawFd::as_raw_fd);
        let unix = self.unix.as_ref().map(|(unix, _)| unix.as_raw_fd());
        tcp.into_iter().chain(unix).chain([self.local_socket.as_raw_fd()])
    }

    /// The listeners of the process that goes on: the path is now its own to remove.
    pub fn inherit(&self) -> io::Result<Listeners> {
        let tcp = self.tcp.as_ref().map(StdTcpListener::try_clone).transpose()?;
        let unix = self
            .unix
            .as_ref()
            .map(|(unix, path)| unix.try_clone().map(|unix| (unix, PathGuard(path.clone()))));
        let local_socket = self.local_socket.try_clone()?;
        let local_address = self.local_address.clone();
        Ok(Listeners { tcp, unix: unix.transpose()?, local_socket, local_address })
    }
}

/// Opens all listeners of the options.
pub(crate) fn bind(
    options: &ServerOptions,
    tokens: Option<&TokenList>,
) -> Result<Listeners, ListenError> {
    let tcp = options.listen.as_deref().map(|listen| bind_tcp(listen, tokens)).transpose()?;
    let unix = options.unix.as_deref().map(|path| bind_unix(path, tokens)).transpose()?;
    let (local_socket, local_address) =
        bind_local().map_err(|error| ListenError::Bind("the local socket".into(), error))?;
    Ok(Listeners { tcp, unix, local_socket, local_address })
}

fn bind_tcp(listen: &str, tokens: Option<&TokenList>) -> Result<StdTcpListener, ListenError> {
    let wrong = |error| ListenError::Address(listen.to_owned(), error);
    let addresses: Vec<SocketAddr> = listen.to_socket_addrs().map_err(wrong)?.collect();
    if tokens.is_none()
        && let Some(&open) = addresses.iter().find(|address| !address.ip().is_loopback())
    {
        return Err(ListenError::NoTokens(open));
    }
    let cannot = |error| ListenError::Bind(listen.to_owned(), error);
    let listener = StdTcpListener::bind(&*addresses).map_err(cannot)?;
    listener.set_nonblocking(true).map_err(cannot)?;
    Ok(listener)
}

fn bind_unix(
    path: &Path,
    tokens: Option<&TokenList>,
) -> Result<(StdUnixListener, PathGuard), ListenError> {
    let cannot = |error| ListenError::Bind(path.display().to_string(), error);
    if path.exists() {
        // A socket without a listener is left from a dispatcher that was killed.
        if !is_dead_socket(path) {
            return Err(ListenError::Taken(path.to_owned()));
        }
        std::fs::remove_file(path).map_err(cannot)?;
    }
    let listener = StdUnixListener::bind(path).map_err(cannot)?;
    let guard = PathGuard(path.to_owned());
    // With tokens any user of this host may connect; without, only this user.
    let mode = if tokens.is_some() { 0o666 } else { 0o600 };
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).map_err(cannot)?;
    listener.set_nonblocking(true).map_err(cannot)?;
    Ok((listener, guard))
}

fn is_dead_socket(path: &Path) -> bool {
    let refused = |error: io::Error| error.kind() == io::ErrorKind::ConnectionRefused;
    std::os::unix::net::UnixStream::connect(path).is_err_and(refused)
}

fn bind_local() -> io::Result<(StdUnixListener, Vec<u8>)> {
    use std::fmt::Write;
    let mut name = format!("gt-{}-", std::process::id());
    for byte in random_secret()?.0 {
        // Writing to a String cannot fail.
        let _ = write!(name, "{byte:02x}");
    }
    let address = UnixAddress::from_abstract_name(name.as_bytes())?;
    let listener = StdUnixListener::bind_addr(&address)?;
    listener.set_nonblocking(true)?;
    Ok((listener, [b"\0", name.as_bytes()].concat()))
}

impl Listeners {
    /// Copies for a standby.
    pub fn bequeath(&self) -> io::Result<InheritedListeners> {
        let tcp = self.tcp.as_ref().map(StdTcpListener::try_clone).transpose()?;
        let unix = self
            .unix
            .as_ref()
            .map(|(unix, PathGuard(path))| unix.try_clone().map(|unix| (unix, path.clone())));
        let local_socket = self.local_socket.try_clone()?;
        let local_address = self.local_address.clone();
        Ok(InheritedListeners { tcp, unix: unix.transpose()?, local_socket, local_address })
    }

    /// Accepts on all of them, each in a task of its own.
    pub fn accept_all(&self, net: &Rc<Net>) -> io::Result<Vec<JoinHandle<()>>> {
        let strangers = Rc::new(Strangers::default());
        let mut tasks = Vec::new();
        if let Some(tcp) = &self.tcp {
            let listener = TcpListener::from_std(tcp.try_clone()?)?;
            let (net, strangers) = (Rc::clone(net), Rc::clone(&strangers));
            tasks.push(tokio::task::spawn_local(async move {
                loop {
                    let Some((place, (stream, from))) =
                        accepted(&strangers, listener.accept()).await
                    else {
                        continue;
                    };
                    let peer = Rc::clone(&net);
                    let served = async move { tcp_peer::serve(&peer, stream, place).await };
                    spawn(&net, from.to_string(), served);
                }
            }));
        }
        if let Some((unix, _)) = &self.unix {
            let listener = UnixListener::from_std(unix.try_clone()?)?;
            let (net, strangers) = (Rc::clone(net), Rc::clone(&strangers));
            tasks.push(tokio::task::spawn_local(async move {
                loop {
                    let Some((place, (socket, _))) = accepted(&strangers, listener.accept()).await
                    else {
                        continue;
                    };
                    let peer = Rc::clone(&net);
                    let served = async move { tcp_peer::serve_unix(&peer, socket, place).await };
                    spawn(&net, "the Unix socket".to_owned(), served);
                }
            }));
        }
        let listener = UnixListener::from_std(self.local_socket.try_clone()?)?;
        let net = Rc::clone(net);
        tasks.push(tokio::task::spawn_local(async move {
            loop {
                let Some((place, (socket, _))) = accepted(&strangers, listener.accept()).await
                else {
                    continue;
                };
                let peer = Rc::clone(&net);
                let served = async move { tcp_peer::serve_local(&peer, socket, place).await };
                spawn(&net, "the local socket".to_owned(), served);
            }
        }));
        Ok(tasks)
    }
}

/// A place among the connections without a hello, and a new connection; `None` after a failure, to
/// be tried again.
async fn accepted<T>(
    strangers: &Rc<Strangers>,
    accept: impl Future<Output = io::Result<T>>,
) -> Option<(StrangerPlace, T)> {
    match accept.await {
        Ok(connection) => Some((strangers.admit(), connection)),
        Err(error) => {
            tracing::warn!("cannot accept a connection: {error}");
            tokio::time::sleep(ACCEPT_PAUSE).await;
            None
        }
    }
}

/// Runs one connection to its end and logs one line if it failed.
pub(super) fn spawn(
    net: &Rc<Net>,
    from: String,
    served: impl Future<Output = Result<(), GreetingError>> + 'static,
) {
    let (open, audit) = (net.open.clone(), net.audit.clone());
    tokio::task::spawn_local(async move {
        match served.await {
            Ok(()) => {}
            Err(error) if error.is_harmless() => tracing::debug!("{from}: {error}"),
            Err(error) => {
                let reason = error.to_string();
                let (from, reason) = (Quoted("from", &from), Quoted("reason", &reason));
                audit.write("refused", format_args!("{from}{reason}"));
                tracing::warn!("{}: {error}", from.1);
            }
        }
        drop(open);
    });
}

/// Prints the addresses on stdout, and the commands to type elsewhere. The first line is for
/// programs, which may close their end after it.
pub(crate) fn announce(listeners: &Listeners, options: &ServerOptions) -> io::Result<()> {
    match write_lines(listeners, options, &mut io::stdout().lock()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        written => written,
    }
}

fn write_lines(
    listeners: &Listeners,
    options: &ServerOptions,
    out: &mut impl Write,
) -> io::Result<()> {
    if let Some(tcp) = &listeners.tcp {
        let address = tcp.local_addr()?;
        let token = if options.token_file.is_some() { "GT_TOKEN=… " } else { "" };
        // A dispatcher that listens on all interfaces is reached by its host's name.
        let host =
            if address.ip().is_unspecified() { hostname() } else { address.ip().to_string() };
        let ca = if options.tls.is_some() { "GT_TLS_CA=ca.pem " } else { "" };
        writeln!(out, "listening on {address}")?;
        writeln!(
            out,
            "workers:  {ca}{token}python -m gt.worker --host {host} -p {}",
            address.port()
        )?;
        writeln!(out, "clients:  {ca}{token}gt.connect('{host}:{}')", address.port())?;
    }
    if let Some((_, PathGuard(path))) = &listeners.unix {
        let path = path.display();
        writeln!(out, "listening on unix:{path}")?;
        writeln!(out, "workers:  python -m gt.worker --unix {path}")?;
        writeln!(out, "clients:  gt.connect('unix:{path}')")?;
    }
    out.flush()
}

fn hostname() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}
