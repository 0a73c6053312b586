//! The process's place in a parallel job, from the variables that launchers set.

use crate::sys::text::{Text, number};
use heaptide_format::launchers::{
    JOBS, LAUNCHERS, SLURM, SLURM_JOB, SLURM_NO_STEP, SLURM_NODE, SLURM_STEP,
};

/// Maximum length of the name of a job or host.
const NAME_MAX: usize = 256;

/// The values of these variables.
pub struct Place {
    told: [(Option<u32>, Option<u32>); LAUNCHERS.len()],
    jobs: [Text<NAME_MAX>; JOBS.len()],
    step: Option<u32>,
    node: Text<NAME_MAX>,
}

impl Place {
    pub fn new() -> Place {
        Place {
            told: [(None, None); LAUNCHERS.len()],
            jobs: [const { Text::new() }; JOBS.len()],
            step: None,
            node: Text::new(),
        }
    }

    /// Stores a variable, if it is one of these.
    pub fn note(&mut self, name: &[u8], value: &[u8]) {
        let count = || number(value).and_then(|n| u32::try_from(n).ok()).filter(|_| value != b"");
        for (launcher, told) in LAUNCHERS.iter().zip(&mut self.told) {
            match name {
                name if name == launcher.rank.as_bytes() => told.0 = count(),
                name if name == launcher.of.as_bytes() => told.1 = count(),
                _ => {}
            }
        }
        for (job, text) in JOBS.iter().zip(&mut self.jobs) {
            if name == job.as_bytes() && text.is_empty() {
                text.push(value);
            }
        }
        if name == SLURM_STEP.as_bytes() {
            self.step = count().filter(|&step| step < SLURM_NO_STEP);
        } else if name == SLURM_NODE.as_bytes() && self.node.is_empty() {
            self.node.push(value);
        }
    }

    /// Returns the rank, and the number of ranks or 0; none outside of a job. Slurm also sets a
    /// rank for batch scripts, which do not count.
    pub fn rank(&self) -> Option<(u32, u32)> {
        let counts = |at: usize| at != SLURM || self.step.is_some();
        let mut told = self.told.iter().enumerate().filter(|(at, _)| counts(*at));
        let rank = told.clone().find_map(|(_, told)| told.0)?;
        // PMIx does not set the number; the launcher that sets the same rank does.
        let of = told.find_map(|(_, told)| told.1.filter(|_| told.0 == Some(rank)));
        Some((rank, of.unwrap_or(0)))
    }

    /// Returns the job's name, with the step if Slurm alone set the rank. Other launchers start
    /// only some of their processes by a step.
    pub fn job(&self) -> Text<NAME_MAX> {
        let mut name = Text::new();
        let Some(at) = self.jobs.iter().position(|job| !job.is_empty()) else {
            return name;
        };
        name.push(self.jobs[at].bytes());
        let others = &self.told[..SLURM];
        if let Some(step) = self.step.filter(|_| at == SLURM_JOB)
            && others.iter().all(|told| told.0.is_none())
        {
            name.push(b".");
            name.push_number(step.into());
        }
        name
    }

    /// Returns Slurm's name of the node; empty elsewhere.
    pub fn node(&self) -> &[u8] {
        self.node.bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(variables: &[(&[u8], &[u8])]) -> Place {
        let mut place = Place::new();
        variables.iter().for_each(|(name, value)| place.note(name, value));
        place
    }

    #[test]
    fn the_first_launcher_that_gives_a_rank_counts() {
        let both =
            place(&[(b"PMI_RANK", b"3"), (b"PMI_SIZE", b"8"), (b"OMPI_COMM_WORLD_RANK", b"1")]);
        assert_eq!(both.rank(), Some((1, 0)));
        let pmix =
            place(&[(b"PMIX_RANK", b"3"), (b"SLURM_STEP_ID", b"0"), (b"SLURM_PROCID", b"3")]);
        assert_eq!(pmix.rank(), Some((3, 0)));
        assert_eq!(place(&[(b"PMI_RANK", b"")]).rank(), None);
        assert_eq!(place(&[(b"PMI_RANK", b"-1")]).rank(), None);
    }

    #[test]
    fn a_batch_script_of_slurm_has_no_rank() {
        let task: [(&[u8], &[u8]); 4] = [
            (b"SLURM_JOB_ID", b"77"),
            (b"SLURM_PROCID", b"0"),
            (b"SLURM_STEP_NUM_TASKS", b"4"),
            (b"SLURM_STEP_ID", b"2"),
        ];
        assert_eq!(place(&task).rank(), Some((0, 4)));
        assert_eq!(place(&task).job().bytes(), b"77.2");
        let script = [&task[..3], &[(b"SLURM_STEP_ID", b"4294967291")]].concat();
        assert_eq!(place(&script).rank(), None);
        assert_eq!(place(&script).job().bytes(), b"77");
    }
}
