"""/v1/chat/completions against transformers, and as OpenAI's client calls it."""

import functools
import itertools
import json
import re
from concurrent.futures import ThreadPoolExecutor

import jsonschema
import numpy as np
import pytest
import torch
import transformers

import tolerances
from chat_model import TEMPLATE, save_channel_model, save_chat_model
from server_case import serving

CHAT = [{"role": "user", "content": "ab c"}, {"role": "assistant", "content": "d"}, {"role": "user", "content": "e"}]
OPTIONS = {"model": "", "max_completion_tokens": 6, "temperature": 0}


@pytest.fixture(scope="module")
def server(folders):
    with serving("--model", folders["causal"], folders["dense"], "--quiet") as server:
        yield server


def test_answer(server, folders):
    tokenizer = transformers.AutoTokenizer.from_pretrained(folders["causal"])
    model = transformers.AutoModelForCausalLM.from_pretrained(folders["causal"])
    ids = tokenizer.apply_chat_template(CHAT, add_generation_prompt=True, return_tensors="pt", return_dict=False)
    added = model.generate(ids, max_new_tokens=6, do_sample=False, pad_token_id=0, eos_token_id=3)[0, ids.shape[1] :]
    result = server.post("/v1/chat/completions", {"messages": CHAT, **OPTIONS})
    (choice,) = result["choices"]
    assert choice["message"]["role"] == "assistant" and result["object"] == "chat.completion"
    expected = tokenizer.decode(added, skip_special_tokens=True)
    assert choice["message"]["content"].split() == expected.split()
    assert result["usage"]["prompt_tokens"] == ids.shape[1]
    assert choice["finish_reason"] == ("stop" if added[-1] == 3 else "length")


def test_forms_of_a_request(server):
    """Parts of a message, further variables, and tools reach the template."""

    def read(**changes):
        result = server.post("/v1/chat/completions", {"messages": CHAT, **OPTIONS, **changes})
        return result["usage"]["prompt_tokens"]

    parts = [{"type": "text", "text": "ab"}, {"type": "text", "text": "c"}]
    assert read(messages=[{"role": "user", "content": parts}, *CHAT[1:]]) == read()
    assert read(messages=[*CHAT, {"role": "assistant", "content": None}]) == read() + 1
    assert read(chat_template_kwargs={"more": " d d"}) == read() + 2
    assert read(messages=[CHAT[0], CHAT[1] | {"reasoning_content": "d d d"}, CHAT[2]]) == read() + 3
    tools = [{"type": "d", "function": {"name": "f"}}]
    assert read(tools=tools) == read() + 1 and read(tools=tools, tool_choice="none") == read()
    whole = server.post("/v1/chat/completions", {"messages": CHAT, "temperature": 0})
    assert whole["usage"]["completion_tokens"] > 6  # up to the end of the context


def passes_of(server, what):
    """The sequences or tokens that passes over the weights have computed, and their number."""
    text = server.call("GET", "/metrics")[1]
    return [float(re.search(rf"roformer_batch_{what}_{name} (.+)", text)[1]) for name in ("sum", "count")]


def test_answers_are_computed_together(server):
    """Each has the texts and numbers that it has alone, and passes over the weights are shared."""
    asked = [{"messages": CHAT[: 1 + 2 * (i % 2)], "seed": i, "max_completion_tokens": 20} for i in range(8)]
    for i, each in enumerate(asked[4:]):
        each |= {"n": 1 + i, "frequency_penalty": i / 2, "logprobs": True, "top_logprobs": i}
    alone = [server.post("/v1/chat/completions", each)["choices"] for each in asked]

    before = passes_of(server, "sequences")
    with ThreadPoolExecutor(len(asked)) as pool:
        together = list(pool.map(lambda each: server.post("/v1/chat/completions", each)["choices"], asked))
    assert together == alone
    sequences, passes = np.subtract(passes_of(server, "sequences"), before)
    assert sequences > passes  # which are equal where none is shared


@pytest.fixture(scope="module")
def bytes_folder(tmp_path_factory):
    """A model whose tokens are bytes, with a template of Llama's form of calls."""
    folder = tmp_path_factory.mktemp("bytes")
    save_chat_model(folder, TEMPLATE + '{# ipython "parameters" #}')
    return folder


