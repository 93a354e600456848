"""What the pages get while they are built: equations drawn by the browser itself, and the commands as they are now."""

import html
import os
import re
import subprocess
import sys
from typing import Any

import griffe
from latex2mathml.converter import convert

EQUATION = re.compile(r'<(span|div) class="arithmatex">\\[(\[](.*?)\\[)\]]</\1>', re.DOTALL)
COMMANDS = "<!-- commands -->"
EXAMPLE = re.compile(r"^>>> .*(?:\n.+)*", re.MULTILINE)  # up to the next empty line


class Examples(griffe.Extension):  # type: ignore[misc]
    """Examples in docstrings as code."""

    def on_object(self, *, obj: griffe.Object, **about: Any) -> None:
        """Fence them."""
        if obj.docstring is not None:
            obj.docstring.value = EXAMPLE.sub(r"```pycon\n\g<0>\n```", obj.docstring.value)


def on_page_markdown(markdown: str, **about: Any) -> str:
    """The page with the help of every command, where it asks for that."""
    return markdown.replace(COMMANDS, _commands()) if COMMANDS in markdown else markdown


def on_page_content(content: str, **about: Any) -> str:
    """The page with its equations as MathML: no script, nothing from elsewhere."""

    def drawn(found: re.Match[str]) -> str:
        return convert(html.unescape(found[2]), display="block" if found[1] == "div" else "inline")

    return EQUATION.sub(drawn, content)


def _commands() -> str:
    from imix.commands import COMMANDS as functions

    parts = []
    for function in functions:
        name = function.__name__
        command = [sys.executable, "-m", "imix", name, "--help"]
        done = subprocess.run(
            command, check=True, capture_output=True, text=True, env=os.environ | {"COLUMNS": "78", "TERM": "dumb"}
        )
        parts.append(f"## imix {name}\n\n```text\n{done.stdout.strip()}\n```")
    return "\n\n".join(parts)
