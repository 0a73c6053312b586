#!/bin/bash
# A job of Slurm whose ranks are recorded: `sbatch job.sh`.
#SBATCH --job-name=heat --nodes=2 --ntasks=64 --time=10:00
srun heaptide run -q -o "heat-$SLURM_JOB_ID.heaptide" -- ./heat