@pytest.fixture(scope="module")
def bytes_server(bytes_folder):
    with serving("--model", bytes_folder, "--quiet") as server:
        yield server


@pytest.fixture(scope="module")
def client(bytes_server):
    openai = pytest.importorskip("openai", reason="NOT TESTED: openai is not installed")
    return openai.OpenAI(base_url=bytes_server.url + "/v1", api_key="none", max_retries=0)


@pytest.fixture(scope="module")
def oracle(bytes_folder):
    """transformers' logits after each token of a sequence, and its tokenizer."""
    model = transformers.AutoModelForCausalLM.from_pretrained(bytes_folder).double()
    tokenizer = transformers.AutoTokenizer.from_pretrained(bytes_folder)

    def logits(ids):
        with torch.no_grad():
            return model(torch.tensor([ids])).logits[0]

    return logits, tokenizer


def streamed(client, **options):
    """The deltas of a stream, joined, and why it ended."""
    text, calls, reason = "", [], None
    for part in client.chat.completions.create(**options, stream=True):
        text += part.choices[0].delta.content or ""
        calls += part.choices[0].delta.tool_calls or []
        reason = part.choices[0].finish_reason or reason
    return text, calls, reason


def test_schema_and_calls(client):
    """Answers under a schema, in the order of its properties; one that is a call of a tool, whole and streamed."""
    short = {"type": "string", "maxLength": 3}
    schema = {"type": "object", "properties": {"z": short, "a": {"type": "boolean"}}, "required": ["z", "a"]}
    options = dict(model="", messages=CHAT, seed=3, max_completion_tokens=200)
    answer = {"type": "json_schema", "json_schema": {"name": "x", "strict": True, "schema": schema}}
    whole = client.chat.completions.create(**options, response_format=answer).choices[0]
    assert list(json.loads(whole.message.content)) == ["z", "a"] and whole.finish_reason == "stop"
    assert streamed(client, **options, response_format=answer)[::2] == (whole.message.content, "stop")
    anything = client.chat.completions.create(**options, response_format={"type": "json_object"}).choices[0]
    assert anything.message.content.lstrip().startswith("{")
    call = {"name": "f", "parameters": {"b": [1, "é"], "a": None}}
    answer["json_schema"]["schema"] = {"const": call}
    options |= dict(response_format=answer, tools=[{"type": "function", "function": {"name": "f"}}])
    whole = client.chat.completions.create(**options).choices[0]
    assert whole.finish_reason == "tool_calls" and whole.message.content is None
    text, calls, reason = streamed(client, **options)
    assert (text, reason) == ("", "tool_calls") and calls[0].index == 0
    for made in (whole.message.tool_calls[0], calls[0]):
        assert made.function.name == "f" and json.loads(made.function.arguments) == call["parameters"]
        assert len(made.id) == 9 and made.id.isalnum()
    assert calls[0].id != whole.message.tool_calls[0].id
    del options["tools"]
    assert json.loads(client.chat.completions.create(**options).choices[0].message.content) == call


SIZE = {  # names may be keywords of schemas
    "$defs": {"const": {"$ref": "#/$defs/Size"}, "Size": {"enum": ["S", "L"]}},
    "properties": {"enum": {"$ref": "#/$defs/const"}},
    "required": ["enum"],
}
FLAG = {"type": "object", "properties": {"on": {"type": "boolean"}}, "required": ["on"]}
TOOLS = [{"type": "function", "function": {"name": n, "parameters": p}} for n, p in (("size", SIZE), ("flag", FLAG))]


def test_forced_calls(client):
    """Whatever the model would say, whole and streamed, with parameters that refer to their definitions."""
    schemas = {"size": SIZE, "flag": FLAG}
    names = set()
    named = {"type": "function", "function": {"name": "size"}}
    for seed, choice in itertools.product(range(6), ("required", named)):
        options = dict(model="", messages=CHAT, tools=TOOLS, tool_choice=choice, seed=seed, max_completion_tokens=200)
        whole = client.chat.completions.create(**options).choices[0]
        (call,) = whole.message.tool_calls
        jsonschema.validate(json.loads(call.function.arguments), schemas[call.function.name])
        assert whole.message.content is None and whole.finish_reason == "tool_calls"
        text, (other,), reason = streamed(client, **options)
        assert (text, dict(other.function), reason) == ("", dict(call.function), "tool_calls")
        names |= {call.function.name} if choice == "required" else set()
        assert choice == "required" or call.function.name == "size"
    assert names == set(schemas)


