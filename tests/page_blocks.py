"""The Python blocks of a page of the documentation."""

import re

BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def run(page, name):
    """Runs the blocks of a page in one namespace, which is returned; a traceback has the lines of the page."""
    scope = {"__name__": name}
    for block in BLOCK.finditer(page):
        line = page.count("\n", 0, block.start(1))
        exec(compile("\n" * line + block.group(1), name, "exec"), scope)
    return scope
