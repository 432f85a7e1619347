"""Makes model directories as transformers and sentence-transformers save them, and others that are refused:
small and random ones, for tests/saved_models.py, which lists them."""

import hashlib
import json
from pathlib import Path

LABELS = ["bad", "good", "fair"]
ENCODER = dict(
    hidden_size=32,
    num_hidden_layers=2,
    num_attention_heads=2,
    intermediate_size=48,
    max_position_embeddings=64,
    type_vocab_size=2,
)
DECODER = {key: value for key, value in ENCODER.items() if key != "type_vocab_size"}
ONE, SEVERAL, NUMBER = "single_label_classification", "multi_label_classification", "regression"


# ---- models and tokenizers


def saved(folder, model, tokenizer=True, **options):
    """Saves a model whose parameters are moved by N(0, 0.3), with the tokenizer that all share."""
    import torch

    torch.manual_seed(3)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.requires_grad:  # the table of rotations is not
                parameter.add_(0.3 * torch.randn(parameter.shape))
    model.eval().save_pretrained(folder, **options)
    if tokenizer:
        word_pieces(folder).save_pretrained(folder)
    return model


def word_pieces(folder, **options):
    import transformers

    from sentence_model import WORDS

    (folder / "vocab.txt").write_text("\n".join(WORDS) + "\n")
    tokenizer = transformers.BertTokenizer(str(folder / "vocab.txt"), model_max_length=64, **options)
    (folder / "vocab.txt").unlink()
    return tokenizer


def encoder(head, family="Bert", **changes):
    """A function that saves an encoder with a head."""

    def make(folder):
        import transformers

        from sentence_model import WORDS

        sizes = ENCODER | {"vocab_size": len(WORDS)} | changes
        if head.endswith(("LMHeadModel", "ForCausalLM")):
            sizes["is_decoder"] = True
        config = getattr(transformers, f"{family}Config")(**sizes)
        return saved(folder, getattr(transformers, family + head)(config))

    return make


def labels(names, kind=None):
    named = {"id2label": dict(enumerate(names)), "label2id": {name: i for i, name in enumerate(names)}}
    return named | ({"problem_type": kind} if kind else {})


def decoder(name, **changes):
    """A function that saves a causal language model with a tokenizer of byte pairs."""

    def make(folder):
        import transformers

        from rotary_decoders import FAMILIES, SPECIALS, make_tokenizer

        config, model, own = FAMILIES[name]
        pieces = make_tokenizer()
        sizes = DECODER | {"vocab_size": pieces.get_vocab_size(), "bos_token_id": 1, "eos_token_id": 0} | own | changes
        oracle = saved(folder, getattr(transformers, model)(getattr(transformers, config)(**sizes)), tokenizer=False)
        transformers.PreTrainedTokenizerFast(tokenizer_object=pieces, eos_token=SPECIALS[0]).save_pretrained(folder)
        return oracle

    return make


def change_json(path, change):
    content = json.loads(path.read_text())
    change(content)
    path.write_text(json.dumps(content, indent=2))


def change_weights(folder, change):
    from safetensors.torch import load_file, save_file

    path = folder / "model.safetensors"
    save_file(change(load_file(path)), path, metadata={"format": "pt"})


# ---- forms of one model


def form(change, base=None):
    """A function that saves a masked language model, or `base`, and changes the directory."""

    def make(folder):
        model = (base or encoder("ForMaskedLM"))(folder)
        return change(folder, model) or model

    return make


def in_shards(folder, model):
    (folder / "model.safetensors").unlink()
    model.save_pretrained(folder, max_shard_size="20KB")
    assert len(list(folder.glob("model-*.safetensors"))) > 2


def more_tokens(folder, model):
    """Tokens that were added, and embeddings padded to a multiple of 64: more rows than tokens."""
    import transformers

    tokenizer = transformers.PreTrainedTokenizerFast.from_pretrained(folder)
    assert tokenizer.add_tokens(["newword", "another one"]) == 2
    model.resize_token_embeddings(len(tokenizer), pad_to_multiple_of=64, mean_resizing=False)
    assert model.config.vocab_size > len(tokenizer)
    for path in folder.glob("tokenizer*"):
        path.unlink()
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def without_pooler(folder):
    import transformers

    from sentence_model import WORDS

    config = transformers.BertConfig(**ENCODER, vocab_size=len(WORDS))
    return saved(folder, transformers.BertModel(config, add_pooling_layer=False))


def in_dtype(name):
    def change(folder, model):
        import torch

        model.to(getattr(torch, name)).save_pretrained(folder)
        return type(model).from_pretrained(folder, dtype=torch.float32)

    return change


def pickled(folder, model):
    import torch

    (folder / "model.safetensors").unlink()
    torch.save(model.state_dict(), folder / "pytorch_model.bin")