def test_forced_calls_in_other_formats(tmp_path):
    """What the prompt gets is no part of the answer, also where it ends within reasoning."""
    templates = {"a": "{# <tool_call> #}{{ '<think>\n' }}", "b": "{# [TOOL_CALLS] #}", "c": "{# <|channel|> #}"}
    for name, more in templates.items():
        (tmp_path / name).mkdir()
        save_chat_model(tmp_path / name, TEMPLATE + more)
    named = {"type": "function", "function": {"name": "flag"}}
    body = {"messages": CHAT, "tools": TOOLS, "max_completion_tokens": 200, "temperature": 0, "tool_choice": named}
    with serving("--model", *(f"{name}={tmp_path / name}" for name in templates), "--quiet") as server:
        for name in templates:
            (choice,) = server.post("/v1/chat/completions", body | {"model": name})["choices"]
            (call,) = choice["message"]["tool_calls"]
            assert call["function"]["name"] == "flag" and set(json.loads(call["function"]["arguments"])) == {"on"}
            assert choice["message"].keys() == {"role", "tool_calls", "content"}
            short = body | {"model": name, "max_completion_tokens": 4, "logprobs": True}
            (choice,) = server.post("/v1/chat/completions", short)["choices"]
            made = "".join(token["token"] for token in choice["logprobs"]["content"])
            assert (choice["message"], choice["finish_reason"]) == ({"role": "assistant", "content": made}, "length")


def test_content_beside_calls(tmp_path):
    """null is absent, as in transformers."""
    template = "{% for m in messages %}{{ m.content is defined }} {{ m.content is none }} {{ m.content }}{% endfor %}"
    _, tokenizer = save_chat_model(tmp_path, template)
    calls = [{"type": "function", "function": {"name": "f", "arguments": {}}}]
    lengths = []
    with serving("--model", tmp_path, "--quiet") as server:
        for content in ({"content": None}, {}, {"content": ""}):
            chat = [CHAT[0], {"role": "assistant", "tool_calls": calls, **content}, {"role": "tool", "content": "5"}]
            lengths.append(len(tokenizer.apply_chat_template(chat, add_generation_prompt=True, return_dict=False)))
            result = server.post("/v1/chat/completions", {"messages": chat, "max_tokens": 1})
            assert result["usage"]["prompt_tokens"] == lengths[-1]
    assert lengths[0] == lengths[1] != lengths[2]


def choices_of(parts):
    """The texts of streamed choices by their indices, and what their log-probabilities have."""
    texts, entries = {}, {}
    for choice in (choice for part in parts for choice in part.choices):
        is_chat = hasattr(choice, "delta")
        texts[choice.index] = texts.get(choice.index, "") + ((choice.delta.content if is_chat else choice.text) or "")
        if choice.logprobs:
            shown = choice.logprobs
            more = shown.content if is_chat else zip(shown.tokens, shown.token_logprobs, shown.text_offset, strict=True)
            entries.setdefault(choice.index, []).extend(more)
    return texts, entries


