"""`imix reproduce --list`."""

import re

from imix.reproduce.listing import listing
from imix.reproduce.requests import select_requests
from tests.reproduce.helpers import NAMES


def test_listing_shows_cells_runs_cost_and_progress(tmp_path):
    text = listing(select_requests(["all"], "paper"), tmp_path, "paper")
    for name in NAMES:
        assert re.search(rf"^{name} ", text, re.MULTILINE)
    assert re.search(r"^table1 +24 +120 +[\d,.]+ +0/120", text, re.MULTILINE)
    assert "ResNet-18, 200 epochs" in listing(select_requests(["all"], "short"), tmp_path, "short")
    covtype = listing(select_requests(["all"], "short", rows=["covtype"], seeds=2), tmp_path, "short").splitlines()
    assert [line.split()[0] for line in covtype if "/" in line] == ["table1", "table3", "total"]
    assert re.search(r"^total +14 ", covtype[-1])
