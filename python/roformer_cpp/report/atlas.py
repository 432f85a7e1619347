"""The atlas of position encodings as one HTML file that loads nothing: every encoding of the program's table beside
what the experiments `atlas` and `synthetic` have measured of it, as sortable tables and a small picture each.

Encodings, lengths and tasks are those of the files: nothing is listed here.
"""

import re
from dataclasses import dataclass, field
from html import escape

from . import designs, small_multiples, units, words
from .page import STYLE
from .small_multiples import OfSeeds

_HOW = (
    "Every position encoding of the program in the same small models: a language model of bytes that is read beyond "
    "its training length, and three synthetic tasks. Each encoding has the best of several learning rates, each about "
    "3.3 times the one before, chosen by one seed: the first of the language models, and one of their own for the "
    "tasks. Values are means over seeds; "
    "where there are several, the lowest and the highest are below. Options that are not said have the defaults of "
    "docs/encodings.md. Models are tiny and trained for minutes, so differences say what an encoding makes easy, not "
    "what a large model can do with it."
)
# Encodings that are the same function in rows of the training length on one axis.
_SAME = (("mrope", "rope"), ("axial-nd", "axial"), ("log-n", "none"))
_LANGUAGE = (
    "Held-out loss of English books, nats per byte, at the training length and beyond it. Longer rows have fewer bytes "
    "with little before them, so a loss that falls by one or two hundredths need not come from what is far. The "
    "differences from RoPE compare runs with the same seed; in brackets is the 95 % interval, not corrected for the "
    "number of encodings."
)
# What a task asks, and how often the commonest answer is right.
_TASKS = {
    "copy back": "give the symbol that stands as far back as the row's first symbol says (3 %)",
    "first occurrence": "tell whether a letter stands there for the first time (77 %)",
    "count": "count how often a letter was there before (23 %)",
}
_ACCURACY_IS = (
    "Accuracy, %, of the answers in the second half of held-out rows of the training length, and of longer ones, where "
    "no row of training had an answer."
)
_COST = (
    "Parameters and peak memory are those of the language model, in training; diverged runs are those of its seeds. "
    "The time is that of one layer's attention with the encoding's terms, forward and backward: one causal row of "
    "float32, as a multiple of RoPE's, which is measured in turns with it. What an encoding does to the model's input "
    "is not in it, and another measurement differs by some per cent."
)
_LOSS = re.compile(r"^loss at (\d+) tokens, nats per token$")
_LESS_ROPE = re.compile(r"^loss at \d+ tokens less rope's, nats per token$")
_ENDS = ("from, 95 %", "to, 95 %")  # of the column before them
_ACCURACY = re.compile(r"^(.+), accuracy at (\d+) tokens$")
_NO_VALUE = "–"
_CANNOT_READ = "cannot read"
# Columns of the tables that are neither costs nor answers; losses and accuracies are those of the measures.
_RATE = "learning rate"
_OTHER = ("encoding", "task", _RATE, *_ENDS)
_TABLE_ACCURACY = re.compile(r"^accuracy at \d+ tokens$")

_STYLE = (
    STYLE
    + """
body { max-width: 76rem; }
th button { font: inherit; font-weight: 600; color: inherit; background: none; border: 0; padding: 0; cursor: pointer;
  text-align: inherit; }
th button:hover, th button:focus-visible { color: var(--link); }
th[aria-sort] button::after { content: " \\25B2"; font-size: .7em; } th[aria-sort="descending"] button::after {
  content: " \\25BC"; }
table.atlas th:first-child, table.atlas td:first-child { position: sticky; left: 0; background: var(--paper);
  white-space: nowrap; }
table.atlas { border-collapse: separate; border-spacing: 0; }
table.atlas td, table.atlas th { padding-right: 1rem; }
.cards { display: grid; grid-template-columns: repeat(auto-fill, minmax(14rem, 1fr)); gap: 1rem; margin: 1rem 0; }
.card { border: 1px solid var(--line); padding: .6rem; } .card h3 { font-size: 1rem; }
.card svg { display: block; width: 100%; height: auto; background: none; min-width: 0; }
.card svg text { fill: var(--soft); font: 9px system-ui, sans-serif; }
.axis { stroke: var(--line); } .mine { stroke: var(--link); fill: none; stroke-width: 2; } .dot { fill: var(--link); }
.bar { fill: var(--link); } .track { fill: var(--tint); } .range { stroke: var(--ink); fill: none; }
"""
)

