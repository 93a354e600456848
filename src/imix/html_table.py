"""Short HTML tables, which notebooks show for runs and results."""

import html
from collections.abc import Sequence

from imix.errors import printable


def html_table(
    rows: Sequence[Sequence[str]], header: Sequence[str] = (), *, title: str = "", notes: Sequence[str] = ()
) -> str:
    """Return a table whose first column is aligned left and the others right, with a title and notes; text is escaped.

    >>> html_table([["loss", "2.5 < 3"]])
    '<table><tr><td style="text-align:left">loss</td><td style="text-align:right">2.5 &lt; 3</td></tr></table>'
    """
    lines = [_row("th", header)] if header else []
    lines += [_row("td", row) for row in rows]
    parts = [f"<div><b>{_escaped(title)}</b></div>"] if title else []
    parts += [f"<table>{''.join(lines)}</table>", *(f"<div>{_escaped(note)}</div>" for note in notes)]
    return "".join(parts)


def _row(tag: str, cells: Sequence[str]) -> str:
    sides = ["left", *["right"] * (len(cells) - 1)]
    contents = (
        f'<{tag} style="text-align:{side}">{_escaped(cell)}</{tag}>' for side, cell in zip(sides, cells, strict=True)
    )
    return f"<tr>{''.join(contents)}</tr>"


def _escaped(text: str) -> str:
    return html.escape(printable(text))
