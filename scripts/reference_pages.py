"""Writes the pages of docs/reference from the docstrings, the C headers and the program's help.
Sources are parsed, never imported.
"""

import ast
import os
import re
import subprocess
import sys
import textwrap
from pathlib import Path

from page_tables import parser_of, written

ROOT = Path(__file__).resolve().parent.parent
REFERENCE = ROOT / "docs" / "reference"
PACKAGE = ROOT / "python" / "roformer_cpp"
OF_CORE = "rope rope_scaling attention linear_attention listed_attention rows linear dropout status"
HEADERS = [*(f"core/include/rf/{name}.h" for name in OF_CORE.split()), "engine/include/rf/engine.h"]
# Modules whose functions users may read or call although `roformer_cpp` itself does not export them.
MORE_MODULES = ["theory"]
# The order of the page, and its titles; other modules follow with the first words of their docstrings.
TITLES = {
    "engine": "The engine",
    "tokenizer": "Tokenizers",
    "sentence_transformer": "Sentence embeddings",
    "training": "Training",
    "corpus": "Vocabularies and token shards",
    "shards": "Token shards as a dataset",
    "tensorboard": "TensorBoard",
    "_ops": "Rotary operators",
    "attention": "Softmax attention",
    "encoding": "Position encodings",
    "custom_encoding": "Encodings written in Python",
    "terms": "Terms of attention",
    "linear_attention": "Linear attention",
    "layers": "Layers",
    "model": "Models",
    "patch": "Models of transformers",
    "graft": "Grafted encodings",
    "inspection": "Attention inspection",
    "cross_encoder": "Cross-encoders",
    "multi_vector_encoder": "Multi-vector encoders (late interaction)",
    "sparse_encoder": "Sparse encoders",
    "bge_m3": "BGE-M3",
    "quantization": "Quantized vectors",
    "convert": "Conversion of checkpoints",
    "onnx_export": "ONNX export",
    "translation": "Translation",
}
WIDTH = 110


def written_by(text):
    return f"<!-- scripts/reference_pages.py writes this page from {text} -->\n"


# ---- Python: docstrings in Google's style ----


def is_public(name):
    return not name.startswith("_")


def definitions(tree):
    return {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef | ast.ClassDef)}


def exported_names(tree):
    """The names in every assignment to __all__, in order."""
    names = []
    for node in ast.walk(tree):
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        if isinstance(node, ast.Assign | ast.AugAssign) and any(getattr(t, "id", "") == "__all__" for t in targets):
            names += [item.value for item in ast.walk(node.value) if isinstance(item, ast.Constant)]
    return sorted(dict.fromkeys(names), key=str.lower)


def signature(node, name, drop_first=False):
    """`name(arguments) -> result`, on one line where it fits, else with one line per argument."""
    arguments = node.args
    defaults = [None] * (len(arguments.args) - len(arguments.defaults)) + arguments.defaults
    parts = [parameter(a, d) for a, d in zip(arguments.args, defaults, strict=True)][int(drop_first) :]
    if arguments.vararg:
        parts.append("*" + parameter(arguments.vararg, None))
    elif arguments.kwonlyargs:
        parts.append("*")
    parts += [parameter(a, d) for a, d in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)]
    if arguments.kwarg:
        parts.append("**" + parameter(arguments.kwarg, None))
    result = f" -> {ast.unparse(node.returns)}" if node.returns else ""
    line = f"{name}({', '.join(parts)}){result}"
    if len(line) <= WIDTH:
        return line
    return f"{name}(\n" + "".join(f"    {part},\n" for part in parts) + f"){result}"


def parameter(argument, default):
    text = argument.arg + (f": {ast.unparse(argument.annotation)}" if argument.annotation else "")
    if default is None:
        return text
    return f"{text}{' = ' if argument.annotation else '='}{ast.unparse(default)}"


def marked_up(text):
    """Markdown of a docstring's text: code in single backticks, roles by their names."""
    text = re.sub(r":\w+:`([^`]*)`", r"`\1`", text)
    text = re.sub(r"``(.+?)``", r"`\1`", text)
    parts = re.split(r"(`[^`]*`)", text)  # outside code, what Markdown or HTML would read as its own
    return "".join(p if p.startswith("`") else re.sub(r"([*_<])", r"\\\1", p) for p in parts)


