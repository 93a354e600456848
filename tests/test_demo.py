"""`imix demo` with two seeds and few epochs; `make demo` runs it in full."""

import re

import numpy as np
import pytest
from plotly.offline import get_plotlyjs

from imix.demo import demo


@pytest.mark.slow
def test_i_mix_is_better_on_digits_without_augmentation(tmp_path, capsys):
    plain, mixed, untrained, pixels = demo(tmp_path / "demo", seeds=2, epochs=3)
    means = [np.mean([result.accuracy for result in group.results["linear"]]) for group in (plain, mixed)]
    assert means[1] > means[0] + 0.02
    output = capsys.readouterr().out
    assert f"{100 * means[0]:.1f} ±" in output and f"{100 * means[1]:.1f} ±" in output
    page = (tmp_path / "demo" / "report.html").read_text()
    for group in (plain, mixed, untrained, pixels):
        assert f">{group.formatted('linear')}</td>" in page
    assert page.count('"neighbors": [[') == 2, "there must be one map per configuration"
    assert not re.search(r'(src|href)="http', page.replace(get_plotlyjs(), "")), "the page must work offline"
