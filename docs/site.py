"""mkdocs hook: converts equations to MathML when the site is built, so that pages need no script from elsewhere."""

import html
import re
from typing import Any

from latex2mathml.converter import convert

EQUATION = re.compile(r'<(span|div) class="arithmatex">\\[(\[](.*?)\\[)\]]</\1>', re.DOTALL)


def on_page_content(content: str, **kwargs: Any) -> str:
    """Replace the equations of a page by MathML."""

    def to_mathml(match: re.Match[str]) -> str:
        return convert(html.unescape(match[2]), display="block" if match[1] == "div" else "inline")

    return EQUATION.sub(to_mathml, content)
