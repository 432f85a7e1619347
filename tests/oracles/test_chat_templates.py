"""Chat templates against transformers' own rendering by Jinja."""

import random
from pathlib import Path

import pytest
import transformers
from transformers.utils.chat_template_utils import render_jinja_template

import roformer_cpp
from decoder_embedders import ending_tokenizer

USER = {"role": "user", "content": "  Hello,\n how are you? "}
SYSTEM = {"role": "system", "content": "You are <kind> & 'short'."}
ANSWER = {"role": "assistant", "content": "<think>\nhm\n</think>\n\nFine. 中文"}
PARAMETERS = {"city": {"type": "string", "enum": ["a", "b"]}, "days": {"type": "integer", "default": 2.5}}
PARAMETERS = {"type": "object", "properties": PARAMETERS, "required": ["city"]}
TOOL = {"name": "weather", "description": 'The "weather"', "parameters": PARAMETERS}
TOOL = {"type": "function", "function": TOOL}
CALL = {"name": "weather", "arguments": {"city": "Bonn", "days": 1}}
CALL = {"role": "assistant", "content": "", "tool_calls": [{"type": "function", "function": CALL}]}
CHATS = [
    [USER],
    [SYSTEM, USER, ANSWER, USER],
    [USER, CALL, {"role": "tool", "name": "weather", "content": "22.0"}, ANSWER | {"reasoning_content": "r"}, USER],
    [{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "image"}, {"type": "text", "text": " b"}]}],
    [USER, CALL | {"content": None, "reasoning_content": None}],
    [USER, ANSWER | {"reasoning_content": None, "reasoning": "r", "tool_calls": None}, USER],
    [USER, USER],
    [],
]
TOKENS = {"bos_token": "<s>", "eos_token": "</s>"}
VALUES = {"i": 7, "j": -3, "x": 2.5, "s": "a bc  d", "u": "é中\u2028b\n", "e": "", "t": True, "f": False, "n": None}
VALUES |= {"l": [3, 1, 2], "w": ["b", "A", "c", "a"], "m": {"k": 1, "items": [1], "z": {"y": "x"}}}
VALUES |= {"o": [{"r": "a", "v": 1}, {"r": "b"}, {"r": "a", "v": None}]}
FOLDER = Path(__file__).parent / "chat_templates"
TEMPLATES = sorted(FOLDER.glob("*.jinja"))  # in the ways of published ones
LINES = (FOLDER / "lines.txt").read_text(encoding="utf-8").removesuffix("\n").split("\n\n")
ERRORS = (FOLDER / "errors.txt").read_text(encoding="utf-8").splitlines()


@pytest.fixture(scope="module")
def ours(tmp_path_factory):
    """Renders by a tokenizer whose own template is CHATML."""
    folder = tmp_path_factory.mktemp("chat")
    ending_tokenizer(folder, bos_token="<s>", eos_token="</s>", chat_template=TEMPLATES[0].read_text(encoding="utf-8"))
    tokenizer = roformer_cpp.Tokenizer(folder)

    def render(template, chat, **variables):
        known = {key: variables.pop(key) for key in ("tools", "documents", "add_generation_prompt") if key in variables}
        options = {"chat_template": template, "tokenize": False, "variables": variables}
        return tokenizer.apply_chat_template(chat, **options, **known)

    render.tokenizer = tokenizer
    render.oracle = transformers.AutoTokenizer.from_pretrained(folder)
    return render


def theirs(oracle, template, chat, **variables):
    if chat:
        return oracle.apply_chat_template(chat, chat_template=template, tokenize=False, **variables)
    return render_jinja_template(conversations=[chat], chat_template=template, **TOKENS, **variables)[0][0]


def check(ours, template, chat, **variables):
    """The same text, or an error of both. Returns whether there was a text."""
    try:
        expected = theirs(ours.oracle, template, chat, **variables)
    except Exception:
        with pytest.raises(RuntimeError, match=r"line \d+ of the chat template: "):
            ours(template, chat, **variables)
        return False
    assert ours(template, chat, **variables) == expected, template
    return True


@pytest.mark.parametrize("path", TEMPLATES, ids=lambda path: path.stem)
def test_templates(path, ours):
    template, texts = path.read_text(encoding="utf-8") + "{{ messages }}", 0
    for chat in CHATS:
        for more in ({}, {"add_generation_prompt": True, "enable_thinking": False}, {"tools": [TOOL, TOOL]}):
            texts += check(ours, template, chat, **more)
        texts += check(ours, template, chat, documents=[{"title": "a", "text": "b"}])
    assert texts >= 5


def test_lines(ours):
    for line in LINES:
        assert check(ours, line, [USER], **VALUES), line
    assert check(ours, "".join(LINES), [USER], **VALUES)
    for line in ERRORS:
        assert not check(ours, line, [USER], **VALUES), line


ATOMS = ["i", "j", "x", "s", "e", "t", "f", "n", "l", "w", "m", "missing", "0", "2", "-1", "1.5", "'a'", "''", "[1]"]
ATOMS += ["m.k"]
BINARY = ["+", "-", "*", "/", "//", "~", "==", "!=", "<", ">=", "in", "not in", "and", "or"]
FILTERS = ["length", "first", "last", "list", "string", "tojson", "trim", "default('d')", "int", "float", "upper"]
FILTERS += ["join", "sort", "reverse|list"]
TESTS = ["defined", "none", "string", "number", "mapping", "iterable", "sequence", "true", "odd", "eq(2)", "in(l)"]


