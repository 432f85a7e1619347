"""Texts of random models under JSON schemas, which the package jsonschema validates."""

import json
import random
import urllib.parse

import jsonschema
import pytest

from chat_model import save_chat_model
from roformer_cpp import Engine

SCHEMAS = 120


@pytest.fixture(scope="module")
def engine(tmp_path_factory):
    folder = tmp_path_factory.mktemp("model")
    save_chat_model(folder, max_position_embeddings=4096)
    return Engine(folder)


def name(chance):
    return chance.choice(["a", "id", "äé", 'q"\\', "items", "x y", "\n", "𝄞"]) + chance.choice(["", "b", "1"])


def bounds(chance, low, high, least, most):
    """Some of two keywords with ascending numbers."""
    numbers = sorted(chance.choice([chance.randint(least, most), chance.uniform(least, most)]) for _ in range(2))
    return {key: value for key, value in zip((low, high), numbers, strict=True) if chance.random() < 0.6}


def lengths(chance, low, high, most):
    first, second = sorted(chance.randint(0, most) for _ in range(2))
    return {low: first, high: second} if chance.random() < 0.7 else {high: second}


def make_string(chance, _):
    kind = chance.randrange(4)
    if kind == 0:
        return {"pattern": chance.choice([r"^[a-f]{2,4}$", r"^(\w|é)+\.x?$", r"^a|[^\d]b$", r"\d{3}", '^[^a"]\\\\.$'])}
    if kind == 1:
        return {"format": chance.choice(["date", "time", "date-time", "uuid", "ipv4", "email"])}
    return lengths(chance, "minLength", "maxLength", 6)


def make_number(chance, type_):
    wide = chance.choice([1, 20, 3000, 10**7])
    names = chance.choice([("minimum", "maximum"), ("minimum", "exclusiveMaximum"), ("exclusiveMinimum", "maximum")])
    schema = bounds(chance, *names, -wide, wide)
    if type_ == "integer" and len(schema) == 2 and max(schema.values()) - min(schema.values()) < 2:
        return {}
    return schema


def make_array(chance, depth):
    schema = lengths(chance, "minItems", "maxItems", 3)
    if chance.random() < 0.8:
        schema["items"] = make_schema(chance, depth + 1)
    if chance.random() < 0.3:
        schema["prefixItems"] = [make_schema(chance, depth + 1) for _ in range(chance.randint(1, 2))]
    return schema


def make_object(chance, depth):
    names = list({name(chance) for _ in range(chance.randint(0, 4))})
    schema = {"properties": {key: make_schema(chance, depth + 1) for key in names}}
    schema["required"] = [key for key in names if chance.random() < 0.5]
    others = chance.choice([None, False, False, {"type": "boolean"}, {"type": "null"}])
    if others is not None:
        schema["additionalProperties"] = others
        if others:
            schema["required"].append("zz")
    return schema


def make_schema(chance, depth=0):
    if depth > 2 or chance.random() < 0.15:
        return chance.choice(
            [{"const": {"a": [1, "é"]}}, {"enum": [1, "a", None, 'b"\\', 2.5]}, {"type": "boolean"}, {"type": "null"},
             {"enum": [1, "a", 2.5, 3.0], "type": ["integer", "string"]}]
        )  # fmt: skip
    if chance.random() < 0.15:
        return {"anyOf": [make_schema(chance, depth + 1) for _ in range(chance.randint(1, 3))], "title": "t"}
    kinds = {"string": make_string, "integer": make_number, "number": make_number, "array": make_array,
             "object": make_object}  # fmt: skip
    type_ = chance.choice([*kinds, "object", "array"])
    own = make_number(chance, type_) if kinds[type_] is make_number else kinds[type_](chance, depth)
    return {"type": [type_, "null"] if chance.random() < 0.1 else type_} | own


def check(engine, schema, seed, tokens=600):
    """The number of texts that came to their end, all of which must be valid."""
    validator = jsonschema.Draft202012Validator(schema)
    validator.check_schema(schema)
    options = {"json_schema": schema, "sample": True, "seed": seed, "max_new_tokens": tokens}
    texts = engine.generate(["a", "the people", "3"], **options)
    ended = [text["text"] for (text,) in texts if text["stopped"]]
    for text in ended:
        validator.validate(json.loads(text))
    return len(ended)


