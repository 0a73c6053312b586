//! The launch that this command is part of: several commands started by one launcher, such as the
//! ranks of `mpirun` or the jobs of `xargs -P`, write one recording together.
//!
//! Members of a launch compute the same key. It is the name that the launcher gives (a step of
//! Slurm, a job of Flux, a namespace of PMIx, `HEAPTIDE_JOB`), or else the launcher's process.

use std::ffi::OsStr;
use std::path::Path;

use heaptide_analysis::recording::metadata;
use heaptide_format::launchers::{
    FLUX_JOB, FLUX_RANK, JOBS, LAUNCHERS, Launcher, PMIX_JOB, SLURM, SLURM_JOB, SLURM_NO_STEP,
    SLURM_NODE, SLURM_STEP,
};
use heaptide_format::settings::Setting;
use heaptide_supervise::environment::Environment;
use heaptide_supervise::process::{Process, ancestors};

/// Programs that start a command many times without setting variables for it.
const REPEATERS: [&str; 2] = ["xargs", "parallel"];
/// Shells that can be between such a program and the command.
const SHELLS: [&str; 6] = ["sh", "bash", "dash", "ash", "ksh", "zsh"];

/// Information about the launcher of this command.
pub struct Launch {
    /// The key of the launch, if this command is part of one.
    pub key: Option<String>,
    /// The rank of this command.
    pub rank: Option<u32>,
    /// The host name, as the launcher or the kernel reports it.
    pub host: String,
}

impl Launch {
    /// Determines the launch from the environment and the ancestors of this process.
    pub fn new(environment: &Environment) -> Launch {
        let ranked = ranked(environment);
        let key = named(environment, ranked).or_else(|| {
            let launcher = match ranked {
                Some((launcher, _)) => launcher_of_ranks(launcher, environment),
                None => repeater(ancestors()),
            };
            launcher.map(|process| format!("process {}.{}", process.pid, process.start_ticks))
        });
        Launch { key, rank: ranked.map(|(_, rank)| rank), host: host(environment) }
    }

    /// Returns what the recording stores about the launch; none outside of one.
    pub fn metadata(&self) -> Option<metadata::Launch> {
        let key = self.key.clone()?;
        Some(metadata::Launch { key, host: self.host.clone() })
    }
}

fn number(value: Option<&OsStr>) -> Option<u32> {
    value?.to_str().filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()))?.parse().ok()
}

fn text<'a>(environment: &'a Environment, name: &str) -> Option<std::borrow::Cow<'a, str>> {
    environment.get(name).filter(|value| !value.is_empty()).map(OsStr::to_string_lossy)
}

/// Returns the step of Slurm, if it has parallel tasks.
fn step(environment: &Environment) -> Option<u32> {
    number(environment.get(SLURM_STEP)).filter(|&step| step < SLURM_NO_STEP)
}

/// Returns the launcher that set a rank, and the rank. The recorder chooses the same.
fn ranked(environment: &Environment) -> Option<(&'static Launcher, u32)> {
    let counts = |at: usize| at != SLURM || step(environment).is_some();
    let launchers = LAUNCHERS.iter().enumerate().filter(|(at, _)| counts(*at));
    let rank = |launcher: &'static Launcher| number(environment.get(launcher.rank));
    launchers.filter_map(|(_, launcher)| Some((launcher, rank(launcher)?))).next()
}

/// Returns the name of the launch; none if the launcher only names a job, which can contain several
/// launches.
fn named(environment: &Environment, ranked: Option<(&Launcher, u32)>) -> Option<String> {
    if let Some(job) = text(environment, Setting::Job.variable()) {
        return Some(format!("job {job}"));
    }
    let (launcher, rank) = ranked?;
    if launcher.rank == FLUX_RANK {
        return text(environment, FLUX_JOB).map(|job| format!("flux {job}"));
    }
    if let Some(namespace) = text(environment, PMIX_JOB) {
        return Some(format!("pmix {namespace}"));
    }
    // A launcher's daemon can itself be a task of a step. Its ranks then differ from those of the
    // step.
    let slurm = &LAUNCHERS[SLURM];
    let is_task = number(environment.get(slurm.rank)) == Some(rank)
        && (launcher.of.is_empty() || environment.get(launcher.of) == environment.get(slurm.of));
    let step = step(environment).filter(|_| is_task)?;
    text(environment, JOBS[SLURM_JOB]).map(|job| format!("slurm {job}.{step}"))
}

