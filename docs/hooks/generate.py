"""What MkDocs calls while it builds the site: parts of pages that are made from the source."""

from __future__ import annotations

import re
from typing import Any

from command_line import reference
from setting_tables import preset_table, setting_table

_COMMANDS, _PRESETS = "<!-- commands -->", "<!-- presets -->"
_SETTINGS = re.compile(r"<!-- settings (\S+) (\w+) -->")


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Fill in what a page leaves to the source."""
    if _COMMANDS in markdown:
        markdown = markdown.replace(_COMMANDS, reference())
    if _PRESETS in markdown:
        markdown = markdown.replace(_PRESETS, preset_table())
    return _SETTINGS.sub(lambda found: setting_table(found[1], found[2]), markdown)
