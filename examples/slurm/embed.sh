#!/bin/bash
# Embed images in one file: the jobs of an array share them, and each waits until the file is written. The array may have
# any number of jobs.
#   sbatch examples/slurm/embed.sh RUN IMAGES FILE
#SBATCH --job-name=embed
#SBATCH --array=1-8
#SBATCH --gres=gpu:1
#SBATCH --cpus-per-task=8
#SBATCH --time=04:00:00
#SBATCH --requeue
set -eu
srun --cpus-per-task "$SLURM_CPUS_PER_TASK" \
  contml embed "$1" "$2" --out "$3" --workers "$SLURM_CPUS_PER_TASK" --join
