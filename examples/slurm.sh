#!/usr/bin/env bash
# Trains on several GPUs of a Slurm cluster, a rank for each, and goes on where it stopped when the time is up.
#
#     sbatch examples/slurm.sh recipes/demo.yaml runs/demo
#
# The run directory must be on a file system that all nodes see.
#
#SBATCH --job-name=adamod
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=8
#SBATCH --gpus-per-task=1
#SBATCH --cpus-per-task=8
#SBATCH --time=08:00:00
#SBATCH --requeue
# A signal to all ranks two minutes before the end: they save a checkpoint and stop.
#SBATCH --signal=TERM@120
#
# SPDX-License-Identifier: MIT
set -euo pipefail
recipe=${1:?usage: sbatch slurm.sh RECIPE DIR} out=${2:?usage: sbatch slurm.sh RECIPE DIR}

arguments=("$recipe" --out "$out" --device cuda)
if [ -e "$out/recipe.yaml" ]; then arguments=(--resume --out "$out" --device cuda); fi
# The kind of MPI that the cluster's library speaks: srun --mpi=list shows which there are.
status=0
srun --mpi="${ADAMOD_SLURM_MPI:-pmix}" --kill-on-bad-exit=1 adamod train "${arguments[@]}" || status=$?
# 143: it was asked to stop, and has more to do.
if [ "$status" -eq 143 ]; then scontrol requeue "$SLURM_JOB_ID"; fi
exit "$status"
