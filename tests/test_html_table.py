"""HTML tables: escaped text, alignment, header, title and notes."""

from imix.html_table import html_table


def test_names_cannot_contain_markup_or_control_characters():
    evil = "<script>\x1b]0;x\x07&"
    page = html_table([[evil, evil]], [evil, ""], title=evil, notes=[evil])
    assert "<script" not in page and page.isprintable()
    assert page.count(r"&lt;script&gt;\x1b]0;x\x07&amp;") == 5


def test_the_first_column_is_aligned_left_and_the_others_right():
    page = html_table([["loss", "2", "3"]], ["name", "a", "b"])
    assert page.count('<th style="text-align:left">name</th><th style="text-align:right">a</th>') == 1
    assert page.count('<td style="text-align:right">') == 2