def blocks_of(lines):
    """Paragraphs and, where lines are indented, blocks of code."""
    blocks = []
    for block in re.split(r"\n[ ]*\n", "\n".join(lines).strip("\n")):
        if blocks and block.startswith("    ") and blocks[-1].startswith("    "):
            blocks[-1] += "\n\n" + block
        elif block.strip():
            blocks.append(block)
    out = []
    for block in blocks:
        if block.startswith("    "):
            out.append(f"```python\n{textwrap.dedent(block).strip()}\n```")
        else:
            out.append(marked_up(" ".join(line.strip() for line in block.splitlines())))
    return out


def section_lines(title, lines):
    """A section such as Args as a list; its items are the lines that are not indented further."""
    items = []
    for line in textwrap.dedent("\n".join(lines)).splitlines():
        if line.startswith(" ") and items:
            items[-1] += " " + line.strip()
        elif line.strip():
            items.append(line.strip())
    if title == "Returns":
        return ["**Returns:** " + marked_up(" ".join(items))]
    out = []
    for item in items:
        match = re.match(r"(\*{0,2}[\w.]+(?:, \*{0,2}[\w.]+)*): (.*)", item)
        out.append(f"- `{match[1]}`: {marked_up(match[2])}" if match else f"- {marked_up(item)}")
    return [f"**{title}:**", "\n".join(out)]


def docstring(node):
    text = ast.get_docstring(node)
    if not text:
        return []
    out, lines, title = [], [], None

    def close():
        out.extend(section_lines(title, lines) if title else blocks_of(lines))

    for line in text.splitlines():
        match = re.fullmatch(r"(Args|Arguments|Returns|Raises|Yields|Attributes):", line)
        if match:
            close()
            lines, title = [], match[1]
        elif title and line and not line.startswith(" "):
            close()
            lines, title = [line], None
        else:
            lines.append(line)
    close()
    return out


def described_function(node, name, level, method=False):
    kinds = {getattr(d, "id", "") for d in node.decorator_list}
    if "property" in kinds:
        shown = name + (f": {ast.unparse(node.returns)}" if node.returns else "") + "  # property"
    else:
        shown = signature(node, name, drop_first=method and "staticmethod" not in kinds)
    return [f"{'#' * level} `{name}`", f"```python\n{shown}\n```", *docstring(node)]


def methods_of(node, hidden):
    """The methods of a class and of its bases in modules that users do not see."""
    methods = {item.name: item for item in node.body if isinstance(item, ast.FunctionDef)}
    for base in node.bases:
        if parent := hidden.get(ast.unparse(base)):
            methods |= {name: item for name, item in methods_of(parent, hidden).items() if name not in methods}
    return methods


def described_class(node, level, hidden):
    out = [f"{'#' * level} Class `{node.name}`"]  # a separate anchor, since a function may have the same name
    methods = methods_of(node, hidden)
    fields = [item for item in node.body if isinstance(item, ast.AnnAssign) and is_public(item.target.id)]
    if "__init__" in methods:
        out.append(f"```python\n{signature(methods['__init__'], node.name, drop_first=True)}\n```")
    elif fields:
        body = "\n".join(f"    {ast.unparse(item)}" for item in fields)
        out.append(f"```python\nclass {node.name}:\n{body}\n```")
    out += docstring(node)
    for name, method in methods.items():
        if not ast.get_docstring(method):
            continue
        if name == "__call__":
            call = signature(method, node.name.lower(), drop_first=True)
            out += [f"{'#' * (level + 1)} Calling a `{node.name}`", f"```python\n{call}\n```", *docstring(method)]
        elif is_public(name):
            out += described_function(method, f"{node.name}.{name}", level + 1, method=True)
    return out


def module_title(tree, name):
    first = marked_up((ast.get_docstring(tree) or name).splitlines()[0])
    return TITLES.get(name) or re.split(r"[;(:.]", first)[0].strip()


