"""Grafted encodings: the model's own rotation grafted back, transformers' scalings, and scores of ReRoPE, Self-Extend,
dual chunk attention, YaRN and p-RoPE written again in NumPy float64.
"""

import copy
import math
import pickle
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
import transformers
from safetensors.torch import load_file

import roformer_cpp
from graft_models import DECODERS, ENCODERS, IDS, assert_t4, make
from tolerances import T1_ATOL, T1_RTOL


@torch.no_grad()
def logits(model, ids=IDS, **options):
    return model(ids, **options).logits


@pytest.mark.parametrize("family", [*DECODERS, *ENCODERS])
def test_its_own_encoding_grafted_back_gives_its_logits(family):
    model = make(family)
    mask = torch.ones(2, 40, dtype=torch.long)
    mask[0, :7] = 0
    given = {"attention_mask": mask}
    if family in DECODERS:
        given["position_ids"] = (mask.cumsum(1) - 1).clamp_min(0)
    plain, padded = logits(model), logits(model, **given)
    own = {"encoding": "none", "keep": True} if family == "Bert" else {}
    with roformer_cpp.grafted(model, **own):
        assert_t4(logits(model), plain)
        assert_t4(logits(model, **given)[mask > 0], padded[mask > 0])
    assert torch.equal(logits(model), plain)
    assert not hasattr(model, "position_encoding") and model.config._attn_implementation == "sdpa"
    assert not any(part._forward_hooks or part._forward_pre_hooks for part in model.modules())


BEFORE = {"original_max_position_embeddings": 48}
SCALED = {
    "linear": {"factor": 4.0},
    "dynamic": {"factor": 4.0},
    "yarn": {"factor": 4.0, **BEFORE},
    "llama3": {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, **BEFORE},
    "longrope": {"factor": 4.0, "short_factor": [1.0] * 8, "long_factor": [1.0 + i for i in range(8)], **BEFORE},
}


@pytest.mark.parametrize("name", SCALED)
def test_scalings_are_those_of_transformers(name):
    ids = torch.randint(3, 100, (2, 150))
    theirs = make("Llama", rope_parameters={"rope_type": name, "rope_theta": 1e4, **SCALED[name]})
    ours = roformer_cpp.graft(make("Llama", rope_parameters={"rope_type": "default", "rope_theta": 1e4}), name,
                              **SCALED[name])  # fmt: skip
    assert_t4(logits(ours, ids), logits(theirs, ids))


# ---- scores in float64, from the formulas of the papers

WINDOW, GROUP, CHUNK, FACTOR = 8, 3, 12, 4.0
THETA = 1e4 ** (-np.arange(8) / 8)


def yarn_frequencies():
    def pair(turns):
        return 16 * math.log(48 / (turns * 2 * math.pi)) / (2 * math.log(1e4))

    low, high = max(math.floor(pair(32)), 0), min(math.ceil(pair(1)), 15)
    ramp = np.clip((np.arange(8) - low) / max(high - low, 0.001), 0, 1)
    return THETA * (1 - ramp) + THETA / FACTOR * ramp


def dual_chunk(m, n):
    apart, key = m // CHUNK - n // CHUNK, n % CHUNK
    if apart == 0:
        return m % CHUNK - key
    return (min(CHUNK + m % CHUNK, CHUNK + WINDOW - 1) if apart == 1 else CHUNK + WINDOW - 1) - key


def self_extend(m, n):
    return m - n if m - n < WINDOW else m // GROUP + WINDOW - WINDOW // GROUP - n // GROUP


def plain(m, n):
    return m - n


# By the graft: its keys, the distance of m and n, the frequencies, and the factor of scores.
METHODS = {
    "rerope": ({"window": WINDOW}, lambda m, n: min(m - n, WINDOW), THETA, 1),
    "self-extend": ({"window": WINDOW, "group_size": GROUP}, self_extend, THETA, 1),
    "dca": ({"window": WINDOW, "chunk_size": CHUNK}, dual_chunk, THETA, 1),
    "yarn": ({"factor": FACTOR}, plain, yarn_frequencies(), (0.1 * math.log(FACTOR) + 1) ** 2),
    "proportional": ({"partial_rotary_factor": 0.5}, plain, THETA * (np.arange(8) < 4), 1),
    "log-n": ({}, plain, THETA, lambda m: max(1, math.log(m + 1) / math.log(48))),
    "nope": ({}, plain, 0 * THETA, 1),
}


