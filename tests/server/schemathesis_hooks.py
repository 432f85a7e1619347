"""What a schema does not say: the model that a route needs, and what this model has."""

import schemathesis

MODELS = {"/v1/completions": "causal", "/v1/chat/completions": "causal", "/embed_all": "late"}
MODELS |= {"/embed_sparse": "sparse", "/predict": "classes", "/fill-mask": "masked", "/v1/rerank": "rerank"}
MODELS |= {"/v2/rerank": "rerank", "/rerank": "rerank"}
MOST = {"dimensions": 24, "output_dimension": 24, "max_tokens": 8, "max_completion_tokens": 8}


def with_known_ids(value):
    if isinstance(value, list):
        return [with_known_ids(each) for each in value]
    return value if isinstance(value, str) else int(value) % 61


@schemathesis.hook
def map_case(context, case):
    if not isinstance(case.body, dict) or case.meta is None or not case.meta.generation.mode.is_positive:
        return case
    body = case.body
    body["model"] = MODELS.get(case.path, "dense")
    body.pop("prompt_name", None)
    for name, most in MOST.items():
        if body.get(name) is not None:
            body[name] = min(body[name], most)
    for name in ("input", "ids"):
        if name in body and not isinstance(body[name], str):
            body[name] = with_known_ids(body[name])
    if case.path == "/fill-mask":
        body["top_k"] = min(body.get("top_k") or 1, 61)
        texts = body["inputs"]
        body["inputs"] = texts + " [MASK]" if isinstance(texts, str) else [text + " [MASK]" for text in texts]
    if body.get("stream") and "prompt" in body:
        body["prompt"] = "a"
    for name in ("response_format", "tool_choice"):
        body.pop(name, None)  # word pieces follow no schema
    if not body.get("logprobs"):
        body.pop("top_logprobs", None)
    if body.get("logit_bias"):
        body["logit_bias"] = {str(int(token) % 61): number for token, number in body["logit_bias"].items()}
    if "messages" in body:
        body["messages"] = [{"role": "user", "content": "a"}]
        body.pop("chat_template_kwargs", None)  # may replace the messages
    return case