def test_random_schemas(engine):
    ended = 0
    for seed in range(SCHEMAS):
        schema = make_schema(random.Random(seed))
        try:
            ended += check(engine, schema, seed)
        except (jsonschema.ValidationError, json.JSONDecodeError, ValueError, RuntimeError) as error:
            raise AssertionError(f"{seed}: {json.dumps(schema)}") from error
    assert ended > 2.5 * SCHEMAS


def tagged(name, required=True, **properties):
    """As pydantic writes a model of a tagged union."""
    kind = {"const": name, "title": "Kind", "type": "string"} | ({} if required else {"default": name})
    schema = {"type": "object", "properties": {"kind": kind} | properties}
    return schema | ({"required": ["kind", *properties]} if required else {})


def union(*names, **more):
    return {"oneOf": [{"$ref": f"#/$defs/{name}"} for name in names]} | more


BY_KIND = {"discriminator": {"propertyName": "kind", "mapping": {"leaf": "#/$defs/leaf", "pair": "#/$defs/pair"}}}
TREE = {
    "leaf": tagged("leaf", required=False, v={"type": "boolean"}),
    "pair": tagged("pair", a=union("leaf", "pair", **BY_KIND), b={"type": "null"}),
}
NEXT = {"anyOf": [{"$ref": "#/$defs/node"}, {"type": "null"}]}
NODE = {"type": "object", "properties": {"v": {"type": "boolean"}, "next": NEXT}, "required": ["v", "next"]}


@pytest.mark.parametrize(
    "schema",
    [
        {"$ref": "#/$defs/node", "$defs": {"node": NODE}},
        {"type": "array", "items": {"$ref": "#"}, "maxItems": 2},
        {"allOf": [{"$ref": "#/definitions/%"}], "definitions": {"%": {"type": "integer", "minimum": 7, "maximum": 7}}},
        {"oneOf": [{"type": "null"}, {"const": True, "type": "boolean"}]},
        union("leaf", "pair", **BY_KIND) | {"$defs": TREE},
        {"oneOf": [tagged("x", required=False), tagged("y", required=False, v={"enum": [1]}), {"type": "null"}]},
        {"oneOf": [{"properties": {"k": {"enum": [word]}}, "required": ["k"]} for word in ("a", "b")]},
        {"anyOf": [{"$ref": "#/$defs/leaf"}, {"$ref": "#/$defs/pair"}], "$defs": TREE} | BY_KIND,
        {"properties": {"b": {"minimum": -2, "exclusiveMaximum": -1}}, "required": ["b"]},
        {"type": "object", "additionalProperties": {"maximum": 1e-3, "exclusiveMinimum": 0}, "required": ["k"]},
        {"required": ["a"], "properties": {"b": {"type": "null"}}},
        {"type": "string", "pattern": "^[\\u00e0-\\u00ff]{1,3}[\\n\\t\\/]$", "title": "x", "x-y": 5},
        {"minItems": 2, "items": {"type": "boolean"}, "maxItems": 40},
    ],
)
def test_forms(schema, engine):
    assert sum(check(engine, schema, seed, tokens=900) for seed in range(4)) >= 4


def test_any_object_and_steps(engine):
    """Texts are JSON from the first token on, whatever the batch is, also as they stream."""
    options = dict(json_schema={"type": "object"}, sample=True, max_new_tokens=300, seed=2)
    prompts = ["a", "b", "c", "d", "e"]
    together = engine.generate(prompts, **options)
    alone = [engine.generate(prompt, **options)[0] for prompt in prompts]
    assert [text for (text,) in together] == alone
    assert "".join(engine.generate("c", stream=True, **options)) == alone[2]["text"]
    assert engine.generate(prompts, batch=2, **options) == together
    for text in alone:
        assert text["text"].lstrip().startswith("{")
        if text["stopped"]:
            assert isinstance(json.loads(text["text"]), dict)
    (greedy,) = engine.generate("a", json_schema={"enum": ["yes", "no"]})
    assert json.loads(greedy["text"]) in ("yes", "no") and greedy["stopped"]


