//! `--probe`: measures the links of workers that join, and writes the results into the file of
//! `--prices`. Prices in that file are not measured again, so that later runs make the same plans.

use crate::outbox::Outbox;
use gt_dispatcher::{Dispatcher, Measured, Probe, WorkerIndex};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Instant;

/// First line of the file.
const HEAD: &str = "# Microseconds; measured by gt-dispatcher --probe. Lines that are taken out are measured again.";

pub(crate) struct Probing {
    probe: Probe,
    path: PathBuf,
    began: Instant,
}

impl Probing {
    pub fn new(path: PathBuf) -> Self {
        Self { probe: Probe::default(), path, began: Instant::now() }
    }

    /// Adds the unknown links between a new worker and the others.
    pub fn joined(
        &mut self,
        index: WorkerIndex,
        others: impl Iterator<Item = WorkerIndex>,
        core: &Dispatcher,
    ) {
        let links = &core.cost_model().links;
        for other in others.filter(|&other| other != index && !links.knows(other, index)) {
            self.probe.add(other.min(index), other.max(index));
        }
    }

    pub fn left(&mut self, index: WorkerIndex) {
        self.probe.left(index);
    }

    /// Returns true if it waits for a quiet moment.
    pub fn is_waiting(&self) -> bool {
        !self.probe.is_idle()
    }

    /// Continues if `quiet`: a lap starts only when no client is active. Returns true if it did
    /// anything.
    pub fn step(&mut self, quiet: bool, core: &mut Dispatcher, outbox: &mut Outbox) -> bool {
        if self.probe.is_idle() {
            return false;
        }
        let mut progress = false;
        if let Some(failed) = outbox.take_answer() {
            self.probe.answered(self.began.elapsed(), failed, core, outbox);
            progress = true;
        }
        if quiet {
            progress |= self.probe.step(self.began.elapsed(), core, outbox);
        }
        outbox.listen_to(self.probe.session());
        let measured = self.probe.take_measured();
        if !measured.is_empty() {
            self.keep(&measured, core);
        }
        progress
    }

    fn keep(&self, measured: &[Measured], core: &mut Dispatcher) {
        let mut cost_model = core.cost_model().clone();
        for pair in measured {
            cost_model.links.set(pair.from, pair.to, pair.link);
        }
        let path = self.path.display();
        match write(&self.path, &format!("{HEAD}\n{cost_model}")) {
            Ok(()) => tracing::info!("measured {} link(s), written to {path}", measured.len()),
            Err(error) => tracing::error!("cannot write the prices to {path}: {error}"),
        }
        core.set_cost_model(cost_model);
    }
}

/// Writes the file atomically, by a temporary file beside it.
fn write(path: &Path, text: &str) -> std::io::Result<()> {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{}", std::process::id()));
    let neighbour = path.with_file_name(name);
    let mut file = std::fs::File::create(&neighbour)?;
    let written = file
        .write_all(text.as_bytes())
        .and_then(|()| file.sync_all())
        .and_then(|()| std::fs::rename(&neighbour, path));
    if written.is_err() {
        // It may not exist.
        let _ = std::fs::remove_file(&neighbour);
    }
    written
}
