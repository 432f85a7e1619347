"""Makes model directories as transformers and sentence-transformers save them, and others that are refused:
small and random ones, for tests/saved_models.py, which lists them."""

import hashlib
import json
from pathlib import Path

import tokenizers
import torch
import transformers
from safetensors.torch import load_file, save_file

from parity_case import perturbed
from rotary_decoders import FAMILIES, SPECIALS, make_decoder, make_tokenizer, write_gguf
from sentence_model import WORDS, write_json, write_modules

LABELS = ["bad", "good", "fair"]
MAX_LENGTH = 24  # of the tokenizers; models have more positions
ENCODER = dict(vocab_size=len(WORDS), hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=48)
ENCODER |= dict(max_position_embeddings=64, type_vocab_size=2)
DECODER = {key: value for key, value in ENCODER.items() if key != "type_vocab_size"}
DECODER |= dict(bos_token_id=1, eos_token_id=0)
ONE, SEVERAL, NUMBER = "single_label_classification", "multi_label_classification", "regression"


# ---- models and tokenizers


def saved(folder, model):
    """Saves a model whose parameters are moved by N(0, 0.3)."""
    torch.manual_seed(3)
    perturbed(model).save_pretrained(folder)
    return model


def with_word_pieces(folder, model):
    write_vocabulary(folder)
    tokenizer = transformers.BertTokenizer(str(folder / "vocab.txt"), model_max_length=MAX_LENGTH)
    (folder / "vocab.txt").unlink()
    tokenizer.save_pretrained(folder)
    return model


def write_vocabulary(folder, model=None):
    (folder / "vocab.txt").write_text("\n".join(WORDS) + "\n")


def encoder(head, family="Bert", options=None, **changes):
    """A function that saves an encoder with a head. options: of the model's class."""

    def make(folder):
        causal = {"is_decoder": True} if head in ("LMHeadModel", "ForCausalLM") else {}
        config = getattr(transformers, f"{family}Config")(**(ENCODER | causal | changes))
        model = getattr(transformers, family + head)(config, **(options or {}))
        return with_word_pieces(folder, saved(folder, model))

    return make


def labels(names, kind=None):
    named = {"id2label": dict(enumerate(names)), "label2id": {name: i for i, name in enumerate(names)}}
    return named | ({"problem_type": kind} if kind else {})


def classifier(family="Bert", **config):
    return encoder("ForSequenceClassification", family, **(config or labels(LABELS)))


def decoder(name, **changes):
    """A function that saves a causal language model with a tokenizer of byte pairs."""

    def make(folder):
        config, model, own = FAMILIES[name]
        pieces = make_tokenizer()
        sizes = DECODER | {"vocab_size": pieces.get_vocab_size()} | own | changes
        oracle = saved(folder, getattr(transformers, model)(getattr(transformers, config)(**sizes)))
        transformers.PreTrainedTokenizerFast(tokenizer_object=pieces, eos_token=SPECIALS[0]).save_pretrained(folder)
        return oracle

    return make


def change_json(path, change):
    content = json.loads(path.read_text())
    change(content)
    path.write_text(json.dumps(content, indent=2))


# ---- forms of one model


def form(change, base=None):
    """A function that saves a masked language model, or `base`, and changes the directory."""

    def make(folder):
        model = (base or encoder("ForMaskedLM"))(folder)
        return change(folder, model) or model

    return make


def with_keys(file, **keys):
    return lambda folder, model: change_json(folder / file, lambda content: content.update(keys))


def without(*names):
    def change(folder, model):
        for name in names:
            (folder / name).unlink()

    return change


def in_shards(folder, model):
    without("model.safetensors")(folder, model)
    model.save_pretrained(folder, max_shard_size="20KB")
    assert len(list(folder.glob("model-*.safetensors"))) > 2


