//! Identity of a peer: its token against the token file, which is read again whenever it changes.

use super::Net;
use crate::audit::{AuditLog, Quoted};
use crate::file_stamp::{FileStamp, INTERVAL};
use crate::net_event::NetEvent;
use crate::tokens::{LINES_OF_USER_MAX, TokenLine, TokenList, random_bytes};
use gt_protocol::handshake::Token;
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::io;
use std::net::IpAddr;
use std::path::PathBuf;
use std::rc::{Rc, Weak};
use tokio::sync::{Semaphore, oneshot};

/// Hashes that are computed at the same time: each takes a core and 19 MiB.
const CHECKS_MAX: usize = 2;
/// Peers that wait for a hash, in all and of one address; further ones are refused. Half of the
/// patience of a client's handshake.
const WAITING_MAX: usize = 96;
const WAITING_OF_ADDRESS_MAX: usize = 32;
/// Tokens that are remembered, so that a peer that comes back need not wait.
const REMEMBERED_MAX: usize = 4096;

/// Reason why a token admits nobody.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TokenRefusal {
    Absent,
    Wrong,
    /// Too many are being checked.
    Busy,
}

impl TokenRefusal {
    /// Text for the peer.
    pub const fn text(self) -> &'static str {
        match self {
            Self::Absent => "no token: set GT_TOKEN to the one that the dispatcher knows",
            Self::Wrong => "wrong token: set GT_TOKEN to the one that the dispatcher knows",
            Self::Busy => "too many tokens are being checked at the moment: try again",
        }
    }
}

/// The token file, and whom it has admitted.
pub(crate) struct Authentication {
    path: PathBuf,
    audit: AuditLog,
    stamp: Cell<Option<FileStamp>>,
    list: RefCell<TokenList>,
    /// Key of the hashes by which tokens are remembered: it never leaves this process.
    key: ring::hmac::Key,
    remembered: RefCell<BTreeMap<[u8; 32], TokenLine>>,
    checks: Semaphore,
    waiting: RefCell<BTreeMap<Option<IpAddr>, usize>>,
    admitted: RefCell<BTreeMap<u64, (TokenLine, oneshot::Sender<()>)>>,
    next: Cell<u64>,
}

/// Admission of one connection by a line of the token file.
pub(crate) struct Admission {
    number: u64,
    line: TokenLine,
    over: oneshot::Receiver<()>,
    authentication: Weak<Authentication>,
}

impl Authentication {
    /// The file and its contents; these may be older in a process that was a standby, which looks
    /// at the file once more.
    pub fn new(
        path: PathBuf,
        list: TokenList,
        audit: AuditLog,
        is_first: bool,
    ) -> io::Result<Self> {
        let key = ring::hmac::Key::new(ring::hmac::HMAC_SHA256, &random_bytes::<32>()?);
        let stamp = if is_first { FileStamp::of(&path) } else { None };
        if is_first {
            tell_of_plain(&list, &path);
        }
        Ok(Self {
            stamp: Cell::new(stamp),
            path,
            audit,
            list: RefCell::new(list),
            key,
            remembered: RefCell::default(),
            checks: Semaphore::new(CHECKS_MAX),
            waiting: RefCell::default(),
            admitted: RefCell::default(),
            next: Cell::new(0),
        })
    }

    /// Admits a peer of an address (none for a Unix socket) by its token.
    pub async fn admit(
        self: &Rc<Self>,
        token: &Token,
        from: Option<IpAddr>,
    ) -> Result<Admission, TokenRefusal> {
        if token.0.is_empty() {
            return Err(TokenRefusal::Absent);
        }
        let known = self.known(token);
        let line = match known {
            Some(line) => line,
            None => self.check(token, from).await?,
        };
        // The file may have changed while the hash was computed.
        if !self.list.borrow().contains(&line) {
            return Err(TokenRefusal::Wrong);
        }
        Ok(self.readmit(line))
    }

    /// Admits a peer that came in by this line; if the file does not have it, the admission is over
    /// at once.
    pub fn readmit(self: &Rc<Self>, line: TokenLine) -> Admission {
        let (sender, over) = oneshot::channel();
        let number = self.next.get();
        self.next.set(number + 1);
        if self.list.borrow().contains(&line) {
            self.admitted.borrow_mut().insert(number, (line.clone(), sender));
        }
        Admission { number, line, over, authentication: Rc::downgrade(self) }
    }

    /// The line of a token for which no hash has to be computed.
    fn known(&self, token: &Token) -> Option<TokenLine> {
        let remembered = self.remembered.borrow().get(&self.digest(token)).cloned();
        remembered.or_else(|| self.list.borrow().plain(token).cloned())
    }

    fn digest(&self, token: &Token) -> [u8; 32] {
        let tag = ring::hmac::sign(&self.key, &token.0);
        tag.as_ref().try_into().unwrap_or_default()
    }

