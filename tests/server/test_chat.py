"""/v1/chat/completions against transformers, and as OpenAI's client calls it."""

import pytest
import transformers

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
    tools = [{"type": "d", "function": {"name": "f"}}]
    assert read(tools=tools) == read() + 1 and read(tools=tools, tool_choice="none") == read()
    whole = server.post("/v1/chat/completions", {"messages": CHAT, "temperature": 0})
    assert whole["usage"]["completion_tokens"] > 6  # up to the end of the context


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
    assert parts[-1].usage == whole.usage and not parts[-1].choices


@pytest.mark.parametrize(
    "changes, rule",
    [
        ({"messages": []}, "messages must be a list of at least one message"),
        ({"messages": ["a"]}, "a message must be an object with a role"),
        ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, "a part of a message must be a text"),
        ({"messages": [{"role": "user", "content": 5}]}, "the content of a message must be a text or a list of texts"),
        ({"n": 2}, "n must be 1"),
        ({"tool_choice": "required", "tools": [{}]}, "tool_choice must be"),
        ({"chat_template_kwargs": {"messages": 5}}, "a loop must go through a list, a mapping or a string"),
        ({"model": "dense"}, "this route needs a causal language model"),
    ],
)
def test_refused(changes, rule, server):
    status, body = server.call("POST", "/v1/chat/completions", {"messages": CHAT, **OPTIONS, **changes})
    assert status == 400 and rule in body["error"]["message"], body