def more_tokens(folder, model):
    """Tokens that were added, and embeddings padded to a multiple of 64: more rows than tokens."""
    tokenizer = transformers.PreTrainedTokenizerFast.from_pretrained(folder)
    assert tokenizer.add_tokens(["newword", "another one"]) == 2
    model.resize_token_embeddings(len(tokenizer), pad_to_multiple_of=64, mean_resizing=False)
    assert model.config.vocab_size > len(tokenizer)
    without(*(path.name for path in folder.glob("tokenizer*")))(folder, model)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def in_dtype(name):
    def change(folder, model):
        model.to(getattr(torch, name)).save_pretrained(folder)
        return type(model).from_pretrained(folder, dtype=torch.float32)  # whose frequencies have float32

    return change


def pickled(folder, model):
    without("model.safetensors")(folder, model)
    torch.save(model.state_dict(), folder / "pytorch_model.bin")


def converted(folder, model):
    import roformer_cpp

    old = folder.with_name(folder.name + "-old")
    folder.rename(old)
    pickled(old, model)
    roformer_cpp.convert(old, folder)


def as_transformers_4(folder, model):
    """Keys of a BERT that transformers 4.0 saved, names of TensorFlow's layer norms and a stored range of positions."""

    def keys(config):
        for key in ("dtype", "classifier_dropout", "is_decoder", "add_cross_attention", "tie_word_embeddings"):
            config.pop(key, None)
        config.update(_name_or_path="bert-base-uncased", gradient_checkpointing=False, torch_dtype="float32")
        config.update(position_embedding_type="absolute", transformers_version="4.6.0.dev0", use_cache=True)

    def names(name):
        name = name.replace("LayerNorm.weight", "LayerNorm.gamma")
        return name.replace("LayerNorm.bias", "LayerNorm.beta")

    change_json(folder / "config.json", keys)
    renamed(names, **{"bert.embeddings.position_ids": torch.arange(64)[None]})(folder, model)
    named = {"unk_token": "[UNK]", "sep_token": "[SEP]", "pad_token": "[PAD]", "cls_token": "[CLS]"}
    named |= {"mask_token": "[MASK]"}
    settings = {"do_lower_case": True, "tokenize_chinese_chars": True, "strip_accents": None, "never_split": None}
    settings |= {"do_basic_tokenize": True, "name_or_path": "bert-base-uncased", "tokenizer_class": "BertTokenizer"}
    settings |= {"special_tokens_map_file": None, "model_max_length": MAX_LENGTH}
    vocabulary_alone(folder, model)
    (folder / "special_tokens_map.json").write_text(json.dumps(named))
    (folder / "tokenizer_config.json").write_text(json.dumps(settings | named))


def renamed(name_of, **more):
    def change(folder, model):
        path = folder / "model.safetensors"
        tensors = {name_of(name): tensor for name, tensor in load_file(path).items()}
        save_file(tensors | more, path, metadata={"format": "pt"})

    return change


def vocabulary_alone(folder, model):
    without("tokenizer.json", "tokenizer_config.json")(folder, model)
    write_vocabulary(folder)


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


def sentences(*modules, version=6, max_length=12, base=None, **options):
    """A function that saves a sentence encoder; the names of modules and their arguments, from pooling on."""

    def make(folder):
        from sentence_transformers import SentenceTransformer
        from sentence_transformers.sentence_transformer import modules as kinds

        saved_encoder = folder.with_name(folder.name + "-encoder")
        (base or encoder("Model"))(saved_encoder)
        torch.manual_seed(2)
        made = [getattr(kinds, name)(**arguments) for name, arguments in modules]
        first = kinds.Transformer(str(saved_encoder), max_seq_length=max_length)
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
        for name in switches:
            config[f"pooling_mode_{name}"] = name.removesuffix("_token").removesuffix("_tokens") in modes
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
    write_json(folder / "sentence_bert_config.json", {"max_seq_length": max_length, "do_lower_case": False})
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


DENSE = ("Dense", {"in_features": 64, "out_features": 16})
FULL = (pooling("cls", "mean"), DENSE, ("Normalize", {}))
PROMPTS = {"prompts": {"query": "find: "}, "similarity_fn_name": "dot"}


