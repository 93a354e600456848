"""Notebooks: those in examples/ are valid and run, and a kernel shows progress, tables and interrupted runs."""

import ast
import importlib
import os
import re
import time
from pathlib import Path

import nbformat
import pytest
from jupyter_client.manager import start_new_kernel
from nbclient import NotebookClient
from nbformat.v4 import new_code_cell, new_notebook

import imix
from imix import files

EXAMPLES = Path(__file__).parents[1] / "examples"
NOTEBOOKS = sorted(path.name for path in EXAMPLES.glob("*.ipynb"))
DEMONSTRATED = {"tables.ipynb", "images.ipynb", "audio.ipynb", "sensor_windows.ipynb"}
SMALL = "import imix, torch; options = {'encoder': 'mlp:16-16', 'device': 'cpu', 'batch_size': 64}"


def code(name):
    """Return the code of a notebook as a syntax tree."""
    cells = nbformat.read(EXAMPLES / name, as_version=4).cells
    return ast.parse("\n".join(cell.source for cell in cells if cell.cell_type == "code"))


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """An empty folder for the kernel and its files."""
    for name in ("IPYTHONDIR", "JUPYTER_RUNTIME_DIR", "JUPYTER_CONFIG_DIR", "TMPDIR", "MPLCONFIGDIR"):
        (tmp_path / name).mkdir()
        monkeypatch.setenv(name, str(tmp_path / name))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(Path(imix.__file__).parents[1])]))
    (tmp_path / "work").mkdir()
    return tmp_path / "work"


def client(notebook, folder):
    return NotebookClient(notebook, timeout=280, resources={"metadata": {"path": str(folder)}})


def run_cells(folder, *sources):
    """Run code cells in a new kernel; returns the outputs of each."""
    notebook = new_notebook(cells=[new_code_cell(source) for source in sources])
    client(notebook, folder).execute()
    return [cell.outputs for cell in notebook.cells]


def test_there_is_a_notebook_for_every_kind_of_data():
    assert set(NOTEBOOKS) == DEMONSTRATED
    readme = (EXAMPLES / "README.md").read_text(encoding="utf-8")
    assert [name for name in NOTEBOOKS if f"]({name})" not in readme] == []


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_a_notebook_is_valid_and_stored_without_outputs(name):
    notebook = nbformat.read(EXAMPLES / name, as_version=4)
    nbformat.validate(notebook)
    assert [cell.id for cell in notebook.cells if cell.get("outputs") or cell.get("execution_count")] == []
    assert notebook.cells[0].source.startswith("# ") and len(notebook.cells) > 8
    for text in (cell.source for cell in notebook.cells if cell.cell_type == "markdown"):
        for link in re.findall(r"\]\((?!http)([^)#]+)\)", text):
            assert (EXAMPLES / link).exists(), link


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_the_names_that_a_notebook_uses_exist(name):
    for node in ast.walk(code(name)):
        if isinstance(node, ast.Import):
            for alias in node.names:
                importlib.import_module(alias.name)
        elif isinstance(node, ast.ImportFrom):
            module = importlib.import_module(node.module)
            assert [alias.name for alias in node.names if not hasattr(module, alias.name)] == []
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "imix":
            assert hasattr(imix, node.attr), node.attr


@pytest.mark.full
@pytest.mark.subprocess
@pytest.mark.parametrize("name", NOTEBOOKS)
def test_a_notebook_runs(name, folder):
    notebook = nbformat.read(EXAMPLES / name, as_version=4)
    client(notebook, folder).execute()  # raises if a cell raises
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    assert any("<progress" in output.get("data", {}).get("text/html", "") for output in outputs)
    assert any("<table>" in output.get("data", {}).get("text/html", "") for output in outputs)
    assert name == "sensor_windows.ipynb" or any("image/svg+xml" in output.get("data", {}) for output in outputs)
    assert list(folder.iterdir()) == [], "files belong in the temporary folder"


@pytest.mark.slow
@pytest.mark.subprocess
def test_a_kernel_shows_one_bar_tables_and_text(folder):
    _, training, shown, text = run_cells(
        folder,
        SMALL,
        "run = imix.pretrain('digits', epochs=40, **options)",
        "run",
        "result = imix.evaluate(run, 'digits', 'knn'); result",
    )
    (bar,) = (output for output in training if output.output_type == "display_data")
    assert '<progress value="800" max="800"></progress> epoch 40/40' in bar.data["text/html"]
    assert "".join(output.get("text", "") for output in training).count("\n") == 1, "the line about the run"
    assert "<table>" in shown[0].data["text/html"]
    assert text[0].data["text/plain"].startswith("knn on digits: "), "IPython in a terminal shows the text"


@pytest.mark.slow
@pytest.mark.subprocess
def test_an_interrupted_notebook_leaves_a_run_that_is_resumed(folder):
    kernel, cells = start_new_kernel(cwd=str(folder))
    try:
        cells.execute(f"{SMALL}\nimix.pretrain('digits', epochs=100_000, out='run', **options)")
        deadline = time.monotonic() + 120
        while len(files.read_jsonl(folder / "run" / "metrics.jsonl")) < 3:
            assert time.monotonic() < deadline, "the run wrote no metrics"
            time.sleep(0.05)
        kernel.interrupt_kernel()  # the stop button
        while (message := cells.get_iopub_msg(timeout=60))["msg_type"] != "error":
            pass
    finally:
        cells.stop_channels()
        kernel.shutdown_kernel(now=True)
    assert message["content"]["ename"] == "Interrupted"
    stopped_at = int(re.search(r"stopped at step (\d+) of", message["content"]["evalue"])[1])
    assert imix.load_run(folder / "run").progress.endswith(f"step {stopped_at} of 2000000")

    def stop(state):
        raise KeyboardInterrupt(state.step)

    options = {"encoder": "mlp:16-16", "device": "cpu", "batch_size": 64, "progress": False}
    with pytest.raises(KeyboardInterrupt) as error:
        imix.pretrain("digits", epochs=100_000, out=folder / "run", resume=True, on_step=stop, **options)
    assert error.value.args == (stopped_at + 1,)
