//! Connecting a worker that was started by hand to its dispatcher: a handshake, then rings on the
//! dispatcher's host, and frames over TCP elsewhere.

use super::framed::serve_frames;
use super::greeting::{WELCOME_PATIENCE, greet, tell};
use super::machine::Worker;
use super::process::serve_control;
use super::redial::{DispatcherName, Redial};
use gt_protocol::handshake::{
    Capabilities, Hello, LocalSocket, Resume, Role, Secret, Token, Welcome,
};
use gt_transport::tcp::{self, Probes};
use gt_transport::{Authority, HostStream};
use pyo3::exceptions::{PyConnectionError, PyConnectionRefusedError};
use pyo3::prelude::*;
use std::net::{SocketAddr as InternetAddress, TcpListener, TcpStream, ToSocketAddrs};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixStream};
use std::path::{Path, PathBuf};

/// Runs a worker of a listening dispatcher, until that is gone.
///
/// Args:
///     host, port: The dispatcher's TCP address, unless `unix` is given.
///     unix: The path of the dispatcher's Unix socket.
///     index: The preferred index of this worker.
///     token: The access token, for a dispatcher that requires one.
///     `tls_ca`: The file with the authority's certificate, to encrypt the connection to the dispatcher.
///     rings: True to use shared memory where the dispatcher is on this host.
///     backend: A `gt.worker.backend.Backend`, whose guard the calling thread has entered.
///     `is_supervised`: True if another worker takes its place when it dies, with the same index and
///         settings: the dispatcher keeps its values for that one.
///
/// Raises:
///     `ConnectionRefusedError`: The dispatcher does not answer, or refuses the worker.
///     `ConnectionError`: The connection fails later.
#[pyfunction]
#[pyo3(signature = (*, host, port, unix, index, token, tls_ca, rings, backend, is_supervised=false))]
#[allow(clippy::too_many_arguments, reason = "they are keyword arguments of Python")]
pub fn run_on_socket(
    py: Python<'_>,
    host: &str,
    port: Option<u16>,
    unix: Option<&str>,
    index: Option<u32>,
    token: &str,
    tls_ca: Option<PathBuf>,
    rings: bool,
    backend: &Bound<'_, PyAny>,
    is_supervised: bool,
) -> PyResult<()> {
    let worker = Worker::new(backend)?;
    let reach = if rings { Capabilities::LOCAL } else { Capabilities::default() };
    let hello = Hello {
        capabilities: if is_supervised { reach.with(Capabilities::SUPERVISED) } else { reach },
        worker: index,
        token: Token(token.as_bytes().to_vec()),
        name: format!("worker {}", std::process::id()),
        ..Hello::new(Role::Worker)
    };
    if let Some(path) = unix {
        let address = SocketAddr::from_pathname(Path::new(path))
            .map_err(|error| refused(format!("unix:{path}: {error}")))?;
        let (socket, welcome) = py
            .detach(|| dial_unix(&address, &hello))
            .map_err(|text| refused(format!("unix:{path}: {text}")))?;
        tell_joined(&welcome, &format!("unix:{path}"), "shared memory", backend)?;
        return serve_control(py, socket.into(), worker);
    }
    let port = port.ok_or_else(|| PyConnectionError::new_err("no port"))?;
    let authority = tls_ca.as_deref().map(Authority::read).transpose();
    let authority = authority.map_err(|error| refused(error.to_string()))?;
    let dispatcher = DispatcherName { host: host.to_owned(), port, authority };
    let (stream, welcome, listener) = py
        .detach(|| dial_tcp(&dispatcher, hello.clone(), worker.links.dispatcher.probes))
        .map_err(refused)?;
    if let Some(opened) = &welcome.local_socket
        && let Ok(socket) = py.detach(|| open_local(opened, &welcome, &hello))
    {
        // The dispatcher also watches the connection that the worker arrived on, so it stays open
        // until the process ends.
        std::mem::forget(stream);
        tell_joined(&welcome, &format!("{host}:{port}"), "shared memory", backend)?;
        return serve_control(py, socket.into(), worker);
    }
    let index =
        welcome.worker.ok_or_else(|| refused("the welcome names no worker index".to_owned()))?;
    let way = if stream.is_encrypted() { "TLS" } else { "TCP" };
    tell_joined(&welcome, &format!("{host}:{port}"), way, backend)?;
    if !stream.socket().peer_addr().is_ok_and(|address| address.ip().is_loopback())
        && let Some(line) = tcp::clipped_buffers()
    {
        tell(&line);
    }
    let redial = Redial::new(&stream, dispatcher, hello, &welcome, worker.links.dispatcher)
        .map_err(|error| refused(error.to_string()))?;
    serve_frames(py, stream, worker, index, listener, redial)
}

