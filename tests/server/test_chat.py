"""/v1/chat/completions against transformers, and as OpenAI's client calls it."""

import json
import re
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import transformers

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


def test_answers_are_computed_together(server):
    """Each has the text that it has alone, and passes over the weights are shared."""
    asked = [{"messages": CHAT[: 1 + 2 * (i % 2)], "seed": i, "max_completion_tokens": 20} for i in range(8)]
    alone = [server.post("/v1/chat/completions", each)["choices"] for each in asked]

    def batches():
        text = server.call("GET", "/metrics")[1]
        return [float(re.search(rf"roformer_batch_sequences_{name} (.+)", text)[1]) for name in ("sum", "count")]

    before = batches()
    with ThreadPoolExecutor(len(asked)) as pool:
        together = list(pool.map(lambda each: server.post("/v1/chat/completions", each)["choices"], asked))
    assert together == alone
    sequences, passes = np.subtract(batches(), before)
    assert sequences > passes  # which are equal where none is shared


@pytest.fixture(scope="module")
def bytes_server(tmp_path_factory):
    """A model whose tokens are bytes, with a template of Llama's form of calls."""
    folder = tmp_path_factory.mktemp("bytes")
    save_chat_model(folder, TEMPLATE + '{# ipython "parameters" #}')
    with serving("--model", folder, "--quiet") as server:
        yield server


def streamed(client, **options):
    """The deltas of a stream, joined, and why it ended."""
    text, calls, reason = "", [], None
    for part in client.chat.completions.create(**options, stream=True):
        text += part.choices[0].delta.content or ""
        calls += part.choices[0].delta.tool_calls or []
        reason = part.choices[0].finish_reason or reason
    return text, calls, reason


def test_schema_and_calls(bytes_server):
    """Answers under a schema, in the order of its properties; one that is a call of a tool, whole and streamed."""
    openai = pytest.importorskip("openai", reason="NOT TESTED: openai is not installed")
    client = openai.OpenAI(base_url=bytes_server.url + "/v1", api_key="none", max_retries=0)
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


def test_stops(bytes_server):
    """A text ends before the first of the strings, wherever tokens end, whole and streamed; ids of texts differ."""
    openai = pytest.importorskip("openai", reason="NOT TESTED: openai is not installed")
    client = openai.OpenAI(base_url=bytes_server.url + "/v1", api_key="none", max_retries=0)
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


def test_schema_refused(server, bytes_server):
    def refusal(server, answer):
        status, body = server.call(
            "POST", "/v1/chat/completions", {"messages": CHAT, **OPTIONS, "response_format": answer}
        )
        assert status == 400
        return body["error"]["message"]

    assert "type must be" in refusal(bytes_server, {"type": "xml"})
    assert "must have json_schema with a schema" in refusal(bytes_server, {"type": "json_schema"})
    schema = {"type": "json_schema", "json_schema": {"schema": {"not": {}}}}
    assert "must have keywords that are computed" in refusal(bytes_server, schema)
    assert "must have a tokenizer of bytes or of SentencePiece" in refusal(server, {"type": "json_object"})


def test_client(server):
    openai = pytest.importorskip("openai", reason="NOT TESTED: openai is not installed")
    client = openai.OpenAI(base_url=server.url + "/v1", api_key="none", max_retries=0)
    whole = client.chat.completions.create(messages=CHAT, **OPTIONS)
    parts = list(
        client.chat.completions.create(messages=CHAT, **OPTIONS, stream=True, stream_options={"include_usage": True})
    )
    assert parts[0].choices[0].delta.role == "assistant"
    text = "".join(part.choices[0].delta.content or "" for part in parts if part.choices)
    assert text == whole.choices[0].message.content
    assert parts[-2].choices[0].finish_reason == whole.choices[0].finish_reason
    usage = parts[-1].usage
    assert usage.total_tokens == whole.usage.total_tokens and not parts[-1].choices
    assert usage.prompt_tokens_details.cached_tokens == usage.prompt_tokens - 1  # the last one is computed


@pytest.mark.parametrize(
    "changes, rule",
    [
        ({"messages": []}, "messages must be a list of at least one message"),
        ({"messages": ["a"]}, "a message must be an object with a role"),
        ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, "a part of a message must be a text"),
        ({"messages": [{"role": "user", "content": 5}]}, "the content of a message must be a text or a list of texts"),
        ({"n": 2}, "n must be 1"),
        ({"tool_choice": "required", "tools": [{}]}, "tool_choice must be"),
        *(
            ({"chat_template_kwargs": {name: 5}}, f"variables of a chat must be without {name}, which the chat gives")
            for name in ("messages", "add_generation_prompt", "documents", "sep_token")
        ),
        ({"chat_template_kwargs": {"tools": []}}, "chat_template_kwargs must be without tools, which are a field"),
        ({"tools": "x"}, "tools must be a list of objects"),
        ({"tools": ["x"]}, "tools must be a list of objects"),
        ({"tools": {"type": "function"}}, "tools must be a list of objects"),
        ({"response_format": {}}, "response_format must have a type, got none"),
        ({"chat_template_kwargs": {"refused": True}}, "no more"),
        ({"model": "dense"}, "this route needs a causal language model"),
    ],
)
def test_refused(changes, rule, server):
    status, body = server.call("POST", "/v1/chat/completions", {"messages": CHAT, **OPTIONS, **changes})
    assert status == 400 and rule in body["error"]["message"], body


def test_longer_than_the_context(bytes_server):
    long = [{"role": "user", "content": "the people " * 600}]
    status, body = bytes_server.call("POST", "/v1/chat/completions", {"messages": long, **OPTIONS})
    assert status == 413 and "fewer tokens than the model's 512" in body["error"]["message"], body