# Sorts a table by a column: by its numbers where it has some, rows without a value last.
_SCRIPT = """
for (const button of document.querySelectorAll("table.atlas th button")) {
  button.addEventListener("click", () => {
    const head = button.parentElement, table = head.closest("table"), body = table.tBodies[0];
    const column = [...head.parentElement.children].indexOf(head);
    const sign = head.getAttribute("aria-sort") === "ascending" ? -1 : 1;
    for (const other of head.parentElement.children) other.removeAttribute("aria-sort");
    head.setAttribute("aria-sort", sign > 0 ? "ascending" : "descending");
    const value = (row) => {
      const cell = row.cells[column], data = cell.querySelector("data");
      return data ? Number(data.value) : head.classList.contains("number") ? null : cell.textContent;
    };
    const rows = [...body.rows].map((row) => [value(row), row]);
    rows.sort(([a], [b]) => {
      if (a === null || b === null) return (a === null) - (b === null);
      return sign * (typeof a === "number" ? a - b : a.localeCompare(b));
    });
    body.append(...rows.map(([, row]) => row));
  });
}
"""


@dataclass
class _Values:
    """What the files say of one encoding."""

    losses: dict = field(default_factory=dict)  # by length, OfSeeds
    less_rope: tuple | None = None  # of the loss at the training length: mean, and ends of the interval
    accuracies: dict = field(default_factory=dict)  # by task, then length, OfSeeds
    answers: dict = field(default_factory=dict)  # by task and question
    costs: dict = field(default_factory=dict)  # by the name of the column
    options: dict = field(default_factory=dict)  # by experiment, where there are some
    rates: dict = field(default_factory=dict)  # learning rates, by task; of the language models by None


def render(found):
    results = {name: _counted(found.result_of(name)) for name in ("atlas", "synthetic")}
    values = {encoding.name: _Values() for encoding in found.encodings}
    _read_losses(results["atlas"], values)
    _read_accuracies(results["synthetic"], values)
    for name, result in results.items():
        _read_options(name, result, values)
    parts = [
        f"<h1>{words.ATLAS_TITLE}</h1>",
        f"<p>{_HOW}</p>",
        *(f'<p class="smoke"><strong>{escape(text)}</strong></p>' for text in _warnings(found)),
        *(f"<p>{escape(text)}</p>" for text in _missing(values)),
        f"<p>{escape(_chance(values))} A click on the head of a column sorts by it.</p>",
        "<h2>Language modelling</h2>",
        f"<p>{_LANGUAGE} {_models(results['atlas'], 'bytes')}</p>",
        _losses(found.encodings, values),
        _edges(results["atlas"]),
        "<h2>Synthetic tasks</h2>",
        f"<p>{_tasks(values)} {_models(results['synthetic'], 'symbols')}</p>",
        _accuracies(found.encodings, values),
        _edges(results["synthetic"]),
        _answers(found.encodings, values, results["synthetic"]),
        "<h2>Cost</h2>",
        f"<p>{_COST}</p>",
        _costs(found.encodings, values),
        "<h2>One by one</h2>",
        _cards(found.encodings, values),
        *(_provenance(name, result) for name, result in results.items() if result is not None),
    ]
    head = (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{words.ATLAS_TITLE}</title>\n<style>{_STYLE}</style>\n</head>\n"
    )
    script = f"<script>{_SCRIPT}</script>"
    return head + "<body>\n" + "\n".join(part for part in parts if part) + f"\n{script}\n</body>\n</html>\n"


def _chance(values):
    """Which encodings are the same, and how far apart their values are."""
    text = (
        "On text, mrope is rope, axial-nd is axial, and log-n is none up to the training length. What differs between "
        "the two is rounding, by which single runs differ further than their means, and the rate that was chosen. "
        "Other differences have to exceed it."
    )
    pairs = [(values[a], values[b]) for a, b in _SAME if a in values and b in values]
    losses = [_difference(a.losses, b.losses) for a, b in pairs if a.losses and b.losses]
    if losses:
        text += f" Means of the loss at the training length differ by up to {max(losses):.3f} nats."
    by_task = {}
    for a, b in pairs:
        for task in a.accuracies.keys() & b.accuracies.keys():
            by_task.setdefault(task, []).append(100 * _difference(a.accuracies[task], b.accuracies[task]))
    if by_task:
        points = ", ".join(f"{max(found):.1f} ({task})" for task, found in sorted(by_task.items()))
        text += f" Means of the accuracy differ by up to so many points: {points}."
    return text


