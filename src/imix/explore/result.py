"""`Answer`: the result of every exploration function, with a table of ids and scores, a summary and samples to show."""

import html
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from imix.errors import printable
from imix.files import check_output_path
from imix.probes.embed import write_columns

if TYPE_CHECKING:
    import polars as pl

FORMATS = (".parquet", ".csv")
HTML_ROWS = 10


@dataclass(frozen=True)
class Card:
    """A few samples that the report shows together, such as a group or a pair.

    Parameters
    ----------
    title, text : str
        Shown above the samples.
    samples : tuple of int
        Their positions: training samples, then test samples.
    captions : tuple of str
        A text for each sample, or none.
    """

    title: str
    text: str
    samples: tuple[int, ...]
    captions: tuple[str, ...] = ()


@dataclass(frozen=True, eq=False, repr=False)
class Answer:
    """The result of `imix.cluster`, `imix.similar` and the other exploration functions.

    Parameters
    ----------
    frame : polars.DataFrame
        One row per sample, pair or neighbor; each function documents its columns. Row numbers start at 0 and count
        the training and the test samples separately.
    summary : str
        The result in a few lines of text.
    cards : tuple of Card
        The samples that the report shows.

    Examples
    --------
    >>> answer = imix.outliers(torch.nn.Flatten(), "digits", k=5)
    >>> answer.frame.sort("rank").columns
    ['row', 'split', 'label', 'score', 'percentile', 'rank', 'nearest_row', 'nearest_split', 'reason']
    >>> print(answer.summary.splitlines()[0])
    outliers among 1,797 samples of digits
    """

    frame: "pl.DataFrame"
    summary: str
    cards: tuple[Card, ...]

    def write(self, path: "str | Path") -> Path:
        """Write the frame to a .parquet or .csv file, and return its path."""
        path = check_output_path(Path(path), FORMATS, "the answer")
        table = self.frame.to_arrow()
        write_columns(path, dict(zip(table.column_names, table.columns, strict=True)))
        return path

    def __str__(self) -> str:
        return self.summary

    __repr__ = __str__

    def _repr_html_(self) -> str:
        """The summary and the first rows, for notebooks."""
        return f"<pre>{html.escape(self.summary)}</pre>{self.frame.head(HTML_ROWS)._repr_html_()}"


def format_table(rows: list[list[str]]) -> list[str]:
    """Align the cells of a table; the first row is the header, and the last column is not padded."""
    rows = [[printable(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
