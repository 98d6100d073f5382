//! Options of the command line.

use gt_transport::tcp::LinkLimits;
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;
use tracing::Level;

/// Default address of a dispatcher.
const HOST: &str = "127.0.0.1";
const PORT: u16 = 12345;
/// Default lease of a named session: a laptop is carried to the next room, a program is mended.
const LEASE: Duration = Duration::from_mins(10);
/// Default time for which values of a dead worker wait: a worker that imports PyTorch starts in 3 s,
/// on a machine at rest.
const SUCCESSOR_WAIT: Duration = Duration::from_secs(10);

/// Text of `--help`.
pub const HELP: &str = "\
The dispatcher of GT: clients and workers connect to it.

Usage: gt-dispatcher [--listen HOST:PORT | --host HOST -p PORT] [--unix PATH] [options]

  --listen HOST:PORT     listen on TCP; port 0 takes a free one (default 127.0.0.1:12345)
  --host HOST            the same in two parts; other hosts than this one need --token-file
  -p, --port PORT
  --unix PATH            listen on a Unix socket (alone: no TCP)
  --token-file FILE      a line for each user, as `gt token NAME` makes it; nobody else may connect
  --tls-cert FILE        encrypt TCP with this certificate, as `gt cert` writes it; clients and workers
  --tls-key FILE         then need GT_TLS_CA; its private key
  --policy FILE          weights, memory quotas and numbers of sessions by user, in YAML
  --audit-log FILE       append a line for each connection, refusal, session and change of these files
  --log-level LEVEL      error, warn, info (default) or debug, on stderr
  --instruction-log FILE write a line for each instruction
  --prices FILE          what work and traffic cost, for the planner: lines NAME=MICROSECONDS
  --probe                measure the links of workers that join and FILE does not price, and add them to FILE
  --ask-seconds N        ask a host whether it lives that has not answered for so long (5; 0: never)
  --asks N               so often; without an answer the connection is broken (3)
  --resume-seconds N     keep what a broken connection of another host served for so long (10; 0: for ever)
  --lease-seconds N      keep a named session without a client for so long (600), unless the client says otherwise
  --successor-seconds N  wait so long for the one that takes a dead worker's place (10; 0: not at all), see
                         `gt worker --supervise`: then its values are made again, else they are lost
  --log-payloads         keep payloads too, in FILE.d/
  --log-decisions        log each placement and its reason
  --standby              keep a copy of the process that goes on if this one is killed
  --end-with-input       end when standard input does: with the program that started this one, however that ends
  -h, --help, --version
";

/// Files of the dispatcher's certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsFiles {
    pub certificate: PathBuf,
    pub key: PathBuf,
}

impl TlsFiles {
    /// Both files, or neither.
    fn of(certificate: Option<PathBuf>, key: Option<PathBuf>) -> Result<Option<Self>, UsageError> {
        match (certificate, key) {
            (None, None) => Ok(None),
            (Some(certificate), Some(key)) => Ok(Some(Self { certificate, key })),
            (Some(_), None) | (None, Some(_)) => Err(UsageError::HalfTls),
        }
    }
}

/// Records of instructions that are written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TraceOptions {
    pub instruction_log: Option<PathBuf>,
    /// True to keep payloads beside the log.
    pub has_payloads: bool,
    /// True to log each placement and its reason.
    pub shows_decisions: bool,
}

/// Configuration, made once at the start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerOptions {
    /// `HOST:PORT`; `None` for no TCP.
    pub listen: Option<String>,
    pub unix: Option<PathBuf>,
    pub token_file: Option<PathBuf>,
    /// Certificate and key for TCP.
    pub tls: Option<TlsFiles>,
    /// Weights and limits by user.
    pub policy: Option<PathBuf>,
    pub audit_log: Option<PathBuf>,
    pub log_level: Level,
    pub traces: TraceOptions,
    pub prices: Option<PathBuf>,
    /// True to measure the prices that `prices` lacks, and to write them there.
    pub probe: bool,
    /// Limits of links to other hosts.
    pub links: LinkLimits,
    /// Time for which a named session waits for its next client.
    pub lease: Duration,
    /// True to keep a standby.
    pub standby: bool,
    /// Time for which the values of a dead worker wait for its successor.
    pub successor_wait: Duration,
    /// True to end when standard input does.
    pub ends_with_input: bool,
}

/// Request of the command line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    Serve(Box<ServerOptions>),
    Help,
    Version,
}