def test_several_choices(client, bytes_server):
    """They differ by their numbers, depend on nothing else, and grow together; greedy ones are equal."""
    chat = dict(model="", messages=CHAT, max_completion_tokens=12, seed=4)
    before = passes_of(bytes_server, "tokens")
    made = client.chat.completions.create(**chat, n=4)
    tokens, passes = np.subtract(passes_of(bytes_server, "tokens"), before)
    assert passes <= 14 and tokens >= made.usage.total_tokens - 4
    texts = [choice.message.content for choice in made.choices]
    assert [choice.index for choice in made.choices] == [0, 1, 2, 3] and len(set(texts)) == 4
    assert client.chat.completions.create(**chat).choices[0].message.content == texts[0]
    alone = client.chat.completions.create(**chat).usage
    assert made.usage.prompt_tokens == alone.prompt_tokens and made.usage.completion_tokens > 24
    parts = list(client.chat.completions.create(**chat, n=4, stream=True, stream_options={"include_usage": True}))
    assert choices_of(parts)[0] == dict(enumerate(texts)) and parts[-1].usage.total_tokens == made.usage.total_tokens
    assert parts[0].choices[0].delta.role == "assistant"
    usage = parts[-1].usage
    assert usage.prompt_tokens_details.cached_tokens == usage.prompt_tokens - 1  # the last one is computed
    both = dict(model="", prompt=["the people", "a"], max_tokens=9, seed=4, n=3)
    made = client.completions.create(**both)
    assert [choice.index for choice in made.choices] == list(range(6)) and len({c.text for c in made.choices}) == 6
    second = client.completions.create(**both | dict(prompt="a"))
    assert [choice.text for choice in made.choices[3:]] == [choice.text for choice in second.choices]
    parts = client.completions.create(**both | dict(prompt="a"), stream=True)
    assert list(choices_of(parts)[0].values()) == [choice.text for choice in second.choices]
    made = client.completions.create(**both, temperature=0)
    assert made.choices[3].text == made.choices[5].text != made.choices[0].text and made.usage.completion_tokens == 54


def test_log_probabilities(client, oracle):
    """transformers' of the model's distribution, whatever is drawn from; of whole texts and of streamed ones."""
    logits, tokenizer = oracle
    prompt = tokenizer.apply_chat_template(CHAT, add_generation_prompt=True, return_dict=False)
    for options in (dict(temperature=0, presence_penalty=2), dict(temperature=2, top_p=0.9, seed=3, n=2)):
        options |= dict(model="", messages=CHAT, max_completion_tokens=20, logprobs=True, top_logprobs=3)
        made = client.chat.completions.create(**options)
        for choice in made.choices:
            entries, ids = choice.logprobs.content, []
            for entry in entries:
                rows = logits(prompt + ids)[-1].log_softmax(-1)
                found = [i for i, text in enumerate(texts_of(tokenizer)) if text == bytes(entry.bytes)]
                ids.append(min(found, key=lambda i: abs(rows[i] - entry.logprob)))
                assert abs(rows[ids[-1]] - entry.logprob) < tolerances.T4_MAX * rows.abs().max()
                best = rows.topk(3)
                numbers, texts = zip(*((each.logprob, bytes(each.bytes)) for each in entry.top_logprobs), strict=True)
                np.testing.assert_allclose(numbers, best.values, rtol=tolerances.T4_MAX)
                assert texts == tuple(texts_of(tokenizer)[i] for i in best.indices)
            assert choice.message.content == tokenizer.decode(ids, skip_special_tokens=True)
        assert sum(len(choice.logprobs.content) for choice in made.choices) == made.usage.completion_tokens
        _, entries = choices_of(client.chat.completions.create(**options, stream=True))
        assert entries == {choice.index: choice.logprobs.content for choice in made.choices}
        short = client.chat.completions.create(**options | dict(top_logprobs=None)).choices[0].logprobs.content
        assert [each.logprob for each in short] == [each.logprob for each in made.choices[0].logprobs.content]
        assert all(each.top_logprobs == [] for each in short)


@functools.cache
def texts_of(tokenizer):
    """The bytes of every token."""
    from transformers.convert_slow_tokenizer import bytes_to_unicode

    known, special = {c: b for b, c in bytes_to_unicode().items()}, tokenizer.all_special_ids
    names = tokenizer.convert_ids_to_tokens(range(len(tokenizer)))
    return [name.encode() if i in special else bytes(known[c] for c in name) for i, name in enumerate(names)]


def test_log_probabilities_of_completions(client, oracle):
    logits, tokenizer = oracle
    options = dict(model="", prompt="the people", max_tokens=30, seed=2, logprobs=2)
    (made,) = client.completions.create(**options).choices
    shown = made.logprobs
    rows = logits(tokenizer.encode("the people"))[-1].log_softmax(-1)
    assert max(shown.top_logprobs[0].values()) == pytest.approx(float(rows.max()), rel=tolerances.T4_MAX)
    tokens = list(zip(shown.tokens, shown.token_logprobs, shown.text_offset, strict=True))
    for (token, number, offset), best in zip(tokens, shown.top_logprobs, strict=True):
        assert best[token] == number and 2 <= len(best) <= 3
        assert made.text[offset:].startswith(token) or token.startswith(("bytes:\\x", "<"))
    assert len(tokens) == 30 and any(token.startswith("bytes:\\x") for token in shown.tokens)
    _, entries = choices_of(client.completions.create(**options, stream=True))
    assert entries == {0: tokens}
    (made,) = client.completions.create(**options | dict(logprobs=0)).choices
    assert [list(best) for best in made.logprobs.top_logprobs] == [[token] for token in made.logprobs.tokens]