def _difference(by_length, other):
    """Between means at the shortest length."""
    return abs(by_length[min(by_length)].mean - other[min(other)].mean)


def _models(result, of):
    return "" if result is None else designs.models(result, of)


def _tasks(values):
    """What the accuracies are, and what each task asks."""
    names = dict.fromkeys(task for of in values.values() for task in of.accuracies)
    asked = "; ".join(f"{name}: {_TASKS[name]}" for name in names if name in _TASKS)
    return _ACCURACY_IS + (f" In parentheses, how often the commonest answer is right: {asked}." if asked else "")


def _counted(result):
    return None if result is None or result.why_not_counted else result


def _by_arm(result, pattern):
    """{arm: {the pattern's groups: OfSeeds}}"""
    found = {}
    for measure in result.measures:
        match = pattern.match(measure.name)
        if match:
            found.setdefault(measure.arm, {}).setdefault(match.groups(), []).append(measure.value)
    return {arm: {key: OfSeeds(tuple(of_seeds)) for key, of_seeds in cells.items()} for arm, cells in found.items()}


def _read_losses(result, values):
    if result is None:
        return
    for arm, cells in _by_arm(result, _LOSS).items():
        if arm in values:
            values[arm].losses = {int(tokens): loss for (tokens,), loss in cells.items()}
    for encoding, cells in _named_rows(result, values, _LOSS):
        encoding.rates[None] = cells.get(_RATE)
        for name in filter(_LESS_ROPE.match, cells):
            encoding.less_rope = (cells[name], *(cells.get(end) for end in _ENDS))
        encoding.costs = {
            name: value for name, value in cells.items() if name not in _OTHER and not _LESS_ROPE.match(name)
        }


def _named_rows(result, values, without):
    """(_Values, {column: cell}) of each row of an encoding, less the columns that match."""
    for row in result.table.rows:
        cells = dict(zip(result.table.columns, row, strict=True))
        if cells.get("encoding") in values:
            yield values[cells["encoding"]], {name: cell for name, cell in cells.items() if not without.match(name)}


def _read_accuracies(result, values):
    if result is None:
        return
    for arm, cells in _by_arm(result, _ACCURACY).items():
        if arm in values:
            for (task, tokens), accuracy in cells.items():
                values[arm].accuracies.setdefault(task, {})[int(tokens)] = accuracy
    for encoding, cells in _named_rows(result, values, _TABLE_ACCURACY):
        encoding.rates[cells.get("task")] = cells.get(_RATE)
        questions = (name for name in cells if name not in _OTHER)
        encoding.answers |= {(cells.get("task"), question): cells[question] for question in questions}


def _read_options(experiment, result, values):
    for arm in result.arms if result else []:
        encoding, _, options = arm.partition(":")
        if options and encoding in values and encoding not in result.arms:
            values[encoding].options[experiment] = options


def _interval_cell(estimate):
    """A difference and, below it, its interval."""
    if estimate is None or not all(map(words.is_number, estimate)):
        return _number_cell(None, _NO_VALUE)
    mean, low, high = estimate
    return _value_cell(mean, f"{mean:+.3f}", f"[{low:+.3f}, {high:+.3f}]")


def _warnings(found):
    for name in ("atlas", "synthetic"):
        result = found.result_of(name)
        if result is None:
            continue
        if result.why_not_counted:
            yield f"The result of {name} is not shown: {'; '.join(result.why_not_counted)}."
        elif result.is_smoke_run:
            yield f"The result of {name} is a smoke run (scale tiny): it says nothing about any encoding."
        for reason in found.stale(result):
            yield f"The result of {name} is stale: {reason}."