/// Returns the process that started the rank: the nearest ancestor without this rank in its
/// environment. Shells and scripts between them have inherited it.
fn launcher_of_ranks(launcher: &Launcher, environment: &Environment) -> Option<Process> {
    let own = environment.get(launcher.rank)?;
    let has_it = |process: &Process| {
        let entries = process.environment().map(|entries| Environment::new(&entries));
        entries.is_some_and(|entries| entries.get(launcher.rank) == Some(own))
    };
    ancestors().find(|process| !has_it(process))
}

/// Returns the program that starts this command many times: the parent, or the parent of its
/// shells.
fn repeater(mut ancestors: impl Iterator<Item = Process>) -> Option<Process> {
    let is_shell = |process: &Process| SHELLS.contains(&&*process.name);
    let launcher = ancestors.find(|process| !is_shell(process))?;
    REPEATERS.contains(&&*launcher.name).then_some(launcher)
}

fn host(environment: &Environment) -> String {
    let node = text(environment, SLURM_NODE).map(|node| node.into_owned());
    let kernel = || nix::unistd::gethostname().map(|name| name.to_string_lossy().into_owned());
    let host = node.or_else(|| kernel().ok()).unwrap_or_default();
    // The name is used in file names.
    let name = Path::new(&host).file_name().map(|name| name.to_string_lossy().into_owned());
    name.unwrap_or_else(|| "localhost".to_owned())
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;

    use super::*;

    fn key(variables: &[&str]) -> Option<String> {
        let entries: Vec<OsString> = variables.iter().map(OsString::from).collect();
        let environment = Environment::new(&entries);
        named(&environment, ranked(&environment))
    }

    #[test]
    fn launchers_that_name_a_launch() {
        let step = ["SLURM_JOB_ID=7", "SLURM_STEP_ID=2", "SLURM_STEP_NUM_TASKS=4"];
        let with = |more: &[&'static str]| key(&[&step[..], more].concat());
        assert_eq!(with(&["SLURM_PROCID=3"]).as_deref(), Some("slurm 7.2"));
        let pmi = ["SLURM_PROCID=3", "PMI_RANK=3", "PMI_SIZE=4"];
        assert_eq!(with(&pmi).as_deref(), Some("slurm 7.2"));
        // A daemon of MPICH that is task 0 of a step, and its rank 0 of 8.
        assert_eq!(with(&["SLURM_PROCID=0", "PMI_RANK=0", "PMI_SIZE=8"]), None);
        assert_eq!(key(&["SLURM_JOB_ID=7", "SLURM_PROCID=0"]), None);
        assert_eq!(key(&["PMI_RANK=0", "PBS_JOBID=9"]), None);
        let pmix = ["PMIX_NAMESPACE=prterun-a-5@1", "OMPI_COMM_WORLD_RANK=0"];
        assert_eq!(key(&pmix).as_deref(), Some("pmix prterun-a-5@1"));
        assert_eq!(key(&["PMIX_NAMESPACE=x"]), None);
        assert_eq!(key(&["FLUX_TASK_RANK=1", "FLUX_JOB_ID=f1"]).as_deref(), Some("flux f1"));
        assert_eq!(key(&["HEAPTIDE_JOB=mine"]).as_deref(), Some("job mine"));
    }

    #[test]
    fn a_repeater_is_found_behind_shells() {
        let process =
            |name: &str| Process { pid: 7, name: name.to_owned(), parent: 1, start_ticks: 1 };
        let found = |names: &[&str]| {
            let ancestors: Vec<Process> = names.iter().map(|name| process(name)).collect();
            repeater(ancestors.into_iter()).map(|process| process.name)
        };
        assert_eq!(found(&["xargs", "bash"]).as_deref(), Some("xargs"));
        assert_eq!(found(&["sh", "dash", "parallel"]).as_deref(), Some("parallel"));
        assert_eq!(found(&["make", "xargs"]), None);
        assert_eq!(found(&["bash", "sshd"]), None);
    }
}