def numpy_attention(q, k, v, distance, theta, factor):
    """Causal, of [T, H, 16] and [T, Hk, 16]; pair i is elements i and i + 8."""
    tokens, heads, _ = q.shape
    out = np.zeros_like(q)
    for h in range(heads):
        a, b = q[:, h, :8] + 1j * q[:, h, 8:], k[:, h // 2, :8] + 1j * k[:, h // 2, 8:]
        for m in range(tokens):
            angles = np.array([distance(m, n) for n in range(m + 1)])[:, None] * theta
            scores = (a[m] * b[: m + 1].conj() * np.exp(1j * angles)).real.sum(1) / 4
            scores *= factor(m) if callable(factor) else factor
            weights = np.exp(scores - scores.max())
            out[m, h] = weights @ v[: m + 1, h // 2] / weights.sum()
    return out


@pytest.mark.parametrize("name", METHODS)
def test_a_layer_equals_the_formula(name):
    keys, *rule = METHODS[name]
    model = make("Llama", num_hidden_layers=1).double()
    more = {} if name == "nope" else {"precision": "exact"}
    roformer_cpp.graft(model, name, **keys, **more)
    x = torch.randn(1, 60, 64, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    layer = model.model.layers[0].self_attn
    q, k, v = (f(x)[0].unflatten(-1, (-1, 16)).detach().numpy() for f in (layer.q_proj, layer.k_proj, layer.v_proj))
    found = []
    layer.o_proj.register_forward_pre_hook(lambda module, args: found.append(args[0]))
    where = model.model.rotary_emb(x, torch.arange(60)[None])
    with torch.no_grad():
        layer(x, position_embeddings=where, attention_mask=None)
    expected = numpy_attention(q, k, v, *rule).reshape(1, 60, 64)
    np.testing.assert_allclose(found[0].numpy(), expected, atol=10 * T1_ATOL, rtol=10 * T1_RTOL)


# ---- caches, layers, training, files


@pytest.mark.parametrize("encoding", ["rope", "rerope", "self-extend", "dca", "yarn", "alibi", "t5", "cope"])
def test_generate_with_a_cache(encoding):
    keys = {"rerope": {"window": 8}, "self-extend": {"window": 8}, "dca": {"window": 8}, "yarn": {"factor": 2.0}}
    for family in ("Llama", "Gemma3"):
        model = roformer_cpp.graft(make(family), encoding, **keys.get(encoding, {}))
        mask = torch.ones_like(IDS)
        mask[0, :7] = 0
        options = {"attention_mask": mask, "max_new_tokens": 12, "do_sample": False}
        with_cache, without = (model.generate(IDS, use_cache=cached, **options) for cached in (True, False))
        assert torch.equal(with_cache, without)


@pytest.mark.parametrize("encoding", ["rope", "alibi", "rerope"])
def test_a_cache_with_padding_on_the_right(encoding):
    """The next token of each row follows its own last one, not the padding."""
    model = roformer_cpp.graft(make("Llama"), encoding)
    lengths, rows = (5, 12), IDS[:, :13]
    mask = torch.tensor([[1] * length + [0] * (12 - length) for length in lengths])
    positions = torch.arange(12).expand(2, -1)
    with torch.no_grad():
        cache = model(rows[:, :12], attention_mask=mask, position_ids=positions).past_key_values
        mask = torch.cat([mask, mask.new_ones(2, 1)], 1)
        call = {"attention_mask": mask, "position_ids": torch.tensor(lengths)[:, None], "past_key_values": cache}
        found = model(rows[:, 12:], **call).logits[:, -1]
        for row, length in enumerate(lengths):
            whole = torch.cat([rows[row : row + 1, :length], rows[row : row + 1, 12:]], 1)
            assert_t4(found[row], model(whole).logits[0, -1])


def test_layers_without_an_encoding():
    model = make("Llama")
    rotated = logits(model)
    roformer_cpp.graft(model, "nope", layers=[1, 3])
    some = logits(model)
    roformer_cpp.graft(model, "rope", layers=[1, 3])
    assert_t4(logits(model), rotated)
    assert (some - rotated).abs().max() > 1e-2
    roformer_cpp.graft(model, "nope", layers=np.array([1, 3]))
    assert torch.equal(logits(model), some)

    def at_start(module, args, kwargs):
        """The same with transformers: no rotation is that of position 0."""
        cos, sin = kwargs["position_embeddings"]
        return args, kwargs | {"position_embeddings": (torch.ones_like(cos), 0 * sin)}

    own = make("Llama")
    for layer in own.model.layers[1::2]:
        layer.self_attn.register_forward_pre_hook(at_start, with_kwargs=True)
    assert_t4(some, logits(own))


def test_training_and_files(tmp_path):
    model = roformer_cpp.graft(make("Llama"), "kerple-log")
    names = [name for name in model.state_dict() if name.startswith("position_encoding.")]
    assert names and model.position_encoding[0].name == "kerple-log"
    model(IDS, labels=IDS).loss.backward()
    assert all(parameter.grad.abs().max() > 0 for parameter in model.position_encoding.parameters())
    with torch.no_grad():
        for parameter in model.position_encoding.parameters():
            parameter.mul_(1.5)
    expected = logits(model)
    for other in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert torch.equal(logits(other), expected)
        assert (logits(roformer_cpp.ungraft(other)) - expected).abs().max() > 1e-3
    assert torch.equal(logits(model), expected)
    model.save_pretrained(tmp_path)
    loaded = roformer_cpp.graft(transformers.LlamaForCausalLM.from_pretrained(tmp_path).eval(), "kerple-log")
    weights = load_file(tmp_path / "model.safetensors")
    loaded.load_state_dict({name: weights[name] for name in names}, strict=False)
    assert torch.equal(logits(loaded), expected)


@pytest.mark.parametrize("encoding", ["shaw", "transformer-xl", "deberta", "tupe-r", "fire", "fox", "path", "xpos"])
@pytest.mark.parametrize("family", ["Llama", "GPTNeoX", "ModernBert", "Bert"])
def test_encodings_to_train_on(encoding, family):
    if encoding in ("fox", "path") and family in ENCODERS:
        with pytest.raises(ValueError, match=f"{encoding} needs causal attention"):
            roformer_cpp.graft(make(family), encoding)
        return
    model = roformer_cpp.graft(make(family), encoding)
    cache = {"use_cache": False} if family in DECODERS else {}
    model(IDS, labels=IDS, **cache).loss.backward()
    assert all(parameter.grad is not None for parameter in model.position_encoding.parameters())
    if encoding in ("fox", "path"):
        with pytest.raises(ValueError, match="reads the input of layers, which caches do not hold"):
            model.generate(IDS, max_new_tokens=3, do_sample=False)


@pytest.mark.parametrize("family", ["Llama", "Bert"])
def test_positions_belong_to_their_call(family):
    """Of two forward passes before their backward with gradient checkpointing, and of threads."""
    model = roformer_cpp.graft(make(family), "alibi").train()
    calls = [{}, {"position_ids": torch.arange(40)[None] // 2}]

    def gradients():
        model.zero_grad()
        losses = [model(IDS, labels=IDS, use_cache=False, **call).loss for call in calls]
        (losses[0] + 2 * losses[1]).backward()
        return [parameter.grad.clone() for parameter in model.parameters() if parameter.grad is not None]

    model.eval()
    model.apply(lambda module: setattr(module, "training", hasattr(module, "gradient_checkpointing")))
    plain = gradients()
    for reentrant in (False, True):
        model.gradient_checkpointing_enable({"use_reentrant": reentrant})
        for ours, theirs in zip(gradients(), plain, strict=True):
            assert_t4(ours, theirs)
    model.eval()
    expected = [logits(model, use_cache=False, **call) for call in calls]
    with ThreadPoolExecutor(4) as pool:
        found = pool.map(lambda i: logits(model, use_cache=False, **calls[i % 2]), range(40))
        assert all(torch.equal(x, expected[i % 2]) for i, x in enumerate(found))


@pytest.mark.parametrize("encoding", ["alibi", "t5", "fox", "cope"])
def test_compiled_for_several_lengths(encoding):
    """As one graph, also for lengths that torch compiles again, as sizes that may change; padded on either side."""
    model = roformer_cpp.graft(make("Llama", num_hidden_layers=1), encoding)
    with torch.no_grad():
        for parameter in model.position_encoding.parameters():
            parameter.add_(0.3 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(1)))
    torch._dynamo.reset()
    compiled = torch.compile(model, backend="eager", fullgraph=True)
    rows = [(40, "left"), (17, "right"), (23, "left"), *([(17, "nothing")] if encoding == "alibi" else [])]
    for tokens, hidden in rows:
        shown = torch.ones(2, tokens, dtype=torch.bool)
        shown[0, :3] = hidden != "left"
        shown[1, -2:] = hidden != "right"
        given = {"attention_mask": None if hidden == "nothing" else shown.long(), "use_cache": False}
        ids = IDS[:, :tokens]
        assert_t4(logits(compiled, ids, **given)[shown], logits(model, ids, **given)[shown])


def test_masks_of_causal_encodings():
    """A matrix is taken where it hides later keys, and refused where it shows one."""
    model, tokens = roformer_cpp.graft(make("Llama", num_hidden_layers=1), "fox"), IDS.shape[1]
    causal = torch.ones(2, 1, tokens, tokens, dtype=torch.bool).tril()
    assert_t4(logits(model, attention_mask=causal, use_cache=False), logits(model, use_cache=False))
    causal[1, 0, 3, 4] = True
    with pytest.raises(ValueError, match="attention must be causal with terms of an encoding that was made for it"):
        model(IDS, attention_mask=causal, use_cache=False)


def test_tables_by_position_of_bert():
    model = roformer_cpp.graft(make("Bert"), "sinusoidal")
    before = make("Bert")
    with torch.no_grad():
        rows = roformer_cpp.encoding("sinusoidal", hidden_size=64).input(torch.arange(48))[0]
        before.bert.embeddings.position_embeddings.weight.copy_(rows)
    assert_t4(logits(model), logits(before))
    roformer_cpp.graft(model, "alibi")
    everywhere = logits(model)
    roformer_cpp.graft(model, "alibi", layers=[1])  # the table does not return
    assert_t4(logits(model), everywhere)


def test_perplexity_by_position():
    model = make("Llama")
    tokens = torch.randint(3, 100, (130,))
    grafts = {"own": "rope", "rerope": {"encoding": "rerope", "window": 8}}
    found = roformer_cpp.perplexity_by_position(model, tokens, grafts=grafts, chunk=17)
    assert found["to"] == [48, 96, 130] and not hasattr(model, "position_encoding")
    with torch.no_grad():
        loss = torch.nn.functional.cross_entropy(model(tokens[None]).logits[0, :-1], tokens[1:], reduction="none")
    for i, (begin, end) in enumerate([(0, 47), (47, 95), (95, 129)]):
        expected = loss[begin:end].mean().exp().item()
        assert found["model"][i] == pytest.approx(expected, rel=1e-4)
        assert found["own"][i] == pytest.approx(expected, rel=1e-4)
    assert found["rerope"][2] != pytest.approx(found["own"][2], rel=1e-3)
    whole = roformer_cpp.perplexity_by_position(model, tokens, edges=[48], chunk=None)["model"]
    assert whole == pytest.approx(found["model"][:1], rel=1e-4)


@pytest.mark.parametrize("family", ["Llama", "GPTNeoX", "ModernBert", "Bert"])
def test_lora_changes_the_projections_that_an_encoding_reads(family):
    peft = pytest.importorskip("peft")
    model = roformer_cpp.graft(make(family), "dai-literal" if family == "Bert" else "deberta-literal")
    targets = {"Llama": ["q_proj", "k_proj"], "GPTNeoX": ["query_key_value"], "ModernBert": ["Wqkv"]}
    config = peft.LoraConfig(target_modules=targets.get(family, ["query", "key"]), init_lora_weights=False)
    lora = peft.get_peft_model(model, config).eval()
    generator = torch.Generator().manual_seed(2)
    with torch.no_grad():
        for name, parameter in lora.named_parameters():
            if "lora" in name or "position_encoding" in name:
                parameter.copy_(0.3 * torch.randn(parameter.shape, generator=generator))
    beside = logits(lora)
    lora.merge_adapter()
    assert_t4(beside, logits(lora))


def test_peft_trains_a_copy_of_the_encoding(tmp_path):
    peft = pytest.importorskip("peft")
    model = roformer_cpp.graft(make("Llama"), "kerple-log")
    before = logits(model)
    options = {"target_modules": ["q_proj"], "modules_to_save": ["position_encoding.0"]}
    tuned = peft.get_peft_model(model, peft.LoraConfig(**options))
    tuned(IDS, labels=IDS).loss.backward()
    copies = [parameter for name, parameter in tuned.named_parameters() if "modules_to_save" in name]
    assert len(copies) == 2 and all(copy.grad.abs().max() > 0 for copy in copies)
    with torch.no_grad():
        torch._foreach_add_(copies, 1)
    assert not torch.allclose(logits(tuned), before)
    with tuned.disable_adapter():
        assert torch.equal(logits(tuned), before)
    tuned.save_pretrained(tmp_path)
    again = peft.PeftModel.from_pretrained(roformer_cpp.graft(make("Llama"), "kerple-log"), tmp_path)
    assert torch.equal(logits(again), logits(tuned)) and torch.equal(logits(tuned.merge_and_unload()), logits(again))


def test_what_is_refused():
    llama = roformer_cpp.graft(make("Llama"), "alibi")
    with pytest.raises(ValueError, match="must not be grafted yet"), roformer_cpp.grafted(llama, "rope"):
        pass
    assert [encoding.name for encoding in llama.position_encoding] == ["alibi"]
    llama = make("Llama")
    t5 = transformers.T5ForConditionalGeneration(transformers.T5Config(vocab_size=9, d_model=8, d_kv=4, num_heads=2))
    layers = "layers must be a list of integers from 0 to 3, got"
    for model, arguments, rule in (
        (t5, {}, "model must be of transformers and one of bert, .*, got t5"),
        (torch.nn.Linear(2, 2), {}, "got Linear"),
        *((llama, {"layers": x}, f"{layers} {got}") for x, got in [([4], 4), (0, 0), ([True], True), ([], r"\[\]")]),
        (llama, {"layers": "all"}, f"{layers} 'all'"),
        (llama, {"encoding": "learned"}, "encoding must act on attention alone, got learned, which changes the input"),
        (llama, {"encoding": "floater"}, "got floater"),
        (llama, {"encoding": roformer_cpp.encoding("alibi"), "window": 2}, "keys must come with the name of an enc"),
        (llama, {"encoding": "rerop"}, "did you mean rerope"),
        (llama, {"encoding": "yarn", "facto": 2}, "facto"),
        (llama, {"keep": True, "encoding": "rope"}, "each term must be set by one encoding"),
        (llama, {"encoding": "rope", "head_dim": 8}, "head_dim must be that of the model, 16, got 8"),
        (make("Llama", num_key_value_heads=1), {"encoding": "fope"}, "got fope with . heads and 1 of keys"),
    ):
        with pytest.raises(ValueError, match=rule):
            logits(roformer_cpp.graft(model, **arguments))
        if isinstance(model, transformers.LlamaForCausalLM):
            roformer_cpp.ungraft(model)
    graft, perplexity = roformer_cpp.graft, roformer_cpp.perplexity_by_position
    for function, given, arguments, rule in (
        (graft, [3], {}, r"\[graft\] model must be a torch.nn.Module, got int"),
        (graft, [llama], {"encoding": ["rope", "alibi"]}, "encoding must be a name or an Encoding, got list"),
        (graft, [llama], {"keep": "yes"}, "keep must be"),
        (perplexity, [llama, "text"], {}, r"tokens must be an int64 tensor \[T\] or \[B, T\], got str"),
        (perplexity, [llama, torch.ones(4)], {}, r"got torch.float32 \[4\]"),
        (perplexity, [llama, IDS], {"grafts": ["ntk"]}, "grafts must be a mapping by name, got list"),
        (perplexity, [make("Bert"), IDS], {}, "model must be a causal language model, got Bert"),
    ):
        with pytest.raises(TypeError, match=rule):
            function(*given, **arguments)
    roformer_cpp.graft(llama)
    with pytest.raises(ValueError, match="got attention whose weights are returned"):
        llama(IDS, output_attentions=True)
    with pytest.raises(ValueError, match="a cache must grow with the text, as DynamicCache does, got StaticCache"):
        llama.generate(IDS, cache_implementation="static", max_new_tokens=2)
