#!/bin/bash
#SBATCH --job-name=imix-{name}
#SBATCH --array=0-{last}
#SBATCH --gres=gpu:1
#SBATCH --cpus-per-task=8
#SBATCH --time={hours}:00:00
#SBATCH --requeue
#SBATCH --signal=TERM@120
#SBATCH --output={logs}/%A_%a.txt

# Slurm sends SIGTERM two minutes before the time limit. The task then writes its checkpoint and exits with code 75,
# and is requeued to continue from there. When all tasks are done, run the same command without --shard: it writes the
# page.
srun {command} --shard "$SLURM_ARRAY_TASK_ID/{tasks}"
code=$?
if [ "$code" -eq 75 ]; then scontrol requeue "${{SLURM_ARRAY_JOB_ID}}_${{SLURM_ARRAY_TASK_ID}}"; fi
exit "$code"