def scores(version=None, activation=None, base=None):
    """A function that saves a cross-encoder. version None: as transformers saves its model; activation None: a model
    that states none."""

    def make(folder):
        from sentence_transformers import CrossEncoder

        model = folder.with_name(folder.name + "-encoder") if version == 6 else folder
        (base or classifier(num_labels=1))(model)
        module = f"torch.nn.modules.{'linear' if activation == 'Identity' else 'activation'}.{activation}"
        if version == 6:
            made = {"activation_fn": getattr(torch.nn, activation)()} if activation else {}
            prompts = {"prompts": {"query": "find: "}, "default_prompt_name": "query"}
            CrossEncoder(str(model), device="cpu", **made, **prompts).save(str(folder))
        elif version == 5:
            keys = {"activation_fn": module, "version": "5.1.0"}
            with_keys("config.json", sentence_transformers=keys)(folder, None)
        elif version == 3:
            with_keys("config.json", sbert_ce_default_activation_function=module)(folder, None)
        return CrossEncoder(str(folder), device="cpu")

    return make


def scores_without_modules(folder):
    """A directory of version 6, whose activation and prompts count with modules.json alone."""
    from sentence_transformers import CrossEncoder

    scores(6, "Identity")(folder)
    (folder / "modules.json").unlink()
    return CrossEncoder(str(folder), device="cpu")


# ---- what is refused


def foreign(name, **changes):
    """A function that saves a model of another family with a tokenizer that is none of ours."""

    def make(folder):
        family = name.removesuffix("Model").removesuffix("LMHead").removesuffix("ForCausalLM")
        config = getattr(transformers, f"{family}Config")(**(ENCODER | changes))
        getattr(transformers, name)(config).save_pretrained(folder)
        pieces = [("<s>", 0.0), ("<pad>", 0.0), ("</s>", 0.0), ("<unk>", 0.0), *((c, -2.0) for c in "abcdefgh")]
        unigram = tokenizers.Tokenizer(tokenizers.models.Unigram(pieces, unk_id=3))
        transformers.PreTrainedTokenizerFast(tokenizer_object=unigram, unk_token="<unk>").save_pretrained(folder)

    return make


def clip(folder):
    small = dict(hidden_size=32, intermediate_size=48, num_hidden_layers=1, num_attention_heads=2)
    config = transformers.CLIPConfig(text_config=small | {"vocab_size": 60}, vision_config=small | {"image_size": 32})
    with_word_pieces(folder, saved(folder, transformers.CLIPModel(config)))


def gguf_parts(folder):
    folder.mkdir()
    write_gguf(make_decoder("llama"), folder / "model.gguf", split_max_tensors=16)


def adapter(folder):
    """What PEFT saves: the weights of an adapter without those of its model."""
    folder.mkdir()
    settings = {"peft_type": "LORA", "base_model_name_or_path": "bert-base-uncased", "r": 4, "lora_alpha": 8}
    (folder / "adapter_config.json").write_text(json.dumps(settings))
    name = "base_model.model.bert.encoder.layer.0.attention.self.query.lora_A.weight"
    save_file({name: torch.zeros(4, 32)}, folder / "adapter_model.safetensors")


def plain_folder(folder):
    folder.mkdir()
    (folder / "notes.txt").write_text("nothing\n")


def dangling(name):
    def change(folder, model):
        (folder / name).unlink()
        (folder / name).symlink_to("../blobs/0123456789abcdef")

    return change


def one_file_missing(folder, model):
    in_shards(folder, model)
    next(folder.glob("model-00002-*")).unlink()


def qwen2_tokenizer(folder, model):
    """With the tokenizer that transformers' class of the family writes."""
    transformers.AutoTokenizer.from_pretrained(folder).save_pretrained(folder)


def pickled_dense(folder, model):
    weights = folder / "2_Dense" / "model.safetensors"
    torch.save(load_file(weights), weights.with_name("pytorch_model.bin"))
    weights.unlink()


def logit_score(folder, model):
    """The modules of a cross-encoder that reads its scores from the logits of a token."""
    score = "sentence_transformers.cross_encoder.modules.logit_score.LogitScore"
    write_modules(folder, [("", "sentence_transformers.base.modules.transformer.Transformer"), ("1_LogitScore", score)])
    write_json(folder / "1_LogitScore/config.json", {"true_token_id": 5, "false_token_id": 9})
    write_json(folder / "config_sentence_transformers.json", {"model_type": "CrossEncoder"})
