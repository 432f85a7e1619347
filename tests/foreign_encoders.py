"""Random perturbed encoders of other libraries, as transformers saves them. A row for each family."""

import numpy as np
import torch
import transformers

SIZES = dict(vocab_size=60, hidden_size=48, num_hidden_layers=2, num_attention_heads=4, intermediate_size=72)
SIZES |= dict(max_position_embeddings=64, num_labels=3)
CLASSIFIERS = ("Model", "ForMaskedLM", "ForSequenceClassification", "ForTokenClassification")
ANSWERING = (*CLASSIFIERS, "ForQuestionAnswering")
BERT_HEADS = (*ANSWERING, "ForMultipleChoice")
WINDOWS = {"num_hidden_layers": 4, "local_attention": 8}
DEBERTA = {"relative_attention": True, "pos_att_type": ["p2c", "c2p"], "position_biased_input": False}
DEBERTA |= {"type_vocab_size": 0}
DEBERTA_V2 = DEBERTA | {"norm_rel_ebd": "layer_norm"}
GEMMA2 = {"head_dim": 10, "num_key_value_heads": 2, "global_head_dim": 18, "num_global_key_value_heads": 1}
GEMMA2 |= {"hidden_size_per_layer_input": 20, "embedding_dim": 36, "sliding_window_pattern": 2}
FOUR = {"num_hidden_layers": 4, "sliding_window": 5}
CONVOLUTION = {"conv_kernel_size": 3, "conv_act": "gelu", "embedding_size": 20}
OWN_KEYS = {"max_relative_positions": 9, "position_biased_input": True, "type_vocab_size": 2}
ESM = {"pad_token_id": 1, "mask_token_id": 59}
# The classes' stem, its heads, and keys of the family.
FAMILIES = {
    "nomic_bert": ("NomicBert", CLASSIFIERS, {}),
    "modernbert": ("ModernBert", BERT_HEADS, {"pad_token_id": 1} | WINDOWS),
    "gte": ("Gte", CLASSIFIERS, {"type_vocab_size": 0}),
    "eurobert": ("EuroBert", CLASSIFIERS, {"pad_token_id": 1, "num_key_value_heads": 2}),
    "jina_embeddings_v3": ("JinaEmbeddingsV3", ANSWERING, {}),
    "ultrabert": ("Ultrabert", ANSWERING, FOUR | {"prediction_head_size": 36, "num_key_value_heads": 2}),
    "embedding_gemma2_text": ("EmbeddingGemma2Text", ("Model",), FOUR | GEMMA2),
    "roberta": ("Roberta", BERT_HEADS, {"type_vocab_size": 1, "layer_norm_eps": 1e-5}),
    "xlm-roberta": ("XLMRoberta", BERT_HEADS, {"type_vocab_size": 1, "pad_token_id": 3}),
    "camembert": ("Camembert", BERT_HEADS, {"hidden_act": "relu"}),
    "data2vec-text": ("Data2VecText", BERT_HEADS, {}),
    "megatron-bert": ("MegatronBert", (*BERT_HEADS, "ForNextSentencePrediction"), {}),
    "roberta-prelayernorm": ("RobertaPreLayerNorm", BERT_HEADS, {}),
    "xlm-roberta-xl": ("XLMRobertaXL", BERT_HEADS, {}),
    "distilbert": ("DistilBert", BERT_HEADS, {"activation": "relu"}),
    "electra": ("Electra", BERT_HEADS, {"embedding_size": 20}),
    "mpnet": ("MPNet", BERT_HEADS, {"max_position_embeddings": 160}),
    "deberta-v2": ("DebertaV2", BERT_HEADS, DEBERTA_V2 | {"position_buckets": 16, "share_att_key": True}),
    "deberta-v2 separate projections": ("DebertaV2", BERT_HEADS, DEBERTA_V2 | OWN_KEYS),
    "deberta-v2 convolution": ("DebertaV2", BERT_HEADS, DEBERTA_V2 | CONVOLUTION | {"position_buckets": 16}),
    "deberta": ("Deberta", BERT_HEADS[:-1], DEBERTA | {"max_relative_positions": 11}),
    "ernie": ("Ernie", (*BERT_HEADS, "ForNextSentencePrediction"), {"use_task_id": True}),
    "esm": ("Esm", CLASSIFIERS, ESM | {"position_embedding_type": "rotary", "token_dropout": True}),
    "esm positions": ("Esm", CLASSIFIERS, ESM | {"emb_layer_norm_before": True}),
    "albert": ("Albert", BERT_HEADS, {"embedding_size": 20, "num_hidden_layers": 3}),
}
# Tensors of ESM that no head computes with, or that are computed where they are absent.
UNREAD = ("inv_freq", "contact_head.regression.weight", "contact_head.regression.bias")
# With a module for training; of the others, the part that has none.
UNTRAINED = {"embedding_gemma2_text": "a projection of its results"}
UNTRAINED |= {"deberta-v2 convolution": "a convolution of its embeddings"}
TRAINED = [family for family in FAMILIES if family not in UNTRAINED]
WITHOUT_GRAPH = {"deberta-v2 convolution": "convolution"}
CASES = [(family, head) for family, (_, heads, _) in FAMILIES.items() for head in heads]


def rows_of(lengths=(1, 13, 7, 60)):
    """Random ids, of each length a row."""
    random = np.random.default_rng(7)
    return [random.integers(1, SIZES["vocab_size"], n).astype(np.int32) for n in lengths]


def make_encoder(family, head, folder, **changes):
    torch.manual_seed(5)
    stem, _, own = FAMILIES[family]
    if head == "ForQuestionAnswering":
        changes = {"num_labels": 2} | changes
    keys = SIZES | own | changes
    if family == "distilbert":
        keys["hidden_dim"] = keys.pop("intermediate_size")
    config = getattr(transformers, f"{stem}Config")(**keys)
    oracle = getattr(transformers, stem + head)(config)
    with torch.no_grad():
        for parameter in oracle.parameters():
            parameter.add_(0.2 * torch.randn(parameter.shape))
        for name, buffer in oracle.named_buffers():
            if name.endswith("layer_scalar"):
                buffer.add_(0.2 * torch.randn(buffer.shape))
    oracle.eval().save_pretrained(folder)
    return oracle
