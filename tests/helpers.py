"""Shared helpers of the tests."""

import html
import re
from typing import Any


def cells(shown: Any) -> list[str]:
    """Return the texts in the cells of the HTML tables that a notebook shows for an object."""
    texts = re.findall(r"<t[hd]\b[^>]*>(.*?)</t[hd]>", shown._repr_html_())
    return [html.unescape(text) for text in texts]
