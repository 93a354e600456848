"""Time and memory of reading a CSV file with imix, against pandas.

    python benchmarks/load_csv.py --rows 10500000

The default file has the size of Higgs: 10.5 million rows of 28 numbers and a label, 8 GB, written to a temporary
folder. pandas reads the same file and converts its numbers to float32. Memory is the peak of the process's anonymous
pages, without mapped files.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

from timing import format_table

COLUMNS = 28
READERS = {
    "imix": """
import imix.data
data = imix.data.load(path, imix.DataSettings(label="label"))
assert data.train.inputs.shape[1] == 28, data.table
""",
    "pandas": """
import pandas, numpy
frame = pandas.read_csv(path)
labels = frame.pop("label").to_numpy()
rows = frame.to_numpy(dtype=numpy.float32)
""",
}


def write_csv(path: Path, rows: int, block: int = 250_000) -> None:
    """Write random numbers with 18 decimals, as in UCI's file."""
    import numpy as np

    rng = np.random.default_rng(0)
    with open(path, "w") as file:
        file.write(",".join(["label", *(f"f{column}" for column in range(COLUMNS))]) + "\n")
        for start in range(0, rows, block):
            count = min(block, rows - start)
            numbers = np.char.mod("%.18e", rng.normal(size=(2000, COLUMNS))).tolist()
            lines = [",".join(row) for row in numbers]
            indices = rng.integers(0, len(lines), count).tolist()
            labels = rng.integers(0, 2, count).tolist()
            file.writelines(f"{label:.18e},{lines[i]}\n" for label, i in zip(labels, indices, strict=True))


def measure(reader: str, path: Path) -> dict[str, object]:
    """Return the time and peak memory of a reader, in a separate process."""
    code = f"path = {str(path)!r}\n{READERS[reader]}"
    start = time.monotonic()
    process = subprocess.Popen([sys.executable, "-c", code])
    peak = 0

    def watch_memory() -> None:
        nonlocal peak
        while process.poll() is None:
            try:
                status = Path(f"/proc/{process.pid}/status").read_text()
            except OSError:
                return
            anonymous = [line.split()[1] for line in status.splitlines() if line.startswith("RssAnon")]
            peak = max([peak, *map(int, anonymous)])
            time.sleep(0.05)

    thread = threading.Thread(target=watch_memory)
    thread.start()
    exit_code = process.wait()
    thread.join()
    if exit_code:
        raise SystemExit(f"{reader} failed with exit code {exit_code}")
    return {"reader": reader, "seconds": round(time.monotonic() - start, 1), "GiB": round(peak / 2**20, 2)}


def main() -> None:
    """Write the file and read it with both; print a line of JSON for each reader, and a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=10_500_000)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "higgs.csv"
        write_csv(path, args.rows)
        print(json.dumps({"rows": args.rows, "GB": round(path.stat().st_size / 1e9, 2)}), flush=True)
        rows = []
        for reader in READERS:
            measured = measure(reader, path)
            print(json.dumps(measured), flush=True)
            rows.append([*measured.values()])
        print(format_table([*measured], rows))


if __name__ == "__main__":
    main()
