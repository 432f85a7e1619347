"""Small models of transformers with random weights, one for each family that `roformer_cpp.patch` is tested with."""

import copy
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field

import torch
import transformers

import roformer_cpp
import tolerances as tol
from roformer_cpp._patched.attend import _say

VOCAB = 41
ROWS, TOKENS = 3, 19
PADDING = (0, 4, 7)  # tokens of each row
# Names of the keys for width, layers, heads and feed-forward width, by configuration.
_BERT = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 40}
_DECODER = _BERT | {"num_key_value_heads": 2, "head_dim": 8}
_T5 = {"d_model": 32, "d_kv": 8, "d_ff": 40, "num_layers": 2, "num_heads": 4, "relative_attention_max_distance": 12}
_T5 |= {"relative_attention_num_buckets": 8, "dropout_rate": 0.0, "decoder_start_token_id": 0}
_SPECIAL = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}


@dataclass(frozen=True)
class Family:
    head: str  # the class of the model
    settings: dict = field(default_factory=dict)
    layers: int = 2  # calls of attention in a forward pass


_ENCODERS = {"roberta": "RobertaForMaskedLM", "xlm-roberta": "XLMRobertaForMaskedLM"}
_ENCODERS |= {"camembert": "CamembertForMaskedLM", "electra": "ElectraForMaskedLM", "ernie": "ErnieForMaskedLM"}
_ENCODERS |= {"gte": "GteForMaskedLM", "nomic-bert": "NomicBertForMaskedLM", "jina-v3": "JinaEmbeddingsV3ForMaskedLM"}
_ENCODERS |= {"layoutlm": "LayoutLMForMaskedLM"}
_ROFORMER = _BERT | {"embedding_size": 24, "max_position_embeddings": 64}
_DEBERTA = _BERT | {"relative_attention": True, "pos_att_type": ["p2c", "c2p"], "max_position_embeddings": 64}
_SHARED = {"share_att_key": True, "norm_rel_ebd": "layer_norm"}
_EXPERT = {"num_experts_per_tok": 1, "experts_implementation": "eager"}
_SWITCH = _T5 | {"num_decoder_layers": 2, "num_experts": 2}
_QWEN2 = _DECODER | {"use_sliding_window": True, "sliding_window": 6, "max_window_layers": 1}
_GEMMA2 = _DECODER | {"sliding_window": 6, "query_pre_attn_scalar": 8}
FAMILIES = {
    "roformer": Family("RoFormerForMaskedLM", _ROFORMER),
    "roformer, rotated values": Family("RoFormerForMaskedLM", _ROFORMER | {"rotary_value": True}),
    "roformer, causal": Family("RoFormerForCausalLM", _ROFORMER | {"is_decoder": True}),
    "bert": Family("BertForMaskedLM", _BERT),
    "bert, causal": Family("BertLMHeadModel", _BERT | {"is_decoder": True}),
    "t5": Family("T5ForConditionalGeneration", _T5, layers=6),
    "mt5": Family("MT5ForConditionalGeneration", _T5, layers=6),
    "deberta-v2": Family("DebertaV2ForMaskedLM", _DEBERTA | {"position_buckets": 4, "max_relative_positions": 12}),
    "deberta-v2, shared": Family("DebertaV2ForMaskedLM", _DEBERTA | _SHARED),
    "deberta-v2, c2p": Family(
        "DebertaV2ForMaskedLM", _DEBERTA | {"pos_att_type": ["c2p"], "max_relative_positions": 5}
    ),
    "deberta-v2, none": Family("DebertaV2ForMaskedLM", _BERT),
    **{name: Family(head, _BERT) for name, head in _ENCODERS.items()},
    "distilbert": Family("DistilBertForMaskedLM", {"dim": 32, "n_layers": 2, "n_heads": 4, "hidden_dim": 40}),
    "albert": Family("AlbertForMaskedLM", _BERT | {"embedding_size": 24}),
    "eurobert": Family("EuroBertForMaskedLM", _DECODER),
    "ultrabert": Family("UltrabertForMaskedLM", _BERT | {"sliding_window": 6, "head_dim": 8}),
    "switch": Family("SwitchTransformersForConditionalGeneration", _SWITCH, 6),
    "jetmoe": Family("JetMoeForCausalLM", _BERT | {"kv_channels": 8, "num_local_experts": 2, "num_key_value_heads": 2}),
    "umt5": Family("UMT5ForConditionalGeneration", _T5, 6),
    "gpt-oss": Family("GptOssForCausalLM", _DECODER | {"sliding_window": 6, "num_local_experts": 2} | _EXPERT),
    "gemma3, both ways": Family("Gemma3ForCausalLM", _GEMMA2 | {"use_bidirectional_attention": True}),
    "modernbert": Family("ModernBertForMaskedLM", _BERT | {"local_attention": 8, "global_attn_every_n_layers": 2}),
    "llama": Family("LlamaForCausalLM", _DECODER),
    "mistral": Family("MistralForCausalLM", _DECODER | {"sliding_window": 5}),
    "gpt-neox": Family("GPTNeoXForCausalLM", _BERT | {"rotary_pct": 0.5}),
    "qwen2": Family("Qwen2ForCausalLM", _QWEN2),
    "qwen3": Family("Qwen3ForCausalLM", _DECODER),
    "gemma": Family("GemmaForCausalLM", _DECODER),
    "gemma2": Family("Gemma2ForCausalLM", _GEMMA2 | {"attn_logit_softcapping": None}),
    "gemma3": Family("Gemma3ForCausalLM", _GEMMA2 | {"sliding_window_pattern": 2}),
    "deberta": Family("DebertaForMaskedLM", _DEBERTA | {"max_relative_positions": 12}),
    "mpnet": Family("MPNetForMaskedLM", _BERT | {"max_position_embeddings": 64}),
}
DECODERS = [name for name, family in FAMILIES.items() if "Causal" in family.head or family.head == "BertLMHeadModel"]
WITH_DECODER = [*DECODERS, "t5", "mt5"]


