"""`imix demo` with two seeds and few epochs; `make demo` runs it in full."""

import re

import pytest
from plotly.offline import get_plotlyjs

from imix.demo import COLUMN, demo


@pytest.mark.slow
def test_i_mix_is_better_on_digits_without_augmentation(tmp_path, capsys):
    groups = demo(tmp_path / "demo", seeds=2, epochs=8)
    means = {group.name: sum(group.values(COLUMN)) / len(group.values(COLUMN)) for group in groups}
    _, _, plain, mixed, _ = means.values()
    assert mixed > plain + 2
    output, page = capsys.readouterr().out, (tmp_path / "demo" / "report.html").read_text()
    for group in groups:
        assert re.search(rf"^{re.escape(group.name)} +{group.formatted(COLUMN)}$", output, re.MULTILINE)
        assert f">{group.formatted(COLUMN)}</td>" in page
    best = max(groups, key=lambda group: means[group.name])
    assert f'<td class="best">{best.formatted(COLUMN)}</td>' in page
    assert page.count('"neighbors": [[') == 2, "there must be one map per pretrained configuration"
    assert not re.search(r'(src|href)="http', page.replace(get_plotlyjs(), "")), "the page must work offline"
