"""The demo and its page, in short; the whole of it is `make demo`."""

import re

import numpy as np
import pytest
from plotly.offline import get_plotlyjs

from imix.demo import demo


@pytest.mark.slow
def test_i_mix_is_clearly_ahead_on_digits_without_augmentation(tmp_path, capsys):
    plain, mixed, untrained, pixels = demo(tmp_path / "demo", seeds=2, epochs=3)
    means = [np.mean([result.accuracy for result in arm.results["linear"]]) for arm in (plain, mixed)]
    assert means[1] > means[0] + 0.02
    said = capsys.readouterr().out
    assert f"{100 * means[0]:.1f} ±" in said and f"{100 * means[1]:.1f} ±" in said
    page = (tmp_path / "demo" / "report.html").read_text()
    for arm in (plain, mixed, untrained, pixels):
        assert f">{arm.shown('linear')}</td>" in page
    assert page.count('"near": [[') == 2, "a map for each arm"
    assert not re.search(r'(src|href)="http', page.replace(get_plotlyjs(), "")), "the page must work offline"
