"""Jobs in several processes."""

import pickle
import signal
import subprocess
import sys
import time

from imix.errors import Interrupted
from imix.reproduce.results import read_results


def test_sigterm_stops_all_processes_and_the_same_command_continues(tmp_path):
    script = "import sys\nfrom imix.cli import main\nif __name__ == '__main__':\n    sys.argv[0] = 'imix'\n    main()\n"
    (tmp_path / "main.py").write_text(script)
    command = [sys.executable, str(tmp_path / "main.py"), "reproduce", "table1", "--budget", "smoke"]
    command += ["--row", "CIFAR-10", "CIFAR-100", "--devices", "cpu", "cpu", "--out", str(tmp_path / "out")]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 60
    while not (tmp_path / "out/table1.csv").exists() and time.monotonic() < deadline:
        time.sleep(0.1)
    process.send_signal(signal.SIGTERM)
    _, stderr = process.communicate(timeout=60)
    assert process.returncode == 75, stderr
    assert "the same command" in stderr
    n_done = len(read_results(tmp_path / "out/table1.csv"))
    assert 1 <= n_done < 12
    subprocess.run(command, check=True, capture_output=True, timeout=120)
    assert len(read_results(tmp_path / "out/table1.csv")) == 12


def test_interrupted_can_be_pickled():
    assert str(pickle.loads(pickle.dumps(Interrupted("stopped")))) == "stopped"