@pytest.mark.parametrize(
    "schema, rule",
    [
        (5, "# must be an object or a boolean, got 5"),
        (False, "a schema must allow a text, got one that allows none"),
        ({"$ref": "#"}, "of a recursion without end"),
        ({"anyOf": [{"$ref": "#"}, {"type": "null"}]}, "a schema must have an object or an array between itself and"),
        ({"properties": {"a": {"$ref": "#"}}, "required": ["a"]}, "of a recursion without end"),
        ({"type": "string", "minLength": 3, "maxLength": 2}, "allows none"),
        ({"type": "integer", "minimum": 2, "exclusiveMaximum": 2}, "allows none"),
        ({"type": "text"}, '#/type must be one of JSON\'s types, got "text"'),
        ({"properties": {"a": {"not": {}}}}, "#/properties/a must have keywords that are computed"),
        ({"minLenght": 2}, 'got "minLenght"'),
        ({"type": "array", "uniqueItems": True}, "#/uniqueItems must be false"),
        ({"oneOf": [{"type": "integer"}, {"type": "number"}]}, "#/oneOf must have schemas of different types"),
        ({"oneOf": [tagged("x"), tagged("x")]}, "#/oneOf must have objects with different constants of a property"),
        ({"oneOf": [tagged(1), tagged(1.0)]}, "#/oneOf must have objects with different constants of a property"),
        ({"oneOf": [tagged([0]), tagged([-0.0])]}, "#/oneOf must have objects with different constants of a property"),
        ({"oneOf": [tagged({"a": 1, "b": 2}), tagged({"b": 2, "a": 1})]}, "#/oneOf must have objects with different"),
        ({"oneOf": [{"type": "object"}, {"type": ["object", "null"]}]}, "#/oneOf must have schemas of different types"),
        ({"oneOf": [{"properties": 5}, {"properties": {}}]}, "#/oneOf must have objects with different constants"),
        ({"allOf": [{}, {}]}, "#/allOf must have one schema, got 2"),
        ({"$ref": "#/$defs/a"}, "$ref must name a part of the schema"),
        ({"$ref": "http://x/y"}, "#/$ref must be within the schema"),
        ({"$ref": "#/$defs/a", "minimum": 1, "$defs": {"a": {}}}, "# must have $ref without other keywords"),
        ({"enum": [1], "minimum": 1}, '# must have enum without other keywords but type, got "minimum"'),
        ({"type": "string", "format": "uri"}, "#/format must be date, time"),
        ({"type": "string", "pattern": "(?=a)b"}, "a group with ?"),
        ({"type": "string", "pattern": "a\\b"}, "the escape \\b"),
        ({"type": "string", "pattern": "(a"}, "a group without )"),
        ({"type": "string", "pattern": "a{9999}{9999}"}, "where a character is wanted"),
        ({"type": "string", "pattern": "(a{9999}){9999}"}, "a schema must need at most 300000 states"),
        ({"type": "string", "pattern": "a", "maxLength": 2}, "must be without minLength and maxLength"),
        ({"type": "array", "minItems": -1}, "#/minItems must be an integer of at least 0"),
        ({"type": "array", "minItems": 10**7}, "#/minItems must be at most 1000000"),
        ({"minimum": 1e30}, "#/minimum must be a number of at most 18 digits"),
        ({"minimum": 1, "exclusiveMinimum": 1}, "# must have minimum or exclusiveMinimum, got both"),
    ],
)  # fmt: skip
def test_refused(schema, rule, engine):
    with pytest.raises((RuntimeError, ValueError)) as error:
        engine.generate("a", json_schema=schema)
    assert rule in str(error.value).replace("\n", " ")


def test_refused_with_others(engine):
    for options in (dict(beams=2), dict(min_new_tokens=2)):
        with pytest.raises((RuntimeError, ValueError), match="must be without beams and min_new_tokens"):
            engine.generate("a", json_schema=True, **options)


@pytest.mark.parametrize("name", ["a b", "50%", "é", "a/b~", "%20", "%zz"])
def test_references_are_encoded(name, engine):
    """A fragment of a URI, as jsonschema reads it."""
    pointer = urllib.parse.quote(name.replace("~", "~0").replace("/", "~1"))
    schema = {"$ref": f"#/$defs/{pointer}", "$defs": {name: {"const": [1, "x"]}}}
    (result,) = engine.generate("a", json_schema=schema, max_new_tokens=20)
    jsonschema.validate(json.loads(result["text"]), schema)


def test_ambiguous(engine):
    """A schema by which the ways to read a text grow with its depth."""
    levels = {"10": {"type": "null"}}
    for level in range(10):
        item = {"type": "array", "prefixItems": [{"$ref": f"#/$defs/{level + 1}"}], "minItems": 1, "maxItems": 1}
        levels[str(level)] = {"anyOf": [item, item | {"title": "b"}, item | {"title": "c"}]}
    with pytest.raises((RuntimeError, ValueError), match="must read a text in at most 4096 ways at once"):
        engine.generate("a", json_schema={"$ref": "#/$defs/0", "$defs": levels}, max_new_tokens=600)
