//! `grant`: other sessions may borrow what a session has published under a name. What they get is
//! `dispatcher/borrowing.rs`'s.

use crate::event::ClientFault;
use crate::planner::Planner;
use crate::session::published::EVERYBODY;
use crate::session::requests::request_number;
use gt_protocol::message::{DESCRIPTION_BYTES_MAX, ToClient};
use gt_protocol::{Attr, Instruction};
use std::fmt::Write;

/// Number of letters of a list of names in an answer.
pub(crate) const LIST_BYTES: usize = DESCRIPTION_BYTES_MAX / 16;

impl Planner<'_> {
    /// The instruction `grant`. The first letter of the answer tells if it was done: `+` or `-`.
    pub(super) fn grant(&mut self, instruction: &Instruction<'_>) -> Result<(), ClientFault> {
        let op = instruction.op;
        let request = request_number(instruction)?;
        let fault = |name| ClientFault::Attribute { op, name };
        let Attr::Text(name) = instruction.attr("name") else { return Err(fault("name")) };
        let Attr::Text(user) = instruction.attr("user") else { return Err(fault("user")) };
        let Attr::Choice(choice @ 0..=1) = *instruction.attr("what") else {
            return Err(fault("what"));
        };
        let is_revoked = choice == 1;
        self.trace_plain(instruction);
        let text = self.granted(name, user, is_revoked);
        let text = text.map_or_else(|text| format!("-{text}"), |()| "+".to_owned());
        self.sink.session(self.id, &ToClient::Description { request, text: &text });
        Ok(())
    }

    fn granted(&mut self, name: &str, user: &str, is_revoked: bool) -> Result<(), String> {
        let own_user = self.session.user.clone();
        let published = &mut self.session.published;
        if published.entry(name).is_none() {
            let names: Vec<&str> = published.entries().into_iter().map(|(name, _)| name).collect();
            let text = listed(names.into_iter());
            return Err(format!("nothing is published as {name:?}; the session holds {text}"));
        }
        if user != EVERYBODY && own_user.is_none_or(|own| own.is_empty()) {
            return Err(format!(
                "this dispatcher knows no users, so it cannot know {user:?}: it needs --token-file; a \
                 grant without a user is for every session"
            ));
        }
        if is_revoked {
            if published.revoke(name, user) {
                return Ok(());
            }
            let whom = if user == EVERYBODY { "everybody".to_owned() } else { format!("{user:?}") };
            return Err(format!("{name:?} is not granted to {whom}"));
        }
        let is_granted = published.grant(name, user);
        is_granted
            .then_some(())
            .ok_or_else(|| format!("{name:?} is granted to as many users as it can"))
    }
}

/// Names in quotes, as many as an answer has room for; `nothing` without any.
pub(crate) fn listed<'n>(names: impl Iterator<Item = &'n str>) -> String {
    let mut text = String::new();
    for name in names {
        let gap = if text.is_empty() { "" } else { ", " };
        if text.len() + name.len() > LIST_BYTES {
            text.push_str(", …");
            break;
        }
        // Writing to a string cannot fail.
        let _ = write!(text, "{gap}{name:?}");
    }
    if text.is_empty() { "nothing".to_owned() } else { text }
}
