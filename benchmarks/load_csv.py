"""Time and memory of reading CSV files into float32 rows with imix, against pandas.

    python benchmarks/load_csv.py

Three files of random numbers are written to a temporary folder: 1 GB with the columns of Higgs (28 numbers and a
label), one with 5,000 columns and one with 100,000. pandas reads the same file and converts its numbers to float32;
imix also infers the kinds of the columns and standardizes them. Each read runs in its own process; the readers take
turns. Times are those of the read without imports, the median of the repeats. Memory is the peak of the process's
anonymous pages, without mapped files.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import numpy as np
from timing import format_table

READERS = {
    "imix": """
import imix, polars, pyarrow.compute
from imix.data import load
start = time.monotonic()
data = load(path, imix.DataSettings(label="label"))
rows = data.train.inputs
""",
    "pandas": """
import pandas, numpy
start = time.monotonic()
frame = pandas.read_csv(path)
labels = frame.pop("label").to_numpy()
rows = frame.to_numpy(dtype=numpy.float32)
""",
}
FILES = {  # rows, columns, format of a number
    "1 GB, 28 columns": (1_400_000, 28, "%.18e"),
    "5,000 columns": (1_000, 5_000, "%.6f"),
    "100,000 columns": (100, 100_000, "%.6f"),
}


def write_csv(path: Path, rows: int, columns: int, number_format: str) -> None:
    """Write a label and random numbers; a part of the rows is repeated."""
    rng = np.random.default_rng(0)
    numbers = np.char.mod(number_format, rng.normal(size=(min(rows, 2000), columns))).tolist()
    lines = [",".join(row) for row in numbers]
    with open(path, "w") as file:
        file.write(",".join(["label", *(f"f{column}" for column in range(columns))]) + "\n")
        choices = zip(rng.integers(0, 2, rows).tolist(), rng.integers(0, len(lines), rows).tolist(), strict=True)
        file.writelines(f"{label},{lines[i]}\n" for label, i in choices)


def measure(reader: str, path: Path) -> tuple[float, float]:
    """Return the seconds and the peak memory in GiB of a reader, in a separate process."""
    code = f"import time\npath = {str(path)!r}\n{READERS[reader]}\nprint(time.monotonic() - start)"
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
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
    output, _ = process.communicate()
    thread.join()
    if process.returncode:
        raise SystemExit(f"{reader} failed with exit code {process.returncode}")
    return float(output), peak / 2**20


def main() -> None:
    """Write the files and read each with both readers in turn; print a line of JSON for each read, and a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--scale", type=float, default=1.0, help="factor for the number of rows")
    args = parser.parse_args()
    table = []
    with tempfile.TemporaryDirectory() as folder:
        for name, (rows, columns, number_format) in FILES.items():
            path = Path(folder) / "numbers.csv"
            write_csv(path, max(2, int(rows * args.scale)), columns, number_format)
            results: dict[str, list[tuple[float, float]]] = {reader: [] for reader in READERS}
            for _ in range(args.repeats):
                for reader in READERS:
                    seconds, memory = measure(reader, path)
                    results[reader].append((seconds, memory))
                    line = {
                        "file": name,
                        "MB": path.stat().st_size >> 20,
                        "reader": reader,
                        "seconds": round(seconds, 2),
                    }
                    print(json.dumps(line | {"GiB": round(memory, 2)}), flush=True)
            times = {reader: statistics.median(seconds for seconds, _ in results[reader]) for reader in READERS}
            for reader in READERS:
                memory = max(memory for _, memory in results[reader])
                ratio = times[reader] / times["pandas"]
                table.append([name, reader, f"{times[reader]:.2f}", f"{ratio:.2f}", f"{memory:.2f}"])
    print(format_table(["file", "reader", "seconds", "times pandas", "GiB"], table))


if __name__ == "__main__":
    main()
