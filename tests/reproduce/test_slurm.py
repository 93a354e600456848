"""Slurm array jobs."""

import os
import subprocess
import sys

from imix.reproduce.results import read_results
from imix.reproduce.slurm import write_array_job


def test_slurm_script_has_a_task_per_training(tmp_path):
    path = write_array_job(tmp_path, "table1", 120, 3.2, "imix reproduce table1 --budget paper --out 'my runs'")
    subprocess.run(["bash", "-n", str(path)], check=True)
    text = path.read_text()
    assert "--array=0-119" in text and "--time=7:00:00" in text and "--gres=gpu:1" in text
    assert "imix reproduce table1 --budget paper --out 'my runs' --shard \"$SLURM_ARRAY_TASK_ID/120\"" in text


def test_a_slurm_task_runs_its_shard_and_is_requeued_when_stopped(tmp_path):
    """Uses fake srun and scontrol commands; a task that exits with code 75 is requeued."""
    out = tmp_path / "out"
    environment = os.environ | {"PATH": f"{tmp_path}:{os.path.dirname(sys.executable)}:{os.environ['PATH']}"}
    arguments = ["reproduce", "table1", "--budget", "smoke", "--row", "CIFAR-10", "--column", "BYOL", "N-pair"]
    subprocess.run(["imix", *arguments, "--slurm", "--out", str(out)], check=True, env=environment, capture_output=True)
    for name, body in (("srun", 'exec "$@"'), ("scontrol", f"echo $@ >> {tmp_path}/queue")):
        (tmp_path / name).write_text(f"#!/bin/sh\n{body}\n")
        (tmp_path / name).chmod(0o755)
    task = environment | {"SLURM_ARRAY_TASK_ID": "1", "SLURM_ARRAY_JOB_ID": "9"}
    subprocess.run(["bash", str(out / "table1.sbatch")], check=True, env=task, capture_output=True)
    assert [row.column for row in read_results(out / "table1.csv")] == ["BYOL"]
    assert not (tmp_path / "queue").exists()
    (tmp_path / "srun").write_text("#!/bin/sh\nexit 75\n")
    assert subprocess.run(["bash", str(out / "table1.sbatch")], env=task).returncode == 75
    assert (tmp_path / "queue").read_text() == "requeue 9_1\n"
