//! Selects the process that a command shows, and checks that it has the required data.

use heaptide_analysis::model::{ImageRole, Measure, Mode, Process, Recording};
use heaptide_render::shared::subject::subject_says;

use crate::message::message;
use crate::outcome::Stop;

/// The most process ids in a message.
const LISTED_PIDS: usize = 20;

/// A recording that has at least one of the selected processes.
#[derive(Debug)]
pub struct Selected {
    /// The recording, with its other processes.
    pub recording: Recording,
    /// The selected process id; `None` for all.
    pub pid: Option<u32>,
}

impl Selected {
    /// Checks that the recording has the selected process; any, if none is selected.
    pub fn new(recording: Recording, pid: Option<u32>) -> Result<Selected, Stop> {
        match absence(&recording, pid) {
            Some(reason) => Err(Stop::Negative(reason)),
            None => Ok(Selected { recording, pid }),
        }
    }

    /// The images of selected processes, in the order of the recording; at least one.
    pub fn images(&self) -> impl Iterator<Item = &Process> {
        self.recording.processes.iter().filter(|process| is_selected(process, self.pid))
    }

    /// The subject of the recording, or the selected image with the largest value of a metric if a
    /// process is selected or filters left nothing of the subject. A message reports which one if
    /// there are others.
    pub fn largest(&self, metric: Measure) -> Result<&Process, Stop> {
        if let Some(process) = self.subject() {
            if let Some(says) = subject_says(&self.recording) {
                let one = match &self.recording.subject {
                    Some(subject) if subject.peaks.len() > 1 && process.identity.images == 1 => {
                        format!("pid {} of ", process.identity.pid)
                    }
                    _ => String::new(),
                };
                message(format_args!("showing {one}{says}; `--process PID` selects another"));
            }
            return Ok(process);
        }
        let all = self.images().count();
        let processes = &self.recording.processes;
        let largest = largest(processes, metric, |process| is_selected(process, self.pid));
        let Some(process) = largest.map(|index| &processes[index]) else {
            return Err(self.without("process images"));
        };
        if all > 1 {
            let (pid, image) = (process.identity.pid, process.identity.image);
            message(format_args!(
                "showing pid {pid} image {image}, the largest of {all} process images; \
                 `--process PID` selects another"
            ));
        }
        Ok(process)
    }

    /// The subject of the recording; `None` if a process is selected, or if filters left nothing of
    /// the subject.
    fn subject(&self) -> Option<&Process> {
        self.recording.subject_process().filter(|_| self.pid.is_none())
    }

    /// The first selected image, for output that contains all of them.
    pub fn first(&self) -> Result<&Process, Stop> {
        self.images().next().ok_or_else(|| self.without("process images"))
    }

    /// The subject by itself, or else the largest image, for a command that reads another recording
    /// after this one. If some images satisfy `preferred`, it is one of those. Second, the number
    /// of process images of the recording.
    pub fn into_largest(
        mut self,
        metric: Measure,
        preferred: impl Fn(&Process) -> bool,
    ) -> Result<(Process, usize), Stop> {
        let pid = self.pid;
        let any_preferred = self.images().any(&preferred);
        let processes = &mut self.recording.processes;
        let all = processes.len();
        let fits =
            |process: &Process| is_selected(process, pid) && (!any_preferred || preferred(process));
        let is_subject =
            |process: &Process| fits(process) && process.identity.role == ImageRole::Subject;
        if let Some(index) = largest(processes, metric, is_subject) {
            return Ok((processes.swap_remove(index), all));
        }
        match largest(processes, metric, fits) {
            Some(index) => Ok((processes.swap_remove(index), all)),
            None => Err(self.without("process images")),
        }
    }

    /// Checks that a process was recorded with stacks.
    pub fn require_stacks(&self, process: &Process) -> Result<(), Stop> {
        let path = self.recording.path.display();
        match process.mode {
            Mode::Stacks => Ok(()),
            Mode::Scopes => Err(Stop::negative(format_args!(
                "{path}: recorded with --mode scopes, so there are no stacks; \
                 see `heaptide report --by scope` and `heaptide tree --scopes`"
            ))),
            Mode::Counters => Err(Stop::negative(format_args!(
                "{path}: recorded with --mode counters, so there are no stacks; \
                 see `heaptide report --by thread` and `--by size`"
            ))),
        }
    }

    /// Checks that a process was recorded with scopes and labels.
    pub fn require_scopes(&self, process: &Process) -> Result<(), Stop> {
        if process.mode != Mode::Counters {
            return Ok(());
        }
        let path = self.recording.path.display();
        Err(Stop::negative(format_args!(
            "{path}: recorded with --mode counters, so there are no scopes and labels; \
             see `heaptide report --by thread` and `--by size`"
        )))
    }

    /// Checks that a process was recorded by call.
    pub fn require_calls(&self, process: &Process) -> Result<(), Stop> {
        if process.tables.sites.iter().any(|site| site.call.is_some()) {
            return Ok(());
        }
        let path = self.recording.path.display();
        Err(Stop::negative(format_args!(
            "{path}: recorded without the functions called; record with `heaptide run --by-call`"
        )))
    }

    /// Checks that a metric of a process is not 0, so that there is something `to` do: `draw`.
    pub fn require_value(&self, process: &Process, metric: Measure, to: &str) -> Result<(), Stop> {
        let metric = metric.of_sites();
        if metric.of(&process.totals) > 0 {
            return Ok(());
        }
        let (path, who, name) = (self.recording.path.display(), process.who(), metric.name());
        Err(Stop::negative(format_args!("{path}: {name} of {who} is 0: nothing to {to}")))
    }

    fn without(&self, what: &str) -> Stop {
        Stop::negative(format_args!("{}: no {what}", self.recording.path.display()))
    }
}

/// Returns the reason why a recording has no selected process; `None` if it has one.
pub fn absence(recording: &Recording, pid: Option<u32>) -> Option<String> {
    let path = recording.path.display();
    if recording.processes.is_empty() {
        return Some(format!("{path}: nothing was recorded; see `heaptide info`"));
    }
    let pid =
        pid.filter(|&pid| recording.processes.iter().all(|process| process.identity.pid != pid))?;
    let mut pids: Vec<u32> =
        recording.processes.iter().map(|process| process.identity.pid).collect();
    pids.sort_unstable();
    pids.dedup();
    let listed: Vec<String> = pids.iter().take(LISTED_PIDS).map(u32::to_string).collect();
    let more = if pids.len() > listed.len() { ", …" } else { "" };
    Some(format!("{path}: no process {pid}; available: {}{more}", listed.join(", ")))
}

fn is_selected(process: &Process, pid: Option<u32>) -> bool {
    pid.is_none_or(|pid| process.identity.pid == pid)
}

/// Returns the index of the largest process image that satisfies `fits`.
fn largest(
    processes: &[Process],
    metric: Measure,
    fits: impl Fn(&Process) -> bool,
) -> Option<usize> {
    // On a tie, the one with the higher peak, then the first: counters have no at_peak values.
    let key =
        |process: &Process| (metric.of_sites().of(&process.totals), process.totals.peak_bytes);
    let fitting = processes.iter().enumerate().filter(|(_, process)| fits(process));
    fitting.rev().max_by_key(|(_, process)| key(process)).map(|(index, _)| index)
}