def build(family: Family, dtype: torch.dtype = torch.float64, seed: int = 0, **changes) -> torch.nn.Module:
    """In evaluation mode. Weights are moved by N(0, 0.3), without which attention is nearly uniform."""
    torch.manual_seed(seed)
    head = getattr(transformers, family.head)
    model = head(head.config_class(**({"vocab_size": VOCAB} | _SPECIAL | family.settings | changes))).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.requires_grad:
                parameter.add_(0.3 * torch.randn(parameter.shape))
    if family is FAMILIES["gemma2"] and model.config.attn_logit_softcapping is None:
        # transformers refuses torch's attention because of softcapping; its own takes softmaxes in float32.
        model.config._attn_implementation_internal = "sdpa"
    return model.to(dtype)


def copy_of(model: torch.nn.Module, dtype: torch.dtype | None = None) -> torch.nn.Module:
    return copy.deepcopy(model).to(dtype or model.dtype)


def patched_copy(model: torch.nn.Module) -> torch.nn.Module:
    return roformer_cpp.patch(copy_of(model))


def close(ours: torch.Tensor, theirs: torch.Tensor, bound: float = tol.MODEL_F64) -> bool:
    """Relative to the largest number."""
    return ours.shape == theirs.shape and bool((ours - theirs).abs().max() <= bound * theirs.abs().max())


def said(function: Callable, *args, **kwargs) -> tuple:
    """The result of a call, and the warnings of `patch` that it raises, also those that were raised before."""
    _say.cache_clear()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        result = function(*args, **kwargs)
    return result, [str(w.message) for w in caught if str(w.message).startswith("[patch]")]


@dataclass(frozen=True)
class Batch:
    ids: torch.Tensor
    mask: torch.Tensor | None


def batch(padding: str, tokens: int = TOKENS) -> Batch:
    """``padding``: "none", "right" or "left"."""
    generator = torch.Generator().manual_seed(1)
    ids = torch.randint(3, VOCAB, (ROWS, tokens), generator=generator)
    if padding == "none":
        return Batch(ids, None)
    mask = torch.ones_like(ids)
    for row, count in enumerate(PADDING):
        mask[row, : count if padding == "left" else 0] = 0
        mask[row, tokens - count if padding == "right" else tokens :] = 0
    return Batch(ids * mask, mask)


def logits(model: torch.nn.Module, given: Batch, embeddings: torch.Tensor | None = None, **options) -> torch.Tensor:
    """Of the tokens that are no padding, ``[tokens, V]``; of a model with an encoder, of the decoder's tokens."""
    if embeddings is None:
        options["input_ids"] = given.ids
    else:
        options["inputs_embeds"] = embeddings
    out = model(attention_mask=given.mask, **options, **_decoder_inputs(model, given)).logits
    if given.mask is None or model.config.is_encoder_decoder:
        return out.flatten(0, 1)
    return out[given.mask.bool()]


def _decoder_inputs(model: torch.nn.Module, given: Batch) -> dict[str, torch.Tensor]:
    if not model.config.is_encoder_decoder:
        return {}
    ids = given.ids[:, :17].flip(1).clamp(min=3)
    mask = torch.ones_like(ids)
    mask[1, 8:] = 0
    return {"decoder_input_ids": ids, "decoder_attention_mask": mask}


def outputs_and_gradients(model: torch.nn.Module, given: Batch) -> dict[str, torch.Tensor]:
    """``logits``, ``embeddings`` (their gradient) and the gradient of each parameter."""
    model.zero_grad()
    embeddings = model.get_input_embeddings()(given.ids).detach().requires_grad_()
    out = logits(model, given, embeddings)
    weights = torch.linspace(-1, 2, out.numel(), dtype=torch.float64).reshape(out.shape).cos()
    (out.double() * weights).mean().backward()
    gradients = {name: p.grad for name, p in model.named_parameters() if p.grad is not None}
    return {"logits": out.detach(), "embeddings": embeddings.grad} | gradients