def converted(folder, model):
    import roformer_cpp

    old = folder.with_name(folder.name + "-old")
    folder.rename(old)
    pickled(old, model)
    roformer_cpp.convert(old, folder)


def as_transformers_4(folder, model):
    """Keys of a BERT that transformers 4.0 saved, names of TensorFlow's layer norms and a stored range of positions."""
    import torch

    def keys(config):
        for key in ("dtype", "classifier_dropout", "is_decoder", "add_cross_attention", "tie_word_embeddings"):
            config.pop(key, None)
        config.update(_name_or_path="bert-base-uncased", gradient_checkpointing=False, torch_dtype="float32")
        config.update(position_embedding_type="absolute", transformers_version="4.6.0.dev0", use_cache=True)

    def names(tensors):
        renamed = {
            name.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta"): tensor
            for name, tensor in tensors.items()
        }
        return renamed | {"bert.embeddings.position_ids": torch.arange(64)[None]}

    change_json(folder / "config.json", keys)
    change_weights(folder, names)
    (folder / "tokenizer.json").unlink()
    named = {"unk_token": "[UNK]", "sep_token": "[SEP]", "pad_token": "[PAD]", "cls_token": "[CLS]"}
    named |= {"mask_token": "[MASK]"}
    settings = {"do_lower_case": True, "tokenize_chinese_chars": True, "strip_accents": None, "never_split": None}
    settings |= {"do_basic_tokenize": True, "name_or_path": "bert-base-uncased", "tokenizer_class": "BertTokenizer"}
    settings |= {"special_tokens_map_file": None, "model_max_length": 64}
    write_vocabulary(folder)
    (folder / "special_tokens_map.json").write_text(json.dumps(named))
    (folder / "tokenizer_config.json").write_text(json.dumps(settings | named))


def prefixed(prefix):
    def change(folder, model):
        change_weights(folder, lambda tensors: {prefix + name: tensor for name, tensor in tensors.items()})

    return change


def write_vocabulary(folder):
    from sentence_model import WORDS

    (folder / "vocab.txt").write_text("\n".join(WORDS) + "\n")


def vocabulary_alone(folder, model):
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (folder / name).unlink()
    write_vocabulary(folder)


def tokenizer_alone(folder, model):
    (folder / "tokenizer_config.json").unlink()


def of_a_trainer(folder, model):
    """What Trainer saves beside a model."""
    for name in ("training_args.bin", "optimizer.pt", "scheduler.pt", "rng_state.pth"):
        (folder / name).write_bytes(b"PK\x03\x04")
    (folder / "trainer_state.json").write_text('{"global_step": 10}')


def in_the_hub_cache(folder, model):
    """A snapshot: files are links to blobs that are named after their content."""
    blobs = folder.parent / (folder.name + "-blobs")
    blobs.mkdir()
    for path in list(folder.iterdir()):
        blob = blobs / hashlib.sha256(path.read_bytes()).hexdigest()
        path.rename(blob)
        path.symlink_to(Path("..") / blobs.name / blob.name)


# ---- sentence-transformers


def sentences(*modules, version=6, max_length=12, **options):
    """A function that saves a sentence encoder; the names of modules and their arguments, from pooling on."""

    def make(folder):
        import torch
        from sentence_transformers import SentenceTransformer
        from sentence_transformers.sentence_transformer import modules as kinds

        base = folder.with_name(folder.name + "-encoder")
        encoder("Model")(base)
        torch.manual_seed(2)
        made = [getattr(kinds, name)(**arguments) for name, arguments in modules]
        first = kinds.Transformer(str(base), max_seq_length=max_length)
        model = SentenceTransformer(modules=[first, *made], device="cpu", **options)
        model.save(str(folder), create_model_card=False)
        if version < 6:
            as_sentence_transformers(folder, version, max_length)
        return SentenceTransformer(str(folder), device="cpu")

    return make


