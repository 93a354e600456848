"""`Answer`: text, HTML and files."""

import polars
import pytest

from imix import InputError
from imix.explore.result import Answer, format_table


def test_an_answer_is_its_summary_and_is_written_as_a_table(tmp_path, read):
    answer = Answer(polars.DataFrame({"row": [0, 1], "name": ["a", None]}), "two <rows>", ())
    assert str(answer) == repr(answer) == "two <rows>"
    assert answer._repr_html_().startswith("<pre>two &lt;rows&gt;</pre>")
    for name in ("a.parquet", "a.csv"):
        assert read(answer.write(tmp_path / name)).rows() == [(0, "a"), (1, None)]
    with pytest.raises(InputError, match="cannot write the answer"):
        answer.write(tmp_path / "a.npy")


def test_tables_are_aligned_and_control_characters_escaped():
    assert format_table([["a", "name"], ["10", "x\ny"]]) == ["a   name", "10  x\\ny"]
