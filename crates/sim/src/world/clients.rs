//! Clients: connections that open, break and resume, and instructions on their way to the core.

use super::{Checked, SessionEvidence, WorkerHost, World, whole_length};
use crate::network::{NetworkEvent, Packet, Route};
use crate::shell::Intake;
use gt_dispatcher::SessionId;
use gt_protocol::link::LinkError;
use gt_protocol::message;

/// Words waiting for a worker above which no client's instruction is taken: as many as a ring of 8
/// KiB holds.
const BACKLOG_WORDS_MAX: usize = 2048;
/// Words in flight from a client above which it waits.
const CLIENT_WORDS_MAX: usize = 1024;

impl World {
    pub(super) fn connect(&mut self, client: usize) {
        let embedded = self.random.percent(30);
        let session = self.shell.open(client, embedded);
        let now = self.network.now();
        self.shell
            .outputs
            .note(|| format!("# tick {now}: client {client} opens session {}", session.0));
        self.clients[client].session = Some(session);
        self.wake_client(client);
    }

    pub(super) fn client_turn(&mut self, client: usize) {
        let route = Route::FromClient(client);
        let full = self.network.in_flight(route) > CLIENT_WORDS_MAX;
        let connection = &mut self.clients[client];
        let full = full || connection.is_broken || !connection.near.may_send();
        connection.turn_due = false;
        if full || connection.client.closed || connection.session.is_none() {
            return;
        }
        let words = connection.client.turn();
        // Without words there will be no answer, and nothing else would wake it.
        let alone = connection.client.unanswered() == 0;
        if !words.is_empty() {
            let bytes = connection.near.send(words);
            self.network.send(route, Packet::Bytes(bytes));
            self.wake_client(client);
        } else if alone {
            self.wake_client(client);
        }
    }

    pub(super) fn wake_client(&mut self, client: usize) {
        let connection = &mut self.clients[client];
        if !connection.turn_due && !connection.client.finished() {
            connection.turn_due = true;
            let ticks = self.random.between(1, 15);
            self.network.after(ticks, NetworkEvent::ClientTurn(client));
        }
    }

    pub(super) fn receive_from_client(&mut self, client: usize, packet: Packet) -> Checked {
        let Some(session) = self.clients[client].session else { return Ok(()) };
        match packet {
            Packet::Bytes(bytes) => {
                let far = &mut self.clients[client].far;
                let words = far.receive(&bytes).map_err(|error| error.to_string())?;
                if let Some(bytes) = far.acknowledgement() {
                    self.network.send(Route::ToClient(client), Packet::Bytes(bytes));
                }
                self.shell.receive(session, &words);
            }
            Packet::Closed => self.shell.client_closed(session),
            Packet::Words(_)
            | Packet::PeerMessage { .. }
            | Packet::PeerGone(_)
            | Packet::PeerJoined(_) => {
                return Err("a client sends bytes".to_owned());
            }
        }
        self.wake_client(client);
        self.take_in(session)
    }

    /// Takes a session's instructions while no worker has too many words waiting.
    pub(super) fn take_in(&mut self, session: SessionId) -> Checked {
        while self.has_room() {
            let client = self.shell.client_of(session);
            let inferred = |id| self.clients.get(client?)?.client.meta_of(id);
            let intake = self.shell.take_frame(session, &inferred);
            self.flush()?;
            match intake {
                Intake::Drained => break,
                Intake::Taken => self.check_accounts()?,
                Intake::Closed => {
                    self.session_over(client);
                    return self.check_accounts();
                }
                Intake::Breach(text) => {
                    let hostile =
                        client.is_some_and(|client| self.clients[client].client.is_hostile());
                    if !hostile {
                        return Err(format!("an honest client is told of a breach: {text}"));
                    }
                    self.breaches += 1;
                    self.shell
                        .outputs
                        .note(|| format!("# session {} is closed: {text}", session.0));
                    self.session_over(client);
                    return self.check_accounts();
                }
            }
        }
        Ok(())
    }

    fn session_over(&mut self, client: Option<usize>) {
        let Some(client) = client else { return };
        let connection = &mut self.clients[client];
        connection.session = None;
        connection.client.closed = true;
        self.network.cut(Route::FromClient(client));
        self.network.cut(Route::ToClient(client));
    }

    fn has_room(&self) -> bool {
        let backlog = |(&index, host): (&u32, &WorkerHost)| {
            host.worker.backlog() + self.network.in_flight(Route::ToWorker(index))
        };
        self.workers.iter().map(backlog).all(|words| words <= BACKLOG_WORDS_MAX)
    }

    /// Both ends exchange the last frames that they received, and send the later ones again.
    pub(super) fn resume_client(&mut self, client: usize) -> Checked {
        let connection = &mut self.clients[client];
        connection.is_broken = false;
        if connection.client.closed || connection.session.is_none() {
            return Ok(());
        }
        let (near, far) = (connection.near.received(), connection.far.received());
        let text = |error: LinkError| error.to_string();
        let (up, down) = (
            connection.near.resume(far).map_err(text)?,
            connection.far.resume(near).map_err(text)?,
        );
        self.network.send(Route::FromClient(client), Packet::Bytes(up));
        self.network.send(Route::ToClient(client), Packet::Bytes(down));
        self.resumed += 1;
        self.wake_client(client);
        Ok(())
    }

    pub(super) fn receive_at_client(&mut self, client: usize, packet: Packet) -> Checked {
        let Packet::Bytes(bytes) = packet else { return Ok(()) };
        let connection = &mut self.clients[client];
        let Some(session) = connection.session else { return Ok(()) };
        if connection.client.closed {
            return Ok(());
        }
        let words = connection.near.receive(&bytes).map_err(|error| error.to_string())?;
        connection.inbox.extend_from_slice(&words);
        if let Some(bytes) = connection.near.acknowledgement() {
            self.network.send(Route::FromClient(client), Packet::Bytes(bytes));
        }
        let evidence = SessionEvidence { world: (&self.shell, &self.crashed), session };
        while let Some(length) = whole_length(&connection.inbox)? {
            let frame: Vec<u32> = connection.inbox.drain(..length).collect();
            let (message, _) = message::decode(&frame).map_err(|error| error.to_string())?;
            let checked = connection.client.receive_message(session.0, &message, &evidence);
            checked.map_err(|text| format!("client {client}, session {}: {text}", session.0))?;
        }
        self.wake_client(client);
        Ok(())
    }
}