def _missing(values):
    """Sentences on encodings whose runs are not made, or have no values."""
    for experiment, what, has_values, has_row in (
        ("atlas", "language models", lambda of: of.losses, lambda of: of.costs),
        ("synthetic", "synthetic tasks", lambda of: of.accuracies, lambda of: of.answers),
    ):
        without = {name: has_row(of) for name, of in values.items() if not has_values(of)}
        names = [name for name, is_made in without.items() if not is_made]
        if names:
            which = "all encodings" if len(names) == len(values) else ", ".join(names)
            yield f"Not made yet, and a dash below: the {what} of {which} (roformer reproduce {experiment})."
        diverged = [name for name, is_made in without.items() if is_made]
        if diverged:
            yield f"Diverged with every seed, and a dash below: the {what} of {', '.join(diverged)}."


def _columns(cells):
    """The keys of several dicts, rising."""
    return sorted({key for each in cells for key in each})


def _number_cell(value, otherwise, form=words.number):
    if not words.is_number(value):
        return f'<td class="number">{escape(str(otherwise if value is None else value))}</td>'
    return _value_cell(value, form(value))


def _value_cell(value, text, below=""):
    """A number as `text`, with what belongs to it below."""
    text = escape(text) + (f'<br><span class="soft">{below}</span>' if below else "")
    return f'<td class="number"><data value="{value!r}">{text}</data></td>'


def _seeds_cell(of_seeds, otherwise, form):
    """The mean and, below it, the lowest and highest of several seeds."""
    if of_seeds is None:
        return _number_cell(None, otherwise)
    return _value_cell(of_seeds.mean, form(of_seeds.mean), "–".join(map(form, of_seeds.ends)))


def _table(heads, rows, kind=' class="number"'):
    """kind: of the columns after the first."""
    names = "".join(
        f'<th{kind if i else ""}><button type="button">{escape(name)}</button></th>' for i, name in enumerate(heads)
    )
    body = "\n".join(f"<tr>{''.join(cells)}</tr>" for cells in rows)
    table = f'<table class="atlas">\n<thead><tr>{names}</tr></thead>\n<tbody>\n{body}\n</tbody></table>'
    return f'<div class="wide">{table}</div>'


def _name_cell(encoding):
    return f'<td title="{escape(encoding.summary)}">{escape(encoding.name)}</td>'


def _losses(encodings, values):
    lengths = _columns(of.losses for of in values.values())
    is_compared = any(of.less_rope for of in values.values())
    rows = []
    for encoding in encodings:
        losses = values[encoding.name].losses
        otherwise = _CANNOT_READ if losses else _NO_VALUE
        rows.append(
            [
                _name_cell(encoding),
                *(_seeds_cell(losses.get(length), otherwise, "{:.3f}".format) for length in lengths),
                *([_interval_cell(values[encoding.name].less_rope)] if is_compared else []),
                *([_number_cell(values[encoding.name].rates.get(None), _NO_VALUE)] if lengths else []),
            ]
        )
        rows[-1] += [_number_cell(None, _NO_VALUE)] * (not lengths)
    heads = [f"{length} bytes" for length in lengths or ["at its"]]
    heads += [f"{heads[0]}, less rope's"] if is_compared else []
    return _table(["encoding", *heads, *([_RATE] if lengths else [])], rows)


def _accuracies(encodings, values):
    tasks = list(dict.fromkeys(task for of in values.values() for task in of.accuracies))
    columns = [
        (task, length) for task in tasks for length in _columns(of.accuracies.get(task, {}) for of in values.values())
    ]
    rows = []
    for encoding in encodings:
        of = values[encoding.name].accuracies
        cells = [
            _seeds_cell(of.get(task, {}).get(length), _CANNOT_READ if task in of else _NO_VALUE, words.percent)
            for task, length in columns
        ]
        cells += [_number_cell(values[encoding.name].rates.get(task), _NO_VALUE) for task in tasks]
        rows.append([_name_cell(encoding), *(cells or [_number_cell(None, _NO_VALUE)])])
    heads = [f"{task}, {length}" for task, length in columns] + [f"{task}, {_RATE}" for task in tasks]
    return _table(["encoding", *(heads or ["accuracy"])], rows)


def _edges(result):
    """A sentence on the rates that were the lowest or highest of those tried; "" without any."""
    edges = [(tried.arm, tried.edge()) for tried in result.rates] if result else []
    named = ", ".join(f"{arm} ({words.number(rate)})" for arm, rate in edges if rate is not None)
    if not named:
        return ""
    text = f"The learning rate is the lowest or the highest of those tried, and a better one may lie beyond: {named}."
    return f"<p>{escape(text)}</p>"


