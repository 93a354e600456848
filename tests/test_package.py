"""The built wheel contains everything and runs on its own, outside of the repository."""

import os
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

from imix import __version__

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[1]
PACKAGE_DATA = (
    *("py.typed", "reports/page.html", "reports/page.js", "reports/page.css"),
    *("reproduce/paper_numbers.csv", "reproduce/array_job.sh"),
)


def run(*command, **options):
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    environment["OMP_NUM_THREADS"] = "1"
    process = subprocess.run(
        [str(word) for word in command], env=environment, capture_output=True, text=True, timeout=280, **options
    )
    assert process.returncode == 0, process.stdout + process.stderr
    return process.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    folder = tmp_path_factory.mktemp("wheel")
    options = ["--no-deps", "--no-build-isolation", "--no-index", "--wheel-dir", folder]
    run(sys.executable, "-m", "pip", "wheel", *options, ROOT)
    (path,) = folder.glob("*.whl")
    return path


@pytest.fixture(scope="module")
def venv(wheel, tmp_path_factory):
    """A virtual environment with the wheel, which finds the dependencies where this Python has them."""
    folder = tmp_path_factory.mktemp("venv")
    run(sys.executable, "-m", "venv", "--without-pip", folder)
    python = folder / "bin" / "python"
    site_packages = Path(run(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))").strip())
    run(sys.executable, "-m", "pip", "--python", python, "install", "--no-deps", "--no-index", wheel)
    # A path file inside of a path file would be ignored, so the editable install of this repository is not seen.
    (site_packages / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return folder


def test_the_wheel_contains_its_data_files_and_no_tests(wheel):
    names = zipfile.ZipFile(wheel).namelist()
    assert wheel.name.startswith(f"imix_ssl-{__version__}-")
    assert {f"imix/{name}" for name in PACKAGE_DATA} <= set(names)
    assert {name.split("/")[0] for name in names} == {"imix", f"imix_ssl-{__version__}.dist-info"}


def test_the_installed_wheel_prints_its_version(venv, tmp_path):
    assert run(venv / "bin" / "imix", "--version", cwd=tmp_path).split()[-1] == __version__


def test_the_installed_wheel_runs_the_demo_outside_of_the_repository(venv, tmp_path):
    location = run(venv / "bin" / "python", "-c", "import imix; print(imix.__file__)", cwd=tmp_path).strip()
    assert Path(location).is_relative_to(venv)
    output = run(venv / "bin" / "imix", "demo", "--seeds", 1, "--epochs", 1, "--out", tmp_path / "demo", cwd=tmp_path)
    assert "N-pair + i-Mix" in output
    assert (tmp_path / "demo" / "report.html").exists()
