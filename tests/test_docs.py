"""What README and the pages show works as it is shown, and the site is whole.

Blocks that need data which is not at hand are fenced as `py`; those that are fenced as `python` run.
"""

import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from sklearn.datasets import load_wine

ROOT = Path(__file__).parents[1]
PAGES = sorted(path.relative_to(ROOT) for path in [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
BLOCK = re.compile(r"```python\n(.*?)```", re.DOTALL)


def blocks(page):
    return BLOCK.findall((ROOT / page).read_text(encoding="utf-8"))


@pytest.mark.slow
@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page)], ids=str)
def test_python_blocks_run_one_after_the_other(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    wine = load_wine(as_frame=True)
    frame = wine.data.assign(origin=["north", "south", None] * 59 + ["north"], churned=wine.target)
    names = {"__name__": "__main__", "frame": frame, "new_frame": frame.head(9), "y": wine.target}
    for block in blocks(page):
        if page.name == "README.md":
            names |= {"x": torch.randn(8, 20), "q": torch.randn(8, 4), "k": torch.randn(8, 4)}
        exec(compile(block, str(page), "exec"), names)


@pytest.mark.parametrize("page", PAGES, ids=str)
def test_files_it_points_to_exist(page):
    for path in re.findall(r"\]\((?!http)([^)#]+)\)", (ROOT / page).read_text(encoding="utf-8")):
        assert ((ROOT / page).parent / path).exists(), path


@pytest.mark.slow
def test_the_site_builds_without_a_warning_and_asks_nothing_of_other_hosts(tmp_path):
    pytest.importorskip("mkdocs")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(tmp_path / "site")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stdout + done.stderr
    pages = {path: path.read_text(encoding="utf-8") for path in (tmp_path / "site").rglob("*.html")}
    assert len(pages) > 30
    for path, text in pages.items():
        assert "arithmatex" not in text, f"an equation of {path} was not drawn"
        fetched = re.findall(r'<(?:script|link|img|iframe)\b[^>]*?(?:src|href)="(https?:[^"]*)"', text)
        assert not [each for each in fetched if "canonical" not in each], path
