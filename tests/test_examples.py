"""Every example runs as it stands, prints a result, and leaves nothing behind."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[1] / "examples"
SCRIPTS = sorted(path.name for path in EXAMPLES.glob("*.py"))

# Lines that begin so, the greater number first: only where the difference is far beyond what rounding or luck can turn.
AHEAD = {
    "few_labels.py": [("N-pair + i-Mix, no augmentation", "N-pair, no augmentation")],
    "own_encoder.py": [("features after", "features before"), ("features before", "series")],
    "plain_loop.py": [("N-pair + i-Mix", "N-pair")],
    "transformer_in_a_pipeline.py": [("i-Mix, linear", "columns, linear"), ("columns, trees", "columns, linear")],
}


def number_after(label: str, printed: str) -> float:
    """The first number after a label that begins a line and is followed by space."""
    found = re.search(rf"^{re.escape(label)}\s+(-?\d+(?:\.\d+)?)", printed, re.MULTILINE)
    assert found is not None, f"no line {label!r} in:\n{printed}"
    return float(found[1])


@pytest.mark.slow
@pytest.mark.parametrize("name", SCRIPTS)
def test_runs_prints_a_number_and_leaves_nothing_behind(name, tmp_path):
    if name == "lightning_module.py":
        pytest.importorskip("lightning")
    before = sorted(path.name for path in EXAMPLES.iterdir())
    # Its working folder, its home and where its temporary folders go are one place, which must be empty afterwards but
    # for the compiler's cache, a folder that torch makes as soon as there is an optimizer.
    places = {"TMPDIR": tmp_path, "HOME": tmp_path, "TORCHINDUCTOR_CACHE_DIR": tmp_path / "torch"}
    env = os.environ | {"OMP_NUM_THREADS": "1"} | {variable: str(place) for variable, place in places.items()}
    ran = subprocess.run(
        [sys.executable, EXAMPLES / name], cwd=tmp_path, env=env, timeout=240, capture_output=True, text=True
    )
    assert ran.returncode == 0, ran.stderr
    assert re.search(r"\d\.\d", ran.stdout), "it prints no number"
    assert sorted(path.name for path in EXAMPLES.iterdir()) == before
    assert {path.name for path in tmp_path.iterdir()} <= {"torch"}
    for greater, smaller in AHEAD.get(name, []):
        assert number_after(greater, ran.stdout) > number_after(smaller, ran.stdout), ran.stdout
    if name == "own_encoder.py":
        assert number_after("loaded differs by", ran.stdout) == 0


def test_the_list_of_examples_is_whole():
    told = (EXAMPLES / "README.md").read_text(encoding="utf-8")
    assert SCRIPTS
    assert [name for name in SCRIPTS if f"python examples/{name}" not in told] == []