def expression(draw, depth):
    if depth == 0:
        return draw.choice(ATOMS)
    inner = lambda: expression(draw, depth - 1)  # noqa: E731
    return draw.choice(
        [
            lambda: f"({inner()} {draw.choice(BINARY)} {inner()})",
            lambda: f"{inner()} {draw.choice(BINARY)} {inner()}",
            lambda: f"({inner()})|{draw.choice(FILTERS)}",
            lambda: f"(({inner()}) is {draw.choice(['', 'not '])}{draw.choice(TESTS)})",
            lambda: f"({inner()} if {inner()} else {inner()})",
            lambda: f"({inner()})[{draw.choice(['0', '-1', repr('k')])}]",
            lambda: f"{draw.choice(['s', 'l', f'(e ~ {inner()})'])}[{draw.choice(['1:', ':-1', '::-1', '0:1'])}]",
            lambda: f"not {inner()}",
            lambda: f"[{inner()}, {inner()}]",
            lambda: f"{{'a': {inner()}}}",
        ]
    )()


def statements(draw, depth):
    if depth == 0:
        return draw.choice([" ", "\n", "a", " \n  b", "{# c #}"]) + "{{ " + expression(draw, draw.randint(0, 2)) + " }}"
    begin, end = draw.choice(["{%", "{%-", "\n  {%"]), draw.choice(["%}", "-%}", "%}\n", "%}  "])
    inner, value = statements(draw, depth - 1), expression(draw, 1)
    items = draw.choice(["l", "w", "m", "s", "[]"])
    return draw.choice(
        [
            f"{begin} if {value} {end}{inner}{begin} else {end}{statements(draw, depth - 1)}{begin} endif {end}",
            f"{begin} for p in {items} {end}{inner}{{{{ loop.index ~ p }}}}{begin} endfor {end}",
            f"{begin} set v = {value} {end}{inner}{{{{ v }}}}",
            f"{begin} set z {end}{inner}{begin} endset {end}{{{{ z }}}}",
            f"{inner}{statements(draw, depth - 1)}",
        ]
    )


def test_random(ours):
    draw = random.Random(5)
    texts = sum(check(ours, statements(draw, draw.randint(0, 3)), [USER], **VALUES) for _ in range(3000))
    assert texts > 1000


def test_of_tokenizer(ours):
    """The directory's template, with its special tokens, and ids."""
    for chats in (CHATS[1], [CHATS[0], CHATS[1]]):
        for options in ({"tokenize": False}, {"return_dict": False}, {"add_generation_prompt": True, "padding": True}):
            results = [each.apply_chat_template(chats, **options) for each in (ours.tokenizer, ours.oracle)]
            got, expected = (each["input_ids"] if "padding" in options else each for each in results)
            assert got == expected


GROW = "{{% set n = namespace(a={}) %}}{{% for a in range(900) %}}{{% set n.a = {} %}}{{% endfor %}}"


@pytest.mark.parametrize(
    "template, rule",
    [
        ("{% include 'x' %}", 'line 1 .*: a block must be if, for, set, .*, got "include"'),
        ("\n{{ messages", "line 2 .*: a tag must end with }}"),
        ("{% for a in l %}", "a block must end with endfor, got the end of the template"),
        ("{{ (1, ] }}", "brackets must be closed in order"),
        ("{{ 1 }", "got"),
        ("{{ 'a }}", "a string must end with '"),
        ("{{ f(*l) }}", "an argument must not be unpacked by"),
        ("{{ " + "(" * 300 + "1" + ")" * 300 + " }}", "must be nested at most 200 times"),
        ("{{ " + "+".join(["1"] * 5000) + " }}", "at most 500 operators in a row"),
        ("{% for a in range(90000) %}" * 2 + "{% endfor %}" * 2, "must end within 20000000 steps"),
        ("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "calls must be nested at most 1000 times"),
        (GROW.format("'ab'", "n.a + n.a"), "at most 64 MiB"),
        (GROW.format("[]", "[n.a]"), "nested at most 200"),
        ("{% set n = namespace() %}{% set n.a = n %}", "a namespace must not be an item of another value"),
        ("{{ 'a' * 999999999 }}", "at most 64 MiB"),
        ("{{ 9223372036854775807 + 1 }}", "an integer must be below 2\\^63"),
        ("{{ 'é' | upper }}", "the case of letters outside ASCII"),
        ("{{ s | wordcount }}", 'the filter "wordcount" is not computed'),
    ],
)
def test_refused(template, rule, ours):
    with pytest.raises(RuntimeError, match=rule):
        ours(template, [USER], **VALUES)


def test_arguments(ours):
    tokenizer = ours.tokenizer
    with pytest.raises(ValueError, match="must have the chat template other, got none"):
        tokenizer.apply_chat_template([USER], chat_template="other")
    with pytest.raises(TypeError, match="a message must be a dict, got"):
        tokenizer.apply_chat_template([[["a"]]])
    with pytest.raises(ValueError, match="must consist of JSON values"):
        tokenizer.apply_chat_template([{"role": "user", "content": {1}}])
