"""Checks the built pages of the documentation site: every link and anchor resolves, and nothing comes from elsewhere.

Addresses of other sites in `a` are not visited. Everything that a page loads automatically must lie in the site.
"""

import argparse
import re
import sys
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

LOADED = dict.fromkeys(("audio", "embed", "iframe", "input", "script"), ("src",))
LOADED |= dict.fromkeys(("image", "link", "use"), ("href",)) | dict.fromkeys(("img", "source"), ("src", "srcset"))
LOADED |= {"object": ("data",), "video": ("src", "poster")}
NOT_LOADED = {"canonical", "next", "prev", "alternate", "edit"}  # kinds of `link` that only name an address
CSS_ADDRESS = re.compile(r"url\(\s*['\"]?([^'\")]+)|@import\s+['\"]([^'\"]+)")


class Page(HTMLParser):
    """The ids of a page, where it links to, and what it loads."""

    def __init__(self, text):
        super().__init__()
        self.ids, self.links, self.loads = set(), [], []
        self.in_style = False
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        given = {name: value or "" for name, value in attributes}
        self.ids |= {given[name] for name in ("id", "name") if given.get(name)}
        if tag == "a" and "href" in given:
            self.links.append(given["href"])
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


@cache
def page(path):
    return Page(path.read_text(encoding="utf-8"))


def problem(path, address, root, loaded):
    """Describes the error of an address in the file `path`, or None."""
    parts = urlsplit(address)
    if parts.scheme == "data":
        return None
    if parts.scheme or parts.netloc:
        return "would be loaded from elsewhere" if loaded else None
    if not parts.path:
        target = path
    else:
        within = root if parts.path.startswith("/") else path.parent  # 404.html, which is shown at any address
        target = (within / unquote(parts.path).lstrip("/")).resolve()
    if target.is_dir():
        target /= "index.html"
    if not target.is_relative_to(root) or not target.is_file():
        return "leads to no file"
    anchor = unquote(parts.fragment)
    if anchor and target.suffix == ".html" and not anchor.startswith("__") and anchor not in page(target).ids:
        return "leads to no anchor of its page"
    return None


def problems(root):
    found = []
    for path in sorted(root.rglob("*")):
        if path.suffix == ".html":
            read = page(path)
            loads, links = read.loads, read.links
        elif path.suffix in (".css", ".svg"):
            loads, links = css_addresses(path.read_text(encoding="utf-8")), []
        else:
            continue
        for loaded, addresses in ((True, loads), (False, links)):
            for address in dict.fromkeys(addresses):
                if path.suffix != ".html" and address.startswith("#"):
                    continue  # a part of the picture itself
                if wrong := problem(path, address, root, loaded):
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
    print(f"[site] {pages} pages, {len(found)} dead links and external resources", file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
