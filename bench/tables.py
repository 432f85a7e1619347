"""Writes the tables of docs/benchmarks/<cpu>.md; each table is written by the script that measures it (--update-docs).

Each kind of CPU has its page, so a measurement on one CPU never replaces that of another. A table lies between <!--
<id> --> and <!-- end <id> -->. The id is the script's name without .py, followed by a word for the variant if the
script has several. The text between the two markers is replaced: the command, the machine and the commit, then the
table. A page is created with its first table; docs/benchmarks.md, which explains the tables, is written by hand.
"""

import datetime
import re
import shlex
import sys
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PAGES = ROOT / "docs" / "benchmarks"
SECTIONS = {  # titles in the order of the page, and the tables below each
    "Rotary embedding, data from memory: ratio to a copy of the same bytes": ["kernels rope"],
    "Rotary embedding, data in the cache: ratio to a copy of the same bytes": ["kernels rope-cached"],
    "Rotary embedding: the operator and its peers": ["rope_peers"],
    "Attention: the kernel and torch": ["kernels attention"],
    "Attention: the operator and its peers": ["attention_peers"],
    "Attention: the time of an encoding's terms, relative to RoPE's": ["encoding_cost terms"],
    "Attention with whole encodings, relative to RoPE": ["encoding_cost"],
    "Attention: memory": ["attention_memory"],
    "Models of transformers, patched": ["patch_peers"],
    "Linear attention: the kernel and torch": ["kernels linear-attention"],
    "Rows: norms, GELU": ["kernels rows"],
    "Linear layers": ["kernels linear"],
    "Engine: RoFormer-base and its peers": ["engine_peers", "engine_peers mixed"],
    "Engine: other families and their peers": ["engine_peers families"],
    "Engine: vectors of a file of texts, whole processes": ["embed_peers"],
    "Engine: generation, compared with transformers": ["generate_peers"],
    "Engine: generation from GGUF files, compared with a stream of reads": ["generate_peers stored"],
    "Engine: generation from a GGUF file, compared with llama.cpp": ["gguf_peers"],
    "Server: embeddings over HTTP, and its peers": ["serve_peers minilm", "serve_peers modernbert"],
    "Server: what HTTP costs, and waits beside a bulk job": ["serve_own http", "serve_own wait"],
    "Server: completions of several clients, new tokens per second": ["serve_completions"],
    "Pretraining": ["train_bench small", "train_bench base"],
    "Tokenizers": ["tokenizer_bench bert", "tokenizer_bench roformer"],
}
NOT_MEASURED = "Not measured on this CPU."


def markdown(rows: list[list[str]]) -> str:
    """The first row is the titles."""
    lines = [rows[0], ["---"] * len(rows[0]), *rows[1:]]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def of_dicts(rows: list[dict]) -> str:
    """The keys of the first are the titles."""
    return markdown([list(rows[0]), *([str(value) for value in row.values()] for row in rows)])


def pivot(titles: list[str], entries: Iterable[tuple[tuple, str, str]]) -> str:
    """A table of (key, column, cell): a row for each key, which fills the first columns, and a column for each title.
    Cells that are not given are empty."""
    rows, columns = {}, {}
    for key, column, cell in entries:
        rows.setdefault(key, {})[column] = cell
        columns[column] = ""
    return markdown([[*titles, *columns], *([*key, *(columns | row).values()] for key, row in rows.items())])


def command() -> str:
    """The command line of this program; files elsewhere are shortened to their names."""
    script = Path(sys.argv[0]).resolve().relative_to(ROOT)
    arguments = [Path(a).name if Path(a).is_absolute() else a for a in sys.argv[1:] if a != "--update-docs"]
    return shlex.join([".venv/bin/python", str(script), *arguments, "--update-docs"])


def machine_line(machine: dict) -> str:
    facts = [machine["cpu"], *(f"{machine[key]} {key}" for key in ("cores", "threads")), machine["target"]]
    facts += [f"torch {machine['torch']}"] if "torch" in machine else []
    return ", ".join([*facts, f"commit {machine['commit']}", datetime.date.today().isoformat()])


def cpu_facts(cpuinfo: str) -> dict[str, str]:
    """The fields of the first processor in the text of /proc/cpuinfo."""
    pairs = (line.partition(":") for line in reversed(cpuinfo.splitlines()))
    return {name.strip(): value.strip() for name, colon, value in pairs if colon}


def cpu_kind(cpuinfo: str) -> str:
    """The name that CPUs with the same measured limits share, from the text of /proc/cpuinfo: "AMD Zen 4".

    Virtual machines hide the model's name, but not the family and model numbers (AMD, "Revision Guide for AMD Family
    19h", "... 1Ah") and not the instruction sets. Other CPUs have the system's name for them."""
    facts = cpu_facts(cpuinfo)
    vendor, family = facts.get("vendor_id"), int(facts.get("cpu family", 0))
    if vendor == "AuthenticAMD" and family == 0x1A:
        return "AMD Zen 5"
    if vendor == "AuthenticAMD" and family == 0x19:
        return "AMD Zen 4" if "avx512f" in facts["flags"].split() else "AMD Zen 3"
    if vendor == "GenuineIntel" and "amx_tile" in facts["flags"].split():
        return "Intel with AMX"
    return facts.get("model name", "unknown CPU")


def page_of(kind: str) -> Path:
    return PAGES / (re.sub(r"[^a-z0-9]+", "-", kind.lower()).strip("-") + ".md")


def new_page(kind: str) -> str:
    """The page of a CPU on which nothing has been measured."""
    lines = [
        f"# Benchmarks: {kind}",
        "",
        "[Benchmarks](../benchmarks.md) says what the tables count and what bounds them.",
    ]
    for title, ids in SECTIONS.items():
        lines += ["", f"## {title}"]
        for table_id in ids:
            lines += ["", f"<!-- {table_id} -->", "", NOT_MEASURED, "", f"<!-- end {table_id} -->"]
    return "\n".join(lines) + "\n"


def replaced(page: str, table_id: str, body: str) -> str:
    """The page with `body` between the markers of `table_id`, which must be there once."""
    begin, end = f"<!-- {table_id} -->\n", f"<!-- end {table_id} -->\n"
    if page.count(begin) != 1 or page.count(end) != 1 or page.index(end) < page.index(begin):
        raise ValueError(f"[tables] the page must have {begin.strip()} and after it {end.strip()}, once each")
    before, after = page[: page.index(begin) + len(begin)], page[page.index(end) :]
    trimmed = body.strip("\n")
    return f"{before}\n{trimmed}\n\n{after}"


def table_ids(page: str) -> list[str]:
    return re.findall(r"^<!-- (?!end )(.*) -->$", page, re.MULTILINE)


def update_docs(table_id: str, machine: dict, body: str, page: Path | None = None) -> None:
    """Writes the table, by default on the page of this machine's CPU."""
    kind = cpu_kind(Path("/proc/cpuinfo").read_text(encoding="utf-8"))
    page = page or page_of(kind)
    text = page.read_text(encoding="utf-8") if page.exists() else new_page(kind)
    body = f"    {command()}\n\n{machine_line(machine)}.\n\n{body}"
    page.parent.mkdir(exist_ok=True)
    page.write_text(replaced(text, table_id, body), encoding="utf-8")
