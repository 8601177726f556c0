"""The frame of a self-contained HTML page: no script, no file or address beside it."""

from __future__ import annotations

from html import escape


def html_page(title: str, body: str) -> str:
    """A complete page around a fragment."""
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        f"<title>{escape(title)}</title><style>body{{margin:2em;font-family:system-ui,sans-serif}}"
        f"</style></head>\n<body><h1>{escape(title)}</h1>\n{body}\n</body></html>\n"
    )
