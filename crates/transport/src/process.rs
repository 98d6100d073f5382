//! State of another process of this host, from the kernel: whether it is stopped, and its processor
//! time.

use std::fs;

/// State of a process at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProcessState {
    /// True if a signal (`SIGSTOP`, Ctrl-Z) or a debugger stops it.
    pub is_stopped: bool,
    /// Processor time of all its threads, in ticks of the kernel (1/100 s).
    pub ticks: u64,
}

/// The state of the process with this number; `None` where there is none, or it is hidden.
pub fn process_state(process: u32) -> Option<ProcessState> {
    parse(&fs::read_to_string(format!("/proc/{process}/stat")).ok()?)
}

/// Parses the fields behind the name, which is in brackets and may contain spaces and brackets.
fn parse(stat: &str) -> Option<ProcessState> {
    const STATE: usize = 0;
    const USER_TICKS: usize = 11;
    let (_, rest) = stat.rsplit_once(')')?;
    let mut fields = rest.split_ascii_whitespace();
    let state = fields.nth(STATE)?;
    let user: u64 = fields.nth(USER_TICKS - STATE - 1)?.parse().ok()?;
    let system: u64 = fields.next()?.parse().ok()?;
    Some(ProcessState {
        is_stopped: matches!(state, "T" | "t"),
        ticks: user.saturating_add(system),
    })
}

#[cfg(test)]
mod tests {
    use super::{ProcessState, parse, process_state};

    #[test]
    fn a_name_may_look_like_fields() {
        let stat = "12 (a) T (b) R 1 12 12 0 -1 4194560 100 0 0 0 7 5 0 0 20 0 1 0 99";
        assert_eq!(parse(stat), Some(ProcessState { is_stopped: false, ticks: 12 }));
        let stopped = stat.replace(") R", ") T");
        assert_eq!(parse(&stopped).map(|state| state.is_stopped), Some(true));
        assert_eq!(parse("12 (a) R 1"), None);
    }

    #[test]
    fn this_process_runs_and_number_0_is_nobody() {
        assert_eq!(process_state(std::process::id()).map(|state| state.is_stopped), Some(false));
        assert_eq!(process_state(0), None);
    }
}
