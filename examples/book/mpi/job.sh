#!/bin/bash
#SBATCH --job-name=heat --nodes=2 --ntasks=64 --time=10:00
# A job of Slurm whose ranks are recorded: `sbatch job.sh`.
srun heaptide run -q -o "heat-$SLURM_JOB_ID.heaptide" -- ./heat
