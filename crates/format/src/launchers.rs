//! The environment variables with which launchers of parallel programs report ranks, jobs and
//! nodes.

use crate::settings::Setting;

/// A launcher: the variables with the rank and the number of ranks.
#[derive(Clone, Copy, Debug)]
pub struct Launcher {
    /// The rank, from 0.
    pub rank: &'static str,
    /// The number of ranks; empty if the launcher has no variable for it.
    pub of: &'static str,
}

const fn launcher(rank: &'static str, of: &'static str) -> Launcher {
    Launcher { rank, of }
}

/// In order of precedence: a launcher's own daemons may have been started by one further down,
/// whose variables its processes inherit. The first entry is for launchers that are not listed.
pub const LAUNCHERS: [Launcher; 10] = [
    launcher(Setting::Rank.variable(), Setting::Ranks.variable()),
    launcher("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    launcher("MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE"),
    launcher("PMI_RANK", "PMI_SIZE"),
    launcher("PMIX_RANK", ""),
    launcher("PALS_RANKID", ""),
    launcher("ALPS_APP_PE", ""),
    launcher("JSM_NAMESPACE_RANK", "JSM_NAMESPACE_SIZE"),
    launcher(FLUX_RANK, "FLUX_JOB_SIZE"),
    launcher("SLURM_PROCID", "SLURM_STEP_NUM_TASKS"),
];
/// The index of Slurm in [`LAUNCHERS`]. Slurm sets a rank for batch scripts, too.
pub const SLURM: usize = LAUNCHERS.len() - 1;

/// Variables with the job's name, in order of precedence. The last one is set by `mpirun` without a
/// batch system, which names each run.
pub const JOBS: [&str; 6] =
    [Setting::Job.variable(), FLUX_JOB, "SLURM_JOB_ID", "PBS_JOBID", "LSB_JOBID", PMIX_JOB];
/// The index of Slurm in [`JOBS`].
pub const SLURM_JOB: usize = 2;

/// The rank of a task of Flux.
pub const FLUX_RANK: &str = "FLUX_TASK_RANK";
/// The job of Flux, which is one launch.
pub const FLUX_JOB: &str = "FLUX_JOB_ID";
/// The name of one launch of `mpirun`.
pub const PMIX_JOB: &str = "PMIX_NAMESPACE";
/// The step of a job of Slurm, which is one launch.
pub const SLURM_STEP: &str = "SLURM_STEP_ID";
/// Slurm uses numbers from here on for steps without parallel tasks: batch scripts, shells.
pub const SLURM_NO_STEP: u32 = 0xffff_fff0;
/// Slurm's name of the node.
pub const SLURM_NODE: &str = "SLURMD_NODENAME";
