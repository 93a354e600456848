"""README and docs: code blocks run, links are valid, generated pages are up to date, and the site builds.

Blocks fenced as `python` are executed; blocks that need data or hardware that tests do not have are fenced as `py`.
"""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from sklearn.datasets import load_wine

ROOT = Path(__file__).parents[1]
PAGES = sorted(path.relative_to(ROOT) for path in [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
BLOCK = re.compile(r"```python\n(.*?)```", re.DOTALL)
EXTERNAL_RESOURCE = re.compile(r'<(?:script|link|img|iframe)\b[^>]*?(?:src|href)="(https?:[^"]*)"')


def python_blocks(page):
    return BLOCK.findall((ROOT / page).read_text(encoding="utf-8"))


@pytest.mark.slow
@pytest.mark.parametrize("number", range(len(python_blocks("README.md"))))
def test_each_python_block_of_the_readme_runs_on_its_own(number, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    exec(compile(python_blocks("README.md")[number], "README.md", "exec"), {"__name__": "__main__"})


@pytest.mark.slow
@pytest.mark.parametrize("page", [page for page in PAGES if page.parts[0] == "docs" and python_blocks(page)], ids=str)
def test_python_blocks_of_a_page_run_one_after_another(page, tmp_path, monkeypatch):
    """The blocks of a page share their names; `frame`, `new_frame` and `y` are predefined."""
    monkeypatch.chdir(tmp_path)
    wine = load_wine(as_frame=True)
    frame = wine.data.assign(origin=["north", "south", None] * 59 + ["north"], churned=wine.target)
    names = {"__name__": "__main__", "frame": frame, "new_frame": frame.head(9), "y": wine.target}
    for block in python_blocks(page):
        exec(compile(block, str(page), "exec"), names)


def test_every_python_block_is_tested():
    assert python_blocks("README.md")
    untested = [page for page in PAGES if page.parts[0] != "docs" and page.name != "README.md" and python_blocks(page)]
    assert untested == []


@pytest.mark.parametrize("page", PAGES, ids=str)
def test_linked_files_exist(page):
    for path in re.findall(r"\]\((?!http)([^)#]+)\)", (ROOT / page).read_text(encoding="utf-8")):
        assert ((ROOT / page).parent / path).exists(), path


@pytest.mark.slow
def test_generated_pages_are_up_to_date():
    pytest.importorskip("griffe")
    command = [sys.executable, ROOT / "docs" / "generate.py", "--check"]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=240)
    assert result.returncode == 0, result.stdout + result.stderr


@pytest.mark.slow
def test_the_site_builds_without_warnings_and_loads_nothing_from_other_hosts(tmp_path):
    pytest.importorskip("mkdocs")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(tmp_path / "site")]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=240)
    assert result.returncode == 0, result.stdout + result.stderr
    pages = {path: path.read_text(encoding="utf-8") for path in (tmp_path / "site").rglob("*.html")}
    assert len(pages) > 30
    for path, text in pages.items():
        assert "arithmatex" not in text, f"{path} has an equation that was not rendered"
        assert not [url for url in EXTERNAL_RESOURCE.findall(text) if "canonical" not in url], path