@pytest.mark.parametrize("with_draft", [False, True])
def test_penalties(with_draft, client, oracle, bytes_folder):
    """OpenAI's definitions over transformers' logits."""
    logits, tokenizer = oracle
    prompt = "the people the"
    begin = tokenizer.encode(prompt)
    no_end = {tokenizer.eos_token_id: -100}

    def expected(presence=0, frequency=0, repetition=1, bias=no_end):
        ids = []
        for _ in range(40):
            row = logits(begin + ids)[-1].clone()
            for token in set(begin + ids):
                row[token] = row[token] * repetition if row[token] < 0 else row[token] / repetition
            for token in set(ids):
                row[token] -= presence + frequency * ids.count(token)
            for token, value in bias.items():
                row[token] += value
            ids.append(int(row.argmax()))
        return tokenizer.decode(ids, skip_special_tokens=True)

    plain = tokenizer.encode(expected())
    cases = [
        ({}, {}),
        ({"presence_penalty": 2}, {"presence": 2}),
        ({"frequency_penalty": -0.5}, {"frequency": -0.5}),
        ({"presence_penalty": -2, "frequency_penalty": 1}, {"presence": -2, "frequency": 1}),
        ({"logit_bias": no_end | {plain[0]: -3, 9: 1.5}}, {"bias": no_end | {plain[0]: -3, 9: 1.5}}),
        ({"extra_body": {"repetition_penalty": 1.3}, "presence_penalty": 1}, {"repetition": 1.3, "presence": 1}),
    ]
    draft = ("--draft", bytes_folder) if with_draft else ()
    with serving("--model", bytes_folder, *draft, "--quiet") as server:
        asked = client.with_options(base_url=server.url + "/v1")
        texts = set()
        for given, theirs in cases:
            options = dict(model="", prompt=prompt, max_tokens=40, temperature=0, logit_bias=no_end) | given
            made = asked.completions.create(**options)
            assert made.choices[0].text == expected(**theirs), given
            texts.add(made.choices[0].text)
    assert len(texts) == len(cases)


def test_stops(client):
    """A text ends before the first of the strings, wherever tokens end, whole and streamed; ids of texts differ."""
    options = dict(model="", temperature=0, seed=-1)
    chats = options | dict(messages=CHAT, max_completion_tokens=30)
    texts = options | dict(prompt="the people", max_tokens=30)
    whole = client.chat.completions.create(**chats, stop=[]).choices[0].message.content
    of_text = client.completions.create(**texts).choices[0].text
    ids = set()
    for at in range(0, min(len(whole), len(of_text)) - 3):
        stop = [whole[at : at + 3], of_text[at : at + 3], "never"]
        expected, expected_text = (text[: min(text.find(s) % 1000 for s in stop)] for text in (whole, of_text))
        made = client.chat.completions.create(**chats, stop=stop)
        ids.add(made.id)
        assert (made.choices[0].message.content, made.choices[0].finish_reason) == (expected, "stop"), stop
        assert streamed(client, **chats, stop=stop) == (expected, [], "stop")
        assert client.completions.create(**texts, stop=stop).choices[0].text == expected_text
        parts = client.completions.create(**texts, stop=stop, stream=True)
        assert "".join(part.choices[0].text for part in parts) == expected_text
    assert len(ids) == at + 1 > 10
    half = whole[-2:] + "never"  # held back until the end
    assert streamed(client, **chats, stop=half)[0] == whole


