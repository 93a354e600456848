"""The demo and its page, in short; the whole of it is `make demo`."""

import re

import numpy as np
import pytest
from plotly.offline import get_plotlyjs

from imix.demo import demo
from imix.report import Arm, write_report


@pytest.mark.slow
def test_i_mix_is_clearly_ahead_on_digits_without_augmentation(tmp_path, capsys):
    plain, mixed, untrained, pixels = demo(tmp_path / "demo", seeds=2, epochs=3)
    means = [np.mean([result.accuracy for result in arm.results["linear"]]) for arm in (plain, mixed)]
    assert means[1] > means[0] + 0.02
    said = capsys.readouterr().out
    assert f"{100 * means[0]:.1f} ±" in said and f"{100 * means[1]:.1f} ±" in said
    page = (tmp_path / "demo" / "report.html").read_text()
    for arm in (plain, mixed, untrained, pixels):
        assert f"<td>{arm.accuracy('linear')}</td>" in page
    assert 'id="curves"' in page and 'id="map-1"' in page
    assert not re.search(r'(src|href)="http', page.replace(get_plotlyjs(), "")), "the page must work offline"


def test_names_on_the_page_are_escaped(tmp_path):
    hostile = "</script><img src=x onerror=alert(1)>"
    labels = np.arange(12) % 2
    arm = Arm(hostile, [], {"linear": []}, np.random.default_rng(0).normal(size=(12, 4)), labels)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Arm, "accuracy", lambda self, protocol: "0")
        patch.setattr("imix.report._constants", lambda arms: "")
        patch.setattr("imix.report._settings", lambda arms: "")
        path = write_report(tmp_path / "r.html", hostile, [arm], [arm], note=hostile, command=hostile)
    assert hostile not in path.read_text()
