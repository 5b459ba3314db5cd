"""Hooks of MkDocs: what a page links outside ``docs/`` joins the site, and the built site is checked.

A page links ``../examples/x.py`` or ``../CONTRIBUTING.md`` as GitHub needs it. In the site such a file is at
``repository/examples/x.py`` or a page ``repository/CONTRIBUTING``; Python files become pages, too. Search finds
neither them nor decisions, and the site has no file that only Python needs.
"""

from __future__ import annotations

import json
import posixpath
import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files

DOCS = Path(__file__).parent
ROOT = DOCS.parent
OUTSIDE = "repository"
# Who searches for a symptom wants its remedy, and then a page to read rather than a docstring.
GUIDES = ("observations", "environments", "sampling", "tensors", "extras-and-changes", "saving", "training")
BOOSTS = {"troubleshooting.md": 8, "get-started.md": 4, "api": 0.5, "commands.md": 0.5}
BOOSTS |= {f"{name}.md": 2 for name in GUIDES}
LINK = re.compile(r"(?P<head>\[(?P<text>[^\]]*)\]\()(?P<target>[^)\s:#]+)(?P<tail>(?:#[^)\s]*)?\))")
ATTRIBUTE = re.compile(r"(?P<head>\b(?:src|srcset|href)=\")(?P<target>[^\":#]+)(?P<tail>\")")


def on_files(files: Files, config: Any) -> Files:
    """Add every file outside ``docs/`` that a page links, directly or through another such page."""
    waiting, added = [DOCS / file.src_uri for file in files.documentation_pages()], set()
    while waiting:
        for target in _linked_files(waiting.pop()):
            if target.is_relative_to(DOCS) or target in added or not target.is_file():
                continue
            added.add(target)
            files.append(_site_file(target, config))
            if target.suffix == ".md":
                waiting.append(target)
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Return ``markdown`` with links to files outside ``docs/`` changed to their place in the site."""
    uri = page.file.src_uri
    if uri.startswith((f"{OUTSIDE}/", "decisions/")):
        page.meta["search"] = {"exclude": True}
    else:
        page.meta["search"] = {"boost": BOOSTS.get(uri, BOOSTS.get(posixpath.dirname(uri), 1))}
    source = ROOT / uri.removeprefix(f"{OUTSIDE}/") if uri.startswith(f"{OUTSIDE}/") else DOCS / uri

    def in_site(link: re.Match[str]) -> str:
        target = (source.parent / link["target"]).resolve()
        if target.is_dir():
            return link["text"]  # the site has no folders
        if not target.is_file():
            return link[0]  # MkDocs warns
        return f"{link['head']}{posixpath.relpath(_site_uri(target), posixpath.dirname(uri))}{link['tail']}"

    return ATTRIBUTE.sub(in_site, LINK.sub(in_site, markdown))


def on_post_build(config: Any) -> None:
    """Raise ``PluginError`` if a link of a built page leads nowhere, or if the site or its search has too much."""
    site = Path(config["site_dir"])
    index = json.loads((site / "search" / "search_index.json").read_text(encoding="utf-8"))["docs"]
    too_much = [*site.rglob("*.pyc"), *(entry["location"] for entry in index if entry["location"].startswith(OUTSIDE))]
    if too_much:
        raise PluginError(f"the site or its search index has {', '.join(map(str, too_much))}")
    pages = {path: _Page(path) for path in site.rglob("*.html") if path.name != "404.html"}
    broken = []
    for path, page in pages.items():
        for link in page.links:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            target = target / "index.html" if target.is_dir() else target
            anchor = unquote(parts.fragment)
            if not target.exists() or (anchor and target in pages and anchor not in pages[target].anchors):
                broken.append(f"{path.relative_to(site)}: {link}")
    if broken:
        raise PluginError("broken links:\n" + "\n".join(sorted(set(broken))))


class _Page(HTMLParser):
    """The links and the anchors of one built page."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.links: list[str] = []
        self.anchors = {"__top"}
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:  # noqa: ARG002
        """Note the links and the ids of one tag."""
        values = dict(attrs)
        self.links += [values[name] or "" for name in ("href", "src") if values.get(name)]
        self.anchors |= {values[name] or "" for name in ("id", "name") if name in values}


def _linked_files(page: Path) -> Iterator[Path]:
    text = page.read_text(encoding="utf-8")
    for link in (*LINK.finditer(text), *ATTRIBUTE.finditer(text)):
        yield (page.parent / link["target"]).resolve()


def _site_uri(target: Path) -> str:
    if target.is_relative_to(DOCS):
        return target.relative_to(DOCS).as_posix()
    uri = f"{OUTSIDE}/{target.relative_to(ROOT).as_posix()}"
    return f"{uri}.md" if target.suffix == ".py" else uri


def _site_file(target: Path, config: Any) -> File:
    if target.suffix != ".py":
        return File.generated(config, _site_uri(target), abs_src_path=str(target))
    name, code = target.relative_to(ROOT).as_posix(), target.read_text(encoding="utf-8")
    return File.generated(config, _site_uri(target), content=f"# {name}\n\n````python\n{code}````\n")