def test_channels_and_a_draft(tmp_path):
    """The channels of gpt-oss; and proposals of a draft change nothing."""
    save_channel_model(tmp_path)
    with serving("--model", tmp_path, "--draft", tmp_path, "--quiet") as server:
        result = server.post("/v1/chat/completions", {"messages": CHAT, "temperature": 0, "max_tokens": 9})
        (choice,) = result["choices"]
        assert choice["message"] == {"role": "assistant", "reasoning_content": "The7", "content": ""}
        assert choice["finish_reason"] == "stop" and result["usage"]["completion_tokens"] == 6
        answer = {"type": "json_schema", "json_schema": {"schema": {"const": [True]}}}
        result = server.post("/v1/chat/completions", {"messages": CHAT, "response_format": answer})
        assert json.loads(result["choices"][0]["message"]["content"]) == [True]
        status, body = server.call("POST", "/v1/chat/completions", {"messages": CHAT, "n": 2})
        assert status == 400 and "a draft must be without beams and with one result" in body["error"]["message"]


def test_schema_refused(server, bytes_server):
    def refusal(server, answer):
        asked = {"messages": CHAT, **OPTIONS, "response_format": answer}
        status, body = server.call("POST", "/v1/chat/completions", asked)
        assert status == 400
        return body["error"]["message"]

    assert "type must be" in refusal(bytes_server, {"type": "xml"})
    assert "must have json_schema with a schema" in refusal(bytes_server, {"type": "json_schema"})
    schema = {"type": "json_schema", "json_schema": {"schema": {"not": {}}}}
    assert "must have keywords that are computed" in refusal(bytes_server, schema)
    assert "must have a tokenizer of bytes or of SentencePiece" in refusal(server, {"type": "json_object"})


@pytest.mark.parametrize(
    "changes, rule",
    [
        ({"messages": []}, "messages must be a list of at least one message"),
        ({"messages": ["a"]}, "a message must be an object with a role"),
        ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, "a part of a message must be a text"),
        ({"messages": [{"role": "user", "content": 5}]}, "the content of a message must be a text or a list of texts"),
        ({"n": 17}, "n must be an integer from 1 to 16"),
        ({"tool_choice": "all", "tools": [{}]}, "tool_choice must be auto or none or required"),
        ({"tool_choice": "required"}, "tool_choice must be with tools, got none"),
        ({"tool_choice": {"type": "function"}, "tools": [{}]}, "function must be given, got none"),
        ({"tool_choice": "required", "tools": [{}]}, "a chat template whose form of calls is known"),
        ({"top_logprobs": 2}, "top_logprobs must be with logprobs, got it alone"),
        ({"logprobs": True, "top_logprobs": 21}, "top_logprobs must be an integer from 0 to 20"),
        ({"presence_penalty": -2.5}, "presence_penalty must be a number from -2 to 2"),
        ({"logit_bias": {"a": 1}}, 'logit_bias must have ids of tokens with numbers, got "a": 1'),
        ({"logit_bias": {"1": None}}, 'logit_bias must have ids of tokens with numbers, got "1": null'),
        ({"logit_bias": {"1": 101}}, "logit_bias must be in -100..100, got 101"),
        ({"logit_bias": {"61": 1}}, "logit_bias must have ids in 0..60, got 61"),
        *(({"chat_template_kwargs": {name: 5}}, f"variables of a chat must be without {name}, which the chat gives")
          for name in ("messages", "add_generation_prompt", "documents", "sep_token")),
        ({"chat_template_kwargs": {"tools": []}}, "chat_template_kwargs must be without tools, which are a field"),
        *(({"tools": wrong}, "tools must be a list of objects") for wrong in ("x", ["x"], {"type": "function"})),
        ({"response_format": {}}, "response_format must have a type, got none"),
        ({"chat_template_kwargs": {"refused": True}}, "no more"),
        ({"model": "dense"}, "this route needs a causal language model"),
    ],
)  # fmt: skip
def test_refused(changes, rule, server):
    status, body = server.call("POST", "/v1/chat/completions", {"messages": CHAT, **OPTIONS, **changes})
    assert status == 400 and rule in body["error"]["message"], body


def test_longer_than_the_context(bytes_server):
    long = [{"role": "user", "content": "the people " * 600}]
    status, body = bytes_server.call("POST", "/v1/chat/completions", {"messages": long, **OPTIONS})
    assert status == 413 and "fewer tokens than the model's 512" in body["error"]["message"], body
