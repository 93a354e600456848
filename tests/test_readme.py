"""What README shows works as it is shown."""

import re
from pathlib import Path

import pytest
import torch
from sklearn.datasets import load_wine

README = (Path(__file__).parents[1] / "README.md").read_text(encoding="utf-8")


@pytest.mark.slow
def test_python_blocks_run_one_after_the_other(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    X, y = load_wine(return_X_y=True)
    names = {"X": X, "y": y}
    blocks = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    assert len(blocks) == 4
    for block in blocks:
        names |= {"x": torch.randn(8, 20), "q": torch.randn(8, 4), "k": torch.randn(8, 4)}
        exec(compile(block, "README.md", "exec"), names)
    assert names["features"].shape == (4096, 32)
    assert torch.isfinite(names["loss"])


def test_files_it_points_to_exist():
    for path in re.findall(r"\]\((?!http)([^)]+)\)", README):
        assert (Path(__file__).parents[1] / path).exists(), path
