"""Checks the built pages of the documentation site: all that a page loads automatically is a file of the site. Links
are checked by mkdocs."""

import argparse
import re
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

LOADED = dict.fromkeys(("audio", "embed", "iframe", "input", "script"), ("src",))
LOADED |= dict.fromkeys(("image", "link", "use"), ("href",)) | dict.fromkeys(("img", "source"), ("src", "srcset"))
LOADED |= {"object": ("data",), "video": ("src", "poster")}
NOT_LOADED = {"canonical", "next", "prev", "alternate", "edit"}  # kinds of `link` that only name an address
CSS_ADDRESS = re.compile(r"url\(\s*['\"]?([^'\")]+)|@import\s+['\"]([^'\"]+)")


class Page(HTMLParser):
    """The resources that a page loads."""

    def __init__(self, text):
        super().__init__()
        self.loads = []
        self.in_style = False
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        given = {name: value or "" for name, value in attributes}
        if tag != "link" or not NOT_LOADED & set(given.get("rel", "").split()):
            self.loads += [given[name].split()[0] for name in LOADED.get(tag, ()) if given.get(name)]
        self.loads += css_addresses(given.get("style", ""))
        self.in_style = tag == "style"

    def handle_endtag(self, tag):
        self.in_style = False

    def handle_data(self, data):
        if self.in_style:
            self.loads += css_addresses(data)


def css_addresses(text):
    return [first or second for first, second in CSS_ADDRESS.findall(text)]


def problem(path, address, root):
    """Describes the error of an address in the file `path`, or None."""
    parts = urlsplit(address)
    if parts.scheme == "data" or (path.suffix != ".html" and address.startswith("#")):  # a part of the picture itself
        return None
    if parts.scheme or parts.netloc:
        return "would be loaded from elsewhere"
    within = root if parts.path.startswith("/") else path.parent  # 404.html, which is shown at any address
    target = (within / unquote(parts.path).lstrip("/")).resolve() if parts.path else path
    return None if target.is_relative_to(root) and target.is_file() else "leads to no file"


def problems(root):
    found = []
    for path in sorted(root.rglob("*")):
        if path.suffix in (".html", ".css", ".svg"):
            text = path.read_text(encoding="utf-8")
            for address in dict.fromkeys(Page(text).loads if path.suffix == ".html" else css_addresses(text)):
                if wrong := problem(path, address, root):
                    found.append(f"{path.relative_to(root)}: {address} {wrong}")
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("site", type=Path, help="such as build/site")
    root = parser.parse_args().site.resolve()
    if not (root / "index.html").is_file():
        print(f"[site] the site must have index.html, got none in {root}", file=sys.stderr)
        return 1
    found = problems(root)
    for line in found:
        print(f"[site] {line}", file=sys.stderr)
    pages = len(list(root.rglob("*.html")))
    print(f"[site] {pages} pages, {len(found)} missing or external files", file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
