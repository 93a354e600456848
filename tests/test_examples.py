"""Every example runs without changes, prints a result and leaves no files behind."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[1] / "examples"
SCRIPTS = sorted(path.name for path in EXAMPLES.glob("*.py"))
REQUIRED_PACKAGES = {"lightning_module.py": "lightning", "log_to_mlflow.py": "mlflow"}
# Pairs of line labels: the number after the first label must be greater than the number after the second. Only
# differences that are far larger than what rounding or another seed can change are listed.
EXPECTED_ORDER = {
    "few_labels.py": [("N-pair + i-Mix, no augmentation", "N-pair, no augmentation")],
    "custom_encoder.py": [("features after", "features before"), ("features before", "series")],
    "plain_loop.py": [("N-pair + i-Mix", "N-pair")],
    "sklearn_pipeline.py": [("i-Mix, linear", "columns, linear"), ("columns, trees", "columns, linear")],
}


def number_after(label: str, output: str) -> float:
    """Return the number that follows a label at the start of a line."""
    match = re.search(rf"^{re.escape(label)}\s+(-?\d+(?:\.\d+)?)", output, re.MULTILINE)
    assert match is not None, f"no line starts with {label!r} and a number:\n{output}"
    return float(match[1])


@pytest.mark.slow
@pytest.mark.parametrize("name", SCRIPTS)
def test_an_example_runs_prints_a_number_and_leaves_no_files_behind(name, tmp_path):
    if name in REQUIRED_PACKAGES:
        pytest.importorskip(REQUIRED_PACKAGES[name])
    before = sorted(path.name for path in EXAMPLES.iterdir())
    # The working folder, the home folder and the temporary folder are the same. It must be empty afterwards, except for
    # the compiler's cache, a folder that torch creates together with the first optimizer.
    folders = {"TMPDIR": tmp_path, "HOME": tmp_path, "TORCHINDUCTOR_CACHE_DIR": tmp_path / "torch"}
    folders |= {"MPLCONFIGDIR": tmp_path / "torch"}  # matplotlib, which Lightning imports if it is installed
    environment = os.environ | {"OMP_NUM_THREADS": "1"} | {name: str(folder) for name, folder in folders.items()}
    result = subprocess.run(
        [sys.executable, EXAMPLES / name], cwd=tmp_path, env=environment, timeout=240, capture_output=True, text=True
    )
    assert result.returncode == 0, result.stderr
    assert re.search(r"\d\.\d", result.stdout), "the example prints no number"
    assert sorted(path.name for path in EXAMPLES.iterdir()) == before
    assert {path.name for path in tmp_path.iterdir()} <= {"torch"}
    for greater, smaller in EXPECTED_ORDER.get(name, []):
        assert number_after(greater, result.stdout) > number_after(smaller, result.stdout), result.stdout
    if name == "custom_encoder.py":
        assert number_after("loaded differs by", result.stdout) == 0


def test_the_readme_of_the_examples_lists_every_script():
    readme = (EXAMPLES / "README.md").read_text(encoding="utf-8")
    assert SCRIPTS
    assert [name for name in SCRIPTS if f"python examples/{name}" not in readme] == []
    assert EXPECTED_ORDER.keys() <= set(SCRIPTS)