def _answers(encodings, values, result):
    """What the experiment says that each encoding can do, and what the words mean."""
    columns = list(dict.fromkeys(key for of in values.values() for key in of.answers))
    if not columns:
        return ""
    rows = []
    for encoding in encodings:
        answers = (values[encoding.name].answers.get(column) or _NO_VALUE for column in columns)
        rows.append([_name_cell(encoding), *(f"<td>{escape(str(answer))}</td>" for answer in answers)])
    table = _table(["encoding", *(f"{task}: {question}" for task, question in columns)], rows, kind="")
    return f"<p>{escape(_meaning(result))}</p>\n{table}"


def _meaning(result):
    """What “can do it” and the others mean, with the limits of the experiment's rule; "" where the file lacks them."""
    rule = result.rules.get("X-20", {})
    # In the order of reproduce/src/rules.cpp.
    limits = [part.get("above") for part in (*rule.get("preconditions", []), *rule.get("parts", []))]
    if len(limits) != 3 or not all(map(words.is_number, limits)):
        return ""
    can, beyond, carries = (words.number(100 * abs(limit)) for limit in limits)
    return (
        f"“can do it”: the accuracy at the training length is above {can} %. “not learned”: it is below that after "
        f"these steps, and more of them may change it. “better than none”: it is above that of "
        f"none, a model without an encoding, by more than {beyond} points; where it is not, the task says nothing "
        "about the encoding. “carries it over”, of a task that it can do: in longer rows the accuracy is lower by less "
        f"than {carries} points. The answer is yes or no where the seeds show it, at the level of the verdicts and "
        "corrected for the number of encodings, and otherwise “not shown”."
    )


def _cost_form(costs):
    """Numbers of a column in one form: as many decimals in each row."""
    return "{:,.2f}".format if any(isinstance(cost, float) for cost in costs) else words.number


def _costs(encodings, values):
    columns = list(dict.fromkeys(name for of in values.values() for name in of.costs))
    forms = {name: _cost_form([of.costs.get(name) for of in values.values()]) for name in columns}
    rows = [
        [
            _name_cell(encoding),
            *(
                _number_cell(values[encoding.name].costs.get(name), _NO_VALUE, forms.get(name, words.number))
                for name in columns or [""]
            ),
        ]
        for encoding in encodings
    ]
    return _table(["encoding", *(units.headings("atlas", columns) or ["time of attention"])], rows)


def _cards(encodings, values):
    reach = small_multiples.Reach.of([of.losses for of in values.values()])
    cards = []
    for encoding in encodings:
        of = values[encoding.name]
        pictures = []
        if of.losses:
            pictures.append(small_multiples.loss_by_length(encoding.name, of.losses, reach))
        if of.accuracies:
            pictures.append(small_multiples.accuracy_bars(encoding.name, of.accuracies))
        drawn = "\n".join(pictures) or f"<p>{_NO_VALUE}</p>"
        cards.append(
            f'<div class="card"><h3>{escape(encoding.name)}</h3>\n'
            f'<p class="soft">{escape(encoding.summary)}. {escape(encoding.source)}{escape(_options(of))}</p>\n'
            f"{drawn}</div>"
        )
    how = (
        "Loss by length, on the same axes for every encoding; bars are accuracies from 0 to 100 %, one for each length "
        "from the shortest. Thin lines go from the lowest to the highest of the seeds."
    )
    if reach.is_clipped:
        how += (
            " The axis of losses ends at ln 256 = 5.545 nats per byte, the loss of guessing all bytes alike; losses "
            "above it are triangles at its end."
        )
    return f'<p class="soft">{how}</p>\n<div class="cards">\n' + "\n".join(cards) + "\n</div>"


def _options(of):
    said = "; ".join(f"{options} in {experiment}" for experiment, options in of.options.items())
    return f". Options: {said}" if said else ""


def _provenance(name, result):
    lines = "<br>".join(
        f"{escape(what)} <code>{escape(command)}</code><br>{escape(facts)}"
        for what, command, facts in words.provenance(result)
    )
    command = (
        f"To make it again: <code>{escape(designs.command(result))}</code>, then <code>{escape(words.COMMAND)}</code>."
    )
    return f'<p class="soft">{escape(name)}, {escape(words.run_line(result))}. {command}<br>{lines}</p>'
