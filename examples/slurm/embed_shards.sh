#!/bin/bash
# Embed shards of images in a file each: a job of an array does every N-th shard, and ends when it has finished them.
# The numbers of the jobs begin with 1.
#   sbatch examples/slurm/embed_shards.sh RUN SHARDS FOLDER
# To repeat job 3 of 8 alone, give the number of jobs too:
#   sbatch --array=3 examples/slurm/embed_shards.sh RUN SHARDS FOLDER 8
#SBATCH --job-name=embed
#SBATCH --array=1-8
#SBATCH --gres=gpu:1
#SBATCH --cpus-per-task=8
#SBATCH --time=04:00:00
#SBATCH --requeue
set -eu
run=${1:?usage: sbatch embed_shards.sh RUN SHARDS FOLDER [JOBS]} shards=${2:?no SHARDS} folder=${3:?no FOLDER}
srun --cpus-per-task "$SLURM_CPUS_PER_TASK" \
  contml embed "$run" "$shards" --out "$folder" --workers "$SLURM_CPUS_PER_TASK" \
  --shard "$SLURM_ARRAY_TASK_ID/${4:-$SLURM_ARRAY_TASK_COUNT}"