def python_page():
    init = ast.parse((PACKAGE / "__init__.py").read_text(encoding="utf-8"))
    modules = {path.stem: ast.parse(path.read_text(encoding="utf-8")) for path in sorted(PACKAGE.glob("*.py"))}
    names = exported_names(init)
    hidden = {
        name: node
        for module, tree in modules.items()
        for name, node in definitions(tree).items()
        if not is_public(module) and isinstance(node, ast.ClassDef)
    }
    imports = [node for node in ast.walk(init) if isinstance(node, ast.ImportFrom) and node.module in modules]
    module_of = {alias.name: node.module for node in imports for alias in node.names}
    places = {}
    for name in names:
        if name not in definitions(modules.get(module_of.get(name), init)):
            raise SystemExit(f"[reference] a name of __all__ must be imported from its module, got none for {name}")
        places.setdefault(module_of[name], []).append(name)
    order = [name for name in TITLES if name in places] + sorted(places.keys() - TITLES.keys())
    out = ["# Python", written_by("the docstrings of the package `roformer_cpp`").rstrip()]
    out += docstring(init)
    described_nodes = {module: {} for module in [*order, *MORE_MODULES]}
    for module, nodes in described_nodes.items():
        for name, node in definitions(modules[module]).items():
            # A class that is not exported but made by a function of its module is described with it.
            more = isinstance(node, ast.ClassDef) or module in MORE_MODULES
            if name in places.get(module, ()) or (more and is_public(name) and ast.get_docstring(node)):
                nodes[name] = node
    rows = [index_row(name, node) for module in order for name, node in described_nodes[module].items()]
    out.append("\n".join(["| name | what it is |", "|---|---|", *rows]))
    for module in order:
        out += [f"## {module_title(modules[module], module)}", source_of(module)]
        for name, node in described_nodes[module].items():
            is_class = isinstance(node, ast.ClassDef)
            out += described_class(node, 3, hidden) if is_class else described_function(node, name, 3)
    for module in MORE_MODULES:
        out += [f"## The module `roformer_cpp.{module}`", *docstring(modules[module])]
        rows = ["| function | |", "|---|---|"]
        for name, node in described_nodes[module].items():
            rows.append(f"| `{signature(node, name)}` | {cell(first_sentence(node))} |".replace("\n", " "))
        out += ["\n".join(rows), source_of(module)]
    return "\n\n".join(out) + "\n"


def source_of(module):
    return f"Source: [{module}.py]({os.path.relpath(PACKAGE / f'{module}.py', REFERENCE)})."


def cell(text):
    return text.replace("|", "\\|")


def first_sentence(node):
    lines = (ast.get_docstring(node) or "").split("\n\n")[0].splitlines()
    text = marked_up(" ".join(line.strip() for line in lines))
    return re.split(r"(?<=[.])\s(?=[A-Z`])", text)[0]


def index_row(name, node):
    anchor = ("class-" if isinstance(node, ast.ClassDef) else "") + name.lower()
    return f"| [`{name}`](#{anchor}) | {cell(first_sentence(node))} |"


# ---- C: headers ----


def header_comment(text):
    """Paragraphs of the comment that a header begins with; indented lines are kept."""
    comment = re.match(r"/\*(.*?)\*/", text, re.DOTALL)[1]
    lines = [re.sub(r"^ \* ?", "", line).rstrip() for line in comment.splitlines()]
    lines[0] = lines[0].strip()
    out = []
    for block in re.split(r"\n\n", "\n".join(lines).strip()):
        if block.startswith("  "):
            out.append(f"```text\n{textwrap.dedent(block)}\n```")
        else:
            out.append(re.sub(r"([*_<])", r"\\\1", block))
    return out


def exported_functions(text):
    """The functions that a header declares for callers."""
    return re.findall(r"RF_API\s+[\w\s*]+?\b(rf_\w+)\(", text)