/// Writes a line to the worker's log (standard error) that it has joined: the dispatcher, its index
/// and the connection. The dispatcher has admitted it by then, and tells its sessions next.
fn tell_joined(
    welcome: &Welcome,
    address: &str,
    way: &str,
    backend: &Bound<'_, PyAny>,
) -> PyResult<()> {
    let name: String = backend.getattr("name")?.extract()?;
    let index = welcome.worker.map(|index| format!(" {index}")).unwrap_or_default();
    let process = std::process::id();
    tell(&format!("worker{index} has joined {address} by {way} ({name}, process {process})"));
    Ok(())
}

/// The connection, the answer to the hello, and the listener for workers of other hosts.
fn dial_tcp(
    dispatcher: &DispatcherName,
    mut hello: Hello,
    probes: Probes,
) -> Result<(HostStream, Welcome, TcpListener), String> {
    let DispatcherName { host, port, .. } = dispatcher;
    let text = |error: std::io::Error| format!("{host}:{port}: {error}");
    let addresses: Vec<InternetAddress> = (host.as_str(), *port)
        .to_socket_addrs()
        .map_err(|error| format!("the host {host:?} is unknown ({error})"))?
        .collect();
    let stream = TcpStream::connect(addresses.as_slice()).map_err(text)?;
    tcp::tune(&stream, probes).map_err(text)?;
    stream.set_read_timeout(Some(WELCOME_PATIENCE)).map_err(text)?;
    // Bound to the interface that reaches the dispatcher: that network also reaches the other
    // workers.
    let listener = TcpListener::bind((stream.local_addr().map_err(text)?.ip(), 0)).map_err(text)?;
    hello.data_port = Some(listener.local_addr().map_err(text)?.port());
    let mut stream =
        dispatcher.secure(stream).map_err(|error| format!("{host}:{port}: {error}"))?;
    let welcome = greet(&mut stream, &hello).map_err(|error| format!("{host}:{port}: {error}"))?;
    stream.socket().set_read_timeout(None).map_err(text)?;
    Ok((stream, welcome, listener))
}

fn dial_unix(address: &SocketAddr, hello: &Hello) -> Result<(UnixStream, Welcome), String> {
    let text = |error: std::io::Error| error.to_string();
    let mut socket = UnixStream::connect_addr(address).map_err(text)?;
    socket.set_read_timeout(Some(WELCOME_PATIENCE)).map_err(text)?;
    let welcome = greet(&mut socket, hello).map_err(|error| error.to_string())?;
    socket.set_read_timeout(None).map_err(text)?;
    Ok((socket, welcome))
}

/// Connects through the dispatcher's local socket: a process that can open it is on the same host.
fn open_local(
    opened: &LocalSocket,
    welcome: &Welcome,
    hello: &Hello,
) -> Result<UnixStream, String> {
    let address = match opened.address.split_first() {
        Some((0, name)) => SocketAddr::from_abstract_name(name),
        Some(_) | None => {
            SocketAddr::from_pathname(Path::new(std::ffi::OsStr::from_bytes(&opened.address)))
        }
    };
    let address = address.map_err(|error| error.to_string())?;
    let secret = Secret(opened.secret.0);
    let resume = Some(Resume { session: welcome.session, secret, acknowledged: 0 });
    dial_unix(&address, &Hello { resume, ..hello.clone() }).map(|(socket, _)| socket)
}

fn refused(text: String) -> PyErr {
    PyConnectionRefusedError::new_err(text)
}
