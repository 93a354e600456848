"""What README and the guides show works as it is shown."""

import re
from pathlib import Path

import pytest
import torch
from sklearn.datasets import load_wine

ROOT = Path(__file__).parents[1]


@pytest.mark.slow
@pytest.mark.parametrize(("page", "blocks"), [("README.md", 4), ("docs/tables.md", 2)])
def test_python_blocks_run_one_after_the_other(page, blocks, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    wine = load_wine(as_frame=True)
    frame = wine.data.assign(origin=["north", "south", None] * 59 + ["north"], churned=wine.target)
    names = {"frame": frame, "new_frame": frame.head(9), "y": wine.target}
    shown = re.findall(r"```python\n(.*?)```", (ROOT / page).read_text(encoding="utf-8"), re.DOTALL)
    assert len(shown) == blocks
    for block in shown:
        names |= {"x": torch.randn(8, 20), "q": torch.randn(8, 4), "k": torch.randn(8, 4)}
        exec(compile(block, page, "exec"), names)
    if page == "README.md":
        assert names["features"].shape == (4096, 32)
        assert torch.isfinite(names["loss"])


@pytest.mark.parametrize(
    "page", sorted(path.relative_to(ROOT) for path in [ROOT / "README.md", *ROOT.glob("docs/**/*.md")])
)
def test_files_it_points_to_exist(page):
    for path in re.findall(r"\]\((?!http)([^)#]+)\)", (ROOT / page).read_text(encoding="utf-8")):
        assert ((ROOT / page).parent / path).exists(), path