def header_chunks(text):
    """The declarations of a header, in order, each with the comment before it."""
    body = text.split('extern "C" {\n#endif\n', 1)[1].rsplit("#ifdef __cplusplus", 1)[0]
    chunks, depth, in_comment, ended = [[]], 0, False, False
    for line in body.strip("\n").splitlines():
        outside = depth == 0 and not in_comment
        if outside and (not line or (ended and line.startswith("/*"))):
            chunks.append([])
        if line or not outside:
            chunks[-1].append(line)
        if line:
            code = re.sub(r"/\*.*?\*/", "", line)
            in_comment = ("/*" in code) or (in_comment and "*/" not in line)
            depth += 0 if in_comment else code.count("{") - code.count("}")
            ended = outside and code.rstrip().endswith(";")
    return ["\n".join(chunk) for chunk in chunks if chunk]


def chunk_title(chunk):
    code = re.sub(r"/\*.*?\*/", "", chunk, flags=re.DOTALL)
    functions = exported_functions(code)
    types = re.findall(r"^} (rf_\w+);|^typedef (?:struct|enum) \w+ (?:\{.*\} )?(rf_\w+);", code, re.MULTILINE)
    return functions or [first or second for first, second in types]


def c_page():
    out = ["# C", written_by("the headers of `core` and `engine`").rstrip()]
    out.append(
        "The kernels (`rf::core`) and the engine (`rf::engine`) behind C interfaces. "
        "[The engine's page](../engine.md#installing-and-linking) says how to install and link them; "
        "[examples/find_package](../../examples/find_package) has a program in C."
    )
    parts, rows = [], ["| header | functions |", "|---|---|"]
    for name in HEADERS:
        text = (ROOT / name).read_text(encoding="utf-8")
        include = name.split("include/")[1]
        sections = []
        links = []
        for chunk in header_chunks(text):
            titles = chunk_title(chunk)
            heading = ", ".join(f"`{title}`" for title in titles)
            if heading:
                sections.append(f"### {heading}")
                anchor = "-".join(re.sub(r"[^\w-]", "", title) for title in titles)
                links += [f"[`{function}`](#{anchor})" for function in exported_functions(chunk)]
            sections.append(f"```c\n{chunk}\n```")
        rows.append(f"| [{include}](#{re.sub(r'[^a-z0-9_-]', '', include)}) | {', '.join(links)} |")
        parts += [f"## {include}", *header_comment(text), f"Source: [{include}](../../{name}).", *sections]
    return "\n\n".join([*out, "\n".join(rows), *parts]) + "\n"


# ---- the command line ----


def help_of(program, *command):
    environment = dict(os.environ, COLUMNS="100")
    done = subprocess.run([program, *command, "--help"], capture_output=True, text=True, env=environment, check=False)
    if done.returncode != 0:
        raise SystemExit(f"[reference] {' '.join(command)} --help must succeed, got: {done.stderr.strip()}")
    return done.stdout.rstrip()


def command_line_page(program):
    overview = help_of(program)
    commands = re.findall(r"^  ([a-z][\w-]*) {2,}(.*)$", overview.split("Subcommands:")[1], re.MULTILINE)
    out = ["# Command line", written_by("`roformer COMMAND --help`").rstrip()]
    out.append(
        "Results go to standard output as JSON lines, diagnostics to standard error. Exit code 1 means bad input, 2 a "
        "wrong command line, 3 an internal error. [Formats](../formats.md) describes inputs and outputs."
    )
    rows = ["| command | |", "|---|---|"] + [f"| [`{name}`](#{name}) | {cell(text)} |" for name, text in commands]
    out.append("\n".join(rows))
    for name, _ in commands:
        out += [f"## {name}", f"```text\n{help_of(program, name)}\n```"]
    return "\n\n".join(out) + "\n"


PAGES = {"python": python_page, "c": c_page, "command-line": command_line_page}


def main():
    parser = parser_of(__doc__)
    parser.add_argument("--pages", nargs="+", choices=PAGES, default=list(PAGES), help="default: all")
    parser.add_argument("--program", default=ROOT / "build" / "release" / "roformer", help="the built roformer")
    given = parser.parse_args()
    texts = {name: PAGES[name](*[given.program] * (name == "command-line")) for name in given.pages}
    return max(written(REFERENCE / f"{name}.md", text, given.check) for name, text in texts.items())


if __name__ == "__main__":
    sys.exit(main())