def as_sentence_transformers(folder, version, max_length):
    """The files that versions 2 to 5 write where 6 writes others."""
    switches = ("cls_token", "mean_tokens", "max_tokens", "mean_sqrt_len_tokens", "weightedmean_tokens", "lasttoken")

    def old_pooling(config):
        modes = config.pop("pooling_mode")
        modes = [modes] if isinstance(modes, str) else modes
        included = config.pop("include_prompt")
        config["word_embedding_dimension"] = config.pop("embedding_dimension")
        config |= {
            f"pooling_mode_{name}": name.removesuffix("_token").removesuffix("_tokens") in modes for name in switches
        }
        config["include_prompt"] = included

    def old_names(modules):
        for module in modules:
            module["type"] = "sentence_transformers.models." + module["type"].rpartition(".")[2]

    def old_model(config):
        config["__version__"]["sentence_transformers"] = {2: "2.0.0", 3: "3.4.1", 4: "4.1.0", 5: "5.1.0"}[version]
        config.pop("truncate_dim", None)
        if version < 5:
            del config["model_type"]
            config["prompts"].pop("document", None)

    change_json(folder / "modules.json", old_names)
    change_json(folder / "1_Pooling" / "config.json", old_pooling)
    change_json(folder / "config_sentence_transformers.json", old_model)
    (folder / "sentence_bert_config.json").write_text(
        json.dumps({"max_seq_length": max_length, "do_lower_case": False})
    )
    for path in folder.glob("*_Dense/config.json"):
        change_json(path, lambda config: [config.pop(f"module_{end}_name") for end in ("input", "output")])
    for path in folder.glob("*_Normalize/config.json"):
        path.unlink()
    if version == 2:
        encoder = folder / "0_Transformer"
        encoder.mkdir()
        for path in [*folder.glob("*.json"), *folder.glob("*.safetensors")]:
            if path.name not in ("modules.json", "config_sentence_transformers.json"):
                path.rename(encoder / path.name)
        change_json(folder / "modules.json", lambda modules: modules[0].update(path=encoder.name))
        versions = {"sentence_transformers": "2.0.0", "transformers": "4.6.1", "pytorch": "1.8.1"}
        (folder / "config_sentence_transformers.json").write_text(json.dumps({"__version__": versions}))


def pooling(*modes, **options):
    return ("Pooling", {"embedding_dimension": 32, "pooling_mode": modes if len(modes) > 1 else modes[0], **options})


def dense(inputs, outputs, **options):
    return ("Dense", {"in_features": inputs, "out_features": outputs, **options})


NORMALIZE = ("Normalize", {})
FULL = (pooling("cls", "mean"), dense(64, 16), NORMALIZE)
PROMPTS = {"prompts": {"query": "find: "}, "similarity_fn_name": "dot"}


# ---- what is refused


def foreign(name, **changes):
    """A function that saves a model of another family with a tokenizer that is none of ours."""

    def make(folder):
        import tokenizers
        import transformers

        family = name.removesuffix("Model").removesuffix("LMHead").removesuffix("ForCausalLM")
        config = getattr(transformers, f"{family}Config")(**(ENCODER | {"vocab_size": 60} | changes))
        getattr(transformers, name)(config).save_pretrained(folder)
        pieces = [("<s>", 0.0), ("<pad>", 0.0), ("</s>", 0.0), ("<unk>", 0.0), *((c, -2.0) for c in "abcdefgh")]
        unigram = tokenizers.Tokenizer(tokenizers.models.Unigram(pieces, unk_id=3))
        transformers.PreTrainedTokenizerFast(tokenizer_object=unigram, unk_token="<unk>").save_pretrained(folder)

    return make


def clip(folder):
    import transformers

    small = dict(hidden_size=32, intermediate_size=48, num_hidden_layers=1, num_attention_heads=2)
    config = transformers.CLIPConfig(text_config=small | {"vocab_size": 60}, vision_config=small | {"image_size": 32})
    saved(folder, transformers.CLIPModel(config))


def gguf_parts(folder):
    from rotary_decoders import make_decoder, write_gguf

    folder.mkdir()
    write_gguf(make_decoder("llama"), folder / "model.gguf", split_max_tensors=16)


def adapter(folder):
    """What PEFT saves: the weights of an adapter without those of its model."""
    import torch
    from safetensors.torch import save_file

    folder.mkdir()
    settings = {"peft_type": "LORA", "base_model_name_or_path": "bert-base-uncased", "r": 4, "lora_alpha": 8}
    (folder / "adapter_config.json").write_text(json.dumps(settings))
    name = "base_model.model.bert.encoder.layer.0.attention.self.query.lora_A.weight"
    save_file({name: torch.zeros(4, 32)}, folder / "adapter_model.safetensors")


def plain_folder(folder):
    folder.mkdir()
    (folder / "notes.txt").write_text("nothing\n")


def dangling(name, base):
    def change(folder, model):
        (folder / name).unlink()
        (folder / name).symlink_to("../blobs/0123456789abcdef")

    return form(change, base)


def without(name, base):
    return form(lambda folder, model: (folder / name).unlink(), base)


def one_file_missing(folder):
    form(in_shards)(folder)
    next(folder.glob("model-00002-*")).unlink()


def qwen2_tokenizer(folder):
    """With the tokenizer that transformers' class of the family writes."""
    import transformers

    decoder("qwen2")(folder)
    transformers.AutoTokenizer.from_pretrained(folder).save_pretrained(folder)


def pickled_dense(folder):
    import torch
    from safetensors.torch import load_file

    sentences(*FULL, version=3)(folder)
    weights = folder / "2_Dense" / "model.safetensors"
    torch.save(load_file(weights), weights.with_name("pytorch_model.bin"))
    weights.unlink()


def quantized(folder, model):
    change_json(folder / "config.json", lambda c: c.update(quantization_config={"quant_method": "bitsandbytes"}))