    /// Compares a token with the hashes of the user whom it names, on another thread.
    async fn check(&self, token: &Token, from: Option<IpAddr>) -> Result<TokenLine, TokenRefusal> {
        let candidates = self.list.borrow().hashed(token);
        debug_assert!(candidates.len() <= LINES_OF_USER_MAX, "the list limits them");
        if candidates.is_empty() {
            return Err(TokenRefusal::Wrong);
        }
        let _waiting = TokenWait::new(self, from)?;
        let Ok(_permit) = self.checks.acquire().await else { return Err(TokenRefusal::Busy) };
        // Another connection with this token may have been first.
        if let Some(line) = self.known(token) {
            return Ok(line);
        }
        let shown = token.clone();
        let compare = move || candidates.into_iter().find(|line| line.is_of(&shown));
        // A thread that panicked admits nobody.
        let line = tokio::task::spawn_blocking(compare).await.ok().flatten();
        let line = line.ok_or(TokenRefusal::Wrong)?;
        let mut remembered = self.remembered.borrow_mut();
        if remembered.len() >= REMEMBERED_MAX {
            remembered.clear();
        }
        remembered.insert(self.digest(token), line.clone());
        Ok(line)
    }

    /// Takes the file as it is now, and ends the connections that it does not admit any more.
    fn reload(&self, list: TokenList) {
        let shown = self.path.display();
        let users = list.users().count();
        self.remembered.borrow_mut().retain(|_, line| list.contains(line));
        let mut ended = 0;
        self.admitted.borrow_mut().retain(|_, (line, _)| {
            let stays = list.contains(line);
            ended += usize::from(!stays);
            stays
        });
        tracing::info!(
            "token file {shown}: taken as it is now, {users} lines; {ended} connections end whose line is gone"
        );
        self.audit
            .write("tokens-reloaded", format_args!(" lines={users} connections-ended={ended}"));
        tell_of_plain(&list, &self.path);
        self.list.replace(list);
    }
}

/// Says that tokens stand in the file in clear.
fn tell_of_plain(list: &TokenList, path: &std::path::Path) {
    let plain = list.plain_count();
    if plain > 0 {
        let lines =
            if plain == 1 { "1 token stands".into() } else { format!("{plain} tokens stand") };
        tracing::info!(
            "token file {}: {lines} there in clear; `gt token NAME` makes a token and a line with its hash",
            path.display()
        );
    }
}

/// Reads the token file again whenever it has changed, until the dispatcher ends. A file with a
/// mistake is not taken: the one before stays.
pub(crate) async fn watch(authentication: Rc<Authentication>, net: Rc<Net>) {
    // The loop ends with the runtime.
    loop {
        tokio::time::sleep(INTERVAL).await;
        let now = FileStamp::of(&authentication.path);
        let before = authentication.stamp.replace(now);
        if now == before {
            continue;
        }
        match TokenList::read(&authentication.path) {
            // Nothing has changed since the process before this one looked.
            Ok(list) if before.is_none() && list == *authentication.list.borrow() => {}
            Ok(list) => {
                if net.has_standby {
                    net.tell(NetEvent::Tokens(list.clone()));
                }
                authentication.reload(list);
            }
            Err(error) => {
                let text = error.to_string();
                authentication
                    .audit
                    .write("tokens-refused", format_args!("{}", Quoted("reason", &text)));
                tracing::error!("{text}; the tokens from before stay");
            }
        }
    }
}

/// A peer that waits for a hash.
struct TokenWait<'a> {
    authentication: &'a Authentication,
    from: Option<IpAddr>,
}

impl<'a> TokenWait<'a> {
    fn new(authentication: &'a Authentication, from: Option<IpAddr>) -> Result<Self, TokenRefusal> {
        let mut waiting = authentication.waiting.borrow_mut();
        let all: usize = waiting.values().sum();
        let of_address = waiting.entry(from).or_default();
        if all >= WAITING_MAX || *of_address >= WAITING_OF_ADDRESS_MAX {
            return Err(TokenRefusal::Busy);
        }
        *of_address += 1;
        drop(waiting);
        Ok(Self { authentication, from })
    }
}

impl Drop for TokenWait<'_> {
    fn drop(&mut self) {
        let mut waiting = self.authentication.waiting.borrow_mut();
        if let Some(count) = waiting.get_mut(&self.from) {
            *count -= 1;
            if *count == 0 {
                waiting.remove(&self.from);
            }
        }
    }
}

impl Admission {
    pub fn user(&self) -> &str {
        self.line.user()
    }

    /// The line that admits it.
    pub const fn line(&self) -> &TokenLine {
        &self.line
    }

    /// Returns when the token file does not admit the peer any more.
    pub async fn over(&mut self) {
        // Nothing is ever sent; the sender's drop is the message.
        let _ = (&mut self.over).await;
    }
}

impl Drop for Admission {
    fn drop(&mut self) {
        if let Some(authentication) = self.authentication.upgrade() {
            authentication.admitted.borrow_mut().remove(&self.number);
        }
    }
}
