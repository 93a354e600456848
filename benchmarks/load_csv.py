"""Time and memory of reading a CSV file of the size of Higgs, 10.5 million rows of 28 numbers and a label.

    python benchmarks/load_csv.py --rows 10500000

The file (8 GB for that many rows) is written to a temporary folder first. Beside imix, pandas reads the same file and
brings its numbers to float32. Memory is the peak of what the process owns (anonymous pages, not mapped files).
"""

import argparse
import json
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

from clock import table

COLUMNS = 28
READ = {
    "imix": """
import imix.data
data = imix.data.load(path, imix.Reading(label="label"))
assert data.train.inputs.shape[1] == 28, data.table
""",
    "pandas": """
import pandas, numpy
frame = pandas.read_csv(path)
labels = frame.pop("label").to_numpy()
rows = frame.to_numpy(dtype=numpy.float32)
""",
}


def write(path: Path, rows: int, block: int = 250_000) -> None:
    """Numbers with 18 decimals, as in UCI's file."""
    import numpy as np

    rng = np.random.default_rng(0)
    with open(path, "w") as file:
        file.write(",".join(["label", *(f"f{column}" for column in range(COLUMNS))]) + "\n")
        for start in range(0, rows, block):
            count = min(block, rows - start)
            pieces = np.char.mod("%.18e", rng.normal(size=(2000, COLUMNS))).tolist()
            lines = [",".join(piece) for piece in pieces]
            chosen = rng.integers(0, len(lines), count).tolist()
            labels = rng.integers(0, 2, count).tolist()
            file.writelines(f"{label:.18e},{lines[line]}\n" for label, line in zip(labels, chosen, strict=True))


def measure(reader: str, path: Path) -> dict[str, object]:
    """Read in a process of its own."""
    code = f"path = {str(path)!r}\n{READ[reader]}"
    started = time.monotonic()
    process = subprocess.Popen([sys.executable, "-c", code])
    peak = 0

    def watch() -> None:
        nonlocal peak
        while process.poll() is None:
            try:
                status = Path(f"/proc/{process.pid}/status").read_text()
            except OSError:
                return
            owned = [line.split()[1] for line in status.splitlines() if line.startswith("RssAnon")]
            peak = max([peak, *map(int, owned)])
            time.sleep(0.05)

    thread = threading.Thread(target=watch)
    thread.start()
    code_left = process.wait()
    thread.join()
    if code_left:
        raise SystemExit(f"{reader} failed with {code_left}")
    return {"reader": reader, "seconds": round(time.monotonic() - started, 1), "GiB": round(peak / 2**20, 2)}


def main() -> None:
    """Write, read twice; a line of JSON for each reader, and a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=10_500_000)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "higgs.csv"
        write(path, given.rows)
        print(json.dumps({"rows": given.rows, "GB": round(path.stat().st_size / 1e9, 2)}), flush=True)
        lines = []
        for reader in READ:
            found = measure(reader, path)
            print(json.dumps(found), flush=True)
            lines.append([*found.values()])
        print(table([*found], lines))


if __name__ == "__main__":
    main()