/// Error of a command line that cannot be parsed.
#[derive(Debug, thiserror::Error)]
pub enum UsageError {
    #[error("{0}")]
    Syntax(#[from] lexopt::Error),
    #[error("--listen and --host/--port say the same: give one")]
    ListenTwice,
    #[error("--log-level {0:?}: expected error, warn, info or debug")]
    LogLevel(String),
    #[error("{0:?}: expected seconds, of 0 and more")]
    Seconds(String),
    #[error("--log-payloads needs --instruction-log FILE")]
    PayloadsWithoutLog,
    #[error("--tls-cert and --tls-key belong together: give both")]
    HalfTls,
    #[error("--probe needs --prices FILE, where it writes to")]
    ProbeWithoutFile,
    #[error("--standby does not go with {0}, which a copy of the process cannot go on with")]
    StandbyWith(&'static str),
}

impl ServerOptions {
    /// Options of an empty command line, but for the address.
    fn defaults() -> Self {
        Self {
            listen: None,
            unix: None,
            token_file: None,
            tls: None,
            policy: None,
            audit_log: None,
            log_level: Level::INFO,
            traces: TraceOptions::default(),
            prices: None,
            probe: false,
            links: LinkLimits::default(),
            lease: LEASE,
            standby: false,
            successor_wait: SUCCESSOR_WAIT,
            ends_with_input: false,
        }
    }

    /// Refuses options that do not go together.
    fn check(&self) -> Result<(), UsageError> {
        if self.traces.has_payloads && self.traces.instruction_log.is_none() {
            return Err(UsageError::PayloadsWithoutLog);
        }
        if self.probe && self.prices.is_none() {
            return Err(UsageError::ProbeWithoutFile);
        }
        self.check_standby()
    }

    /// Refuses what a copy of the process cannot go on with: files that another thread may be at in
    /// the moment of the fork.
    fn check_standby(&self) -> Result<(), UsageError> {
        let others =
            [("--instruction-log", self.traces.instruction_log.is_some()), ("--probe", self.probe)];
        let other = others.into_iter().find(|(_, is_given)| self.standby && *is_given);
        other.map_or(Ok(()), |(other, _)| Err(UsageError::StandbyWith(other)))
    }
}

impl Command {
    /// Parses the arguments, without the program's name.
    ///
    /// # Errors
    /// [`UsageError`] gives the correct form.
    pub fn parse(arguments: impl IntoIterator<Item = OsString>) -> Result<Self, UsageError> {
        use lexopt::prelude::{Long, Short, ValueExt};
        let mut parser = lexopt::Parser::from_args(arguments);
        let (mut listen, mut host, mut port) = (None, None, None);
        let (mut certificate, mut key) = (None, None);
        let mut options = ServerOptions::defaults();
        while let Some(argument) = parser.next()? {
            match argument {
                Long("listen") => listen = Some(parser.value()?.string()?),
                Long("host") => host = Some(parser.value()?.string()?),
                Long("port") | Short('p') => port = Some(parser.value()?.parse::<u16>()?),
                Long("unix") => options.unix = Some(parser.value()?.into()),
                Long("token-file") => options.token_file = Some(parser.value()?.into()),
                Long("tls-cert") => certificate = Some(parser.value()?.into()),
                Long("tls-key") => key = Some(parser.value()?.into()),
                Long("policy") => options.policy = Some(parser.value()?.into()),
                Long("audit-log") => options.audit_log = Some(parser.value()?.into()),
                Long("log-level") => options.log_level = level(parser.value()?.string()?)?,
                Long("instruction-log") => {
                    options.traces.instruction_log = Some(parser.value()?.into());
                }
                Long("prices") => options.prices = Some(parser.value()?.into()),
                Long("probe") => options.probe = true,
                Long("ask-seconds") => {
                    options.links.probes.interval = seconds(parser.value()?.string()?)?;
                }
                Long("asks") => options.links.probes.count = parser.value()?.parse::<u32>()?,
                Long("resume-seconds") => {
                    let limit = seconds(parser.value()?.string()?)?;
                    options.links.resume = Some(limit).filter(|limit| !limit.is_zero());
                }
                Long("lease-seconds") => options.lease = seconds(parser.value()?.string()?)?,
                Long("successor-seconds") => {
                    options.successor_wait = seconds(parser.value()?.string()?)?;
                }
                Long("standby") => options.standby = true,
                Long("end-with-input") => options.ends_with_input = true,
                Long("log-payloads") => options.traces.has_payloads = true,
                Long("log-decisions") => options.traces.shows_decisions = true,
                Long("help") | Short('h') => return Ok(Self::Help),
                Long("version") => return Ok(Self::Version),
                Long(_) | Short(_) | lexopt::Arg::Value(_) => {
                    return Err(argument.unexpected().into());
                }
            }
        }
        options.tls = TlsFiles::of(certificate, key)?;
        options.check()?;
        options.listen = match (listen, host, port) {
            (Some(listen), None, None) => Some(listen),
            (Some(_), _, _) => return Err(UsageError::ListenTwice),
            (None, None, None) if options.unix.is_some() => None,
            (None, host, port) => {
                Some(joined(host.as_deref().unwrap_or(HOST), port.unwrap_or(PORT)))
            }
        };
        Ok(Self::Serve(Box::new(options)))
    }
}

fn joined(host: &str, port: u16) -> String {
    if host.contains(':') && !host.starts_with('[') {
        format!("[{host}]:{port}")
    } else {
        format!("{host}:{port}")
    }
}

fn seconds(word: String) -> Result<Duration, UsageError> {
    let number = word.parse().ok();
    number
        .and_then(|number| Duration::try_from_secs_f64(number).ok())
        .ok_or(UsageError::Seconds(word))
}

fn level(word: String) -> Result<Level, UsageError> {
    match word.as_str() {
        "error" => Ok(Level::ERROR),
        "warn" => Ok(Level::WARN),
        "info" => Ok(Level::INFO),
        "debug" => Ok(Level::DEBUG),
        _ => Err(UsageError::LogLevel(word)),
    }
}

#[cfg(test)]
mod tests {
    use super::Command;
    use gt_transport::tcp::{LinkLimits, Probes};
    use std::time::Duration;

    /// Checks the address of a command line, or its error.
    fn check(line: &str, expected: &str) {
        let arguments = line.split_whitespace().map(Into::into);
        let command = match Command::parse(arguments) {
            Ok(Command::Serve(options)) => format!("{:?} {:?}", options.listen, options.unix),
            Ok(other) => format!("{other:?}"),
            Err(error) => error.to_string(),
        };
        assert_eq!(command, expected, "of {line:?}");
    }

    #[test]
    fn limits_of_links() {
        let line = "--ask-seconds 0.5 --asks 7 --resume-seconds 0 --lease-seconds 30 \
                    --successor-seconds 2.5";
        let Ok(Command::Serve(options)) = Command::parse(line.split_whitespace().map(Into::into))
        else {
            panic!("{line} was accepted");
        };
        let probes = Probes { interval: Duration::from_millis(500), count: 7 };
        assert_eq!(options.links, LinkLimits { probes, resume: None });
        assert_eq!(options.lease, Duration::from_secs(30));
        assert_eq!(options.successor_wait, Duration::from_millis(2500));
    }

    #[test]
    fn command_lines() {
        check("", r#"Some("127.0.0.1:12345") None"#);
        check("-p 7", r#"Some("127.0.0.1:7") None"#);
        check("--host 0.0.0.0 --port 7", r#"Some("0.0.0.0:7") None"#);
        check("--host ::1 -p0", r#"Some("[::1]:0") None"#);
        check("--listen localhost:0 --unix /a", r#"Some("localhost:0") Some("/a")"#);
        check("--unix /a", r#"None Some("/a")"#);
        check("--unix /a -p 7", r#"Some("127.0.0.1:7") Some("/a")"#);
        check("--help", "Help");
        check("--listen a:1 -p 7", "--listen and --host/--port say the same: give one");
        check("--log-payloads", "--log-payloads needs --instruction-log FILE");
        check("--tls-cert a", "--tls-cert and --tls-key belong together: give both");
        check("--probe", "--probe needs --prices FILE, where it writes to");
        check(
            "--standby --instruction-log a",
            "--standby does not go with --instruction-log, which a copy of the process cannot go on with",
        );
        check(
            "--standby --token-file a --audit-log b --tls-cert c --tls-key d",
            r#"Some("127.0.0.1:12345") None"#,
        );
        check("--resume-seconds -1", r#""-1": expected seconds, of 0 and more"#);
        check("--log-level loud", r#"--log-level "loud": expected error, warn, info or debug"#);
        check("--port x", r#"cannot parse argument "x": invalid digit found in string"#);
        check("extra", r#"unexpected argument "extra""#);
    }
}
