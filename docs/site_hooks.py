"""Hooks of MkDocs: what a page links outside ``docs/`` joins the site, and the built site is checked.

The front page begins and ends as README.md does. Each page has the version in its head, and a social card.

A page links ``../examples/x.py`` or ``../CONTRIBUTING.md`` as GitHub needs it. In the site such a file is at
``repository/examples/x.py`` or a page ``repository/CONTRIBUTING``; Python files become pages, too. Search finds
neither them nor decisions, and the site has no file that only Python needs.
"""

from __future__ import annotations

import json
import posixpath
import re
from collections.abc import Iterator
from html import escape as html_escape
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files

DOCS = Path(__file__).parent
ROOT = DOCS.parent
OUTSIDE = "repository"
# The front page: the README up to the first of these headings, docs/index.md, the README from the second one on.
FRONT = "index.md"
FRONT_ENDS, FRONT_GOES_ON = "\n## How far along\n", "\n## Cite\n"
CARD = "social-card.png"
ON_GITHUB = re.compile(
    r"https://(?:github\.com/framestow/framestow/(?:blob|tree)|raw\.githubusercontent\.com/framestow/framestow)/main/"
)
# Who searches for a symptom wants its remedy, and then a page to read rather than a docstring.
GUIDES = ("observations", "environments", "sampling", "tensors", "extras-and-changes", "saving", "training")
BOOSTS = {"troubleshooting.md": 8, "get-started.md": 4, "libraries/logged-data.md": 4, "api": 0.5, "commands.md": 0.5}
BOOSTS |= {f"{name}.md": 2 for name in GUIDES}
LINK = re.compile(r"(?P<head>\[(?P<text>[^\]]*)\]\()(?P<target>[^)\s:#]+)(?P<tail>(?:#[^)\s]*)?\))")
DIFF = re.compile(r'<div class="language-diff.*?</div>', re.DOTALL)
SIGN = re.compile(r'(?P<line><a [^>]*></a>(?:<span class="g[id]">)?)(?:<span class="w">)?(?P<sign>[+ -])(?:</span>)?')
TITLE = re.compile(r'<div class="md-header__topic">\s*<span class="md-ellipsis">\s*framestow')
CELL = re.compile(r"<td.*?</td>", re.DOTALL)
DOTTED_NAME = re.compile(r"(?<=[a-z0-9_])\.(?=[a-z_][a-z0-9_]*[. <])")
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
    if uri == FRONT:
        markdown = _with_readme(markdown)
        page.meta["hide"] = ["navigation", "toc"]
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


def on_page_content(html: str, **_: Any) -> str:
    """Return ``html`` with the signs of each diff where a copy of the code does not reach them.

    A name with dots in a table may be broken after each dot, so that the table is narrow enough for a phone.
    """

    def without_signs(block: re.Match[str]) -> str:
        return SIGN.sub(lambda sign: f'{sign["line"]}<span class="sign" data-sign="{sign["sign"]}"></span>', block[0])

    def breakable(cell: re.Match[str]) -> str:
        parts = re.split(r"(<code>.*?</code>)", cell[0], flags=re.DOTALL)
        return "".join(DOTTED_NAME.sub(".<wbr>", part) if part.startswith("<code>") else part for part in parts)

    return CELL.sub(breakable, DIFF.sub(without_signs, html))


def on_post_page(output: str, page: Any, config: Any) -> str:
    """Return the page with the version beside the name of the site, and with its social card."""
    version = re.findall(r'^__version__ = "(.*)"', (ROOT / "src/framestow/__init__.py").read_text(), re.MULTILINE)[0]
    title = html_escape(page.title or config["site_name"])
    card = {"og:title": title, "og:image": config["site_url"] + CARD, "og:type": "website"}
    card["og:description"] = html_escape(config["site_description"])
    tags = "".join(f'<meta property="{name}" content="{content}">' for name, content in card.items())
    tags += '<meta name="twitter:card" content="summary_large_image">'
    named = TITLE.sub(lambda found: f'{found[0]} <span class="version">{version}</span>', output, count=1)
    return named.replace("</head>", f"{tags}</head>", 1)


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
    text = _with_readme(text) if page == DOCS / FRONT else text
    for link in (*LINK.finditer(text), *ATTRIBUTE.finditer(text)):
        yield (page.parent / link["target"]).resolve()


def _with_readme(front: str) -> str:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    for heading in (FRONT_ENDS, FRONT_GOES_ON):
        if heading not in readme:
            raise PluginError(f"README.md has no heading {heading.strip()!r}, where the front page is cut")
    head, tail = readme.split(FRONT_ENDS)[0], readme[readme.index(FRONT_GOES_ON) :]
    head = re.sub(r"^\[!\[.*\n", "", head, flags=re.MULTILINE)  # a badge is a request to another server
    return ON_GITHUB.sub("../", head) + front[front.index("\n## ") :] + ON_GITHUB.sub("../", tail)


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
