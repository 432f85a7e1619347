"""``rf_encoder`` in transformers: its Auto classes know the modules of `Model`, with the same names of parameters."""

import shutil
from dataclasses import dataclass
from pathlib import Path

import torch
import transformers
from torch import Tensor, nn
from transformers import GenerationMixin, PreTrainedConfig, PreTrainedModel, initialization
from transformers.utils import ModelOutput

from ._model_loss import loss_of
from .model import HEADS, Model, _Script, bake
from .tokenizer import Tokenizer


class RfEncoderConfig(PreTrainedConfig):
    model_type = "rf_encoder"


@dataclass
class RfEncoderOutput(ModelOutput):
    loss: Tensor | None = None
    logits: Tensor | None = None
    start_logits: Tensor | None = None
    end_logits: Tensor | None = None
    last_hidden_state: Tensor | None = None
    pooler_output: Tensor | None = None
    hidden_states: tuple[Tensor, ...] | None = None
    attentions: tuple[Tensor, ...] | None = None
    past_key_values: None = None  # models keep no caches


class _Modules(Model):
    """A place between `PreTrainedModel` and `Model`, whose modules come when the first is ready."""

    __init__ = nn.Module.__init__


class RfEncoderPreTrainedModel(PreTrainedModel, _Modules):
    config_class = RfEncoderConfig
    config = None
    supports_gradient_checkpointing = True
    _supports_sdpa = True  # accepted as "eager" is; both are computed by our own attention
    accepts_loss_kwargs = True  # num_items_in_batch of Trainer
    gradient_checkpointing_enable = Model.gradient_checkpointing_enable
    gradient_checkpointing_disable = Model.gradient_checkpointing_disable

    def __init__(self, config: RfEncoderConfig):
        super().__init__(config)
        on_meta = torch.get_default_device().type == "meta"
        script = self._built(None if on_meta else int(torch.randint(2**31, (), device="cpu")))
        self._fresh = None if on_meta else _tensors_of(script)
        Model.__init__(self, script)
        self.to(torch.get_default_dtype())
        self.train()
        self.post_init()

    def _built(self, seed: int | None) -> torch.ScriptObject:
        return _Script.build(self.config.to_json_string(), type(self).__name__, seed)

    def _init_weights(self, module: nn.Module) -> None:
        """Parameters that are missing from a file get the values of a new model."""
        own = [(leaf, name) for (place, leaf), name in zip(self._places, self._names, strict=True) if place is module]
        if own and self._fresh is None:
            self._fresh = _tensors_of(self._built(int(torch.randint(2**31, (), device="cpu"))))
        for leaf, name in own:
            initialization.copy_(getattr(module, leaf), self._fresh[name])

    def initialize_weights(self) -> None:
        super().initialize_weights()
        self._fresh = None

    def get_correct_attn_implementation(self, requested_attention: str | None, is_init_check: bool = False) -> str:
        """By default ``eager``, with which transformers allows ``output_attentions`` in a configuration."""
        return super().get_correct_attn_implementation(requested_attention or "eager", is_init_check)

    @classmethod
    def can_generate(cls) -> bool:
        return issubclass(cls, GenerationMixin)

    @property
    def is_gradient_checkpointing(self) -> bool:
        return self._body.encoder.checkpoints is not None

    is_activation_checkpointing = is_gradient_checkpointing

    def get_input_embeddings(self) -> nn.Module:
        return self._body.embeddings.word_embeddings

    def set_input_embeddings(self, value: nn.Module) -> None:
        raise ValueError(f"[model] vocab_size must stay {self.config.vocab_size}, got other word embeddings")

    def resize_token_embeddings(
        self, new_num_tokens: int | None = None, pad_to_multiple_of: int | None = None, mean_resizing: bool = True
    ) -> nn.Module:
        """The word embeddings, for a call that does not change their number."""
        size = self.config.vocab_size
        if new_num_tokens not in (None, size) or size % (pad_to_multiple_of or 1):
            self.set_input_embeddings(self.get_input_embeddings())
        return self.get_input_embeddings()

    def save_pretrained(
        self, save_directory: str | Path, is_main_process: bool = True, *arguments: object, **options: object
    ) -> None:
        """As in transformers; with position_terms.safetensors where the engine needs it and can use it."""
        super().save_pretrained(save_directory, is_main_process, *arguments, **options)
        if is_main_process and not options.get("push_to_hub"):  # the upload has baked it
            self._bake(Path(save_directory))

    def _upload_modified_files(self, working_dir: str | Path, *arguments: object, **options: object) -> object:
        """transformers calls it for ``push_to_hub``, also at the end of its ``save_pretrained``."""
        self._bake(Path(working_dir))
        return super()._upload_modified_files(working_dir, *arguments, **options)

    @staticmethod
    def _bake(model_dir: Path) -> None:
        if not any((model_dir / name).exists() for name in ("model.safetensors", "model.safetensors.index.json")):
            return
        try:
            bake(model_dir)
        except RuntimeError as error:  # of an encoding with terms that no file has
            if not str(error).startswith("[position_terms] terms must be rows"):
                raise

    def prepare_inputs_for_generation(
        self, input_ids: Tensor, attention_mask: Tensor | None = None, **_: object
    ) -> dict[str, Tensor | None]:
        return {"input_ids": input_ids, "attention_mask": attention_mask}

    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        position_ids: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        encoder_hidden_states: Tensor | None = None,
        encoder_attention_mask: Tensor | None = None,
        labels: Tensor | None = None,
        start_positions: Tensor | None = None,
        end_positions: Tensor | None = None,
        output_hidden_states: bool | None = None,
        output_attentions: bool | None = None,
        return_dict: bool | None = None,
        use_cache: bool | None = None,
        past_key_values: None = None,
        num_items_in_batch: Tensor | int | None = None,
    ) -> RfEncoderOutput | tuple:
        """Arguments as of transformers' BERT; without caches, so ``use_cache`` changes nothing."""
        rows = dict(
            input_ids=input_ids,
            attention_mask=attention_mask,
            token_type_ids=token_type_ids,
            positions=position_ids,
            inputs_embeds=inputs_embeds,
        )
        choices, config = 1, self.config
        tokens, dims = (input_ids, 3) if inputs_embeds is None else (inputs_embeds, 4)
        if self._layout["kind"] == "ForMultipleChoice" and isinstance(tokens, Tensor) and tokens.dim() == dims:
            choices = tokens.shape[1]
            rows = {name: x if x is None else x.flatten(0, 1) for name, x in rows.items()}
        states = config.output_hidden_states if output_hidden_states is None else output_hidden_states
        attends = config.output_attentions if output_attentions is None else output_attentions
        out = Model.forward(
            self,
            **rows,
            past_key_values=past_key_values,
            encoder_hidden=encoder_hidden_states,
            encoder_mask=encoder_attention_mask,
            num_choices=choices,
            output_hidden_states=bool(states),
            output_attentions=bool(attends),
        )
        ends = None if start_positions is None and end_positions is None else (start_positions, end_positions)
        if labels is not None or ends is not None:
            layout = self._layout | {"problem_type": config.problem_type}
            out["loss"] = loss_of(layout["kind"], out, labels, ends, layout, num_items_in_batch)
        hidden, pooled = out.pop("hidden"), out.pop("pooled", None)
        if self._layout["kind"] == "Model":
            out |= {"last_hidden_state": hidden, "pooler_output": pooled}
        found = RfEncoderOutput(**out)
        return found.to_tuple() if (config.return_dict if return_dict is None else return_dict) is False else found


def _tensors_of(script: torch.ScriptObject) -> dict[str, Tensor]:
    return {name: x.detach() for name, x in {**script.named_parameters(), **script.named_buffers()}.items()}


_SUFFIXES = [head.removeprefix("RoFormer") for head in HEADS]
for _suffix in _SUFFIXES:
    _bases = (RfEncoderPreTrainedModel, *([GenerationMixin] if _suffix == "ForCausalLM" else []))
    globals()["RfEncoder" + _suffix] = type("RfEncoder" + _suffix, _bases, {"__module__": __name__})


# In place of the class of transformers, which knows neither WoBERT's words nor dictionaries of a directory.
class RoFormerTokenizer(transformers.PreTrainedTokenizer):
    vocab_files_names = {"vocab_file": "vocab.txt"}  # noqa: RUF012 - as there
    model_input_names = ["input_ids", "token_type_ids", "attention_mask"]  # noqa: RUF012

    def __init__(self, vocab_file: str, **options: object):
        self._tokenizer = Tokenizer(Path(vocab_file).parent)
        super().__init__(**{"special_tokens_pattern": "cls_sep", **self._tokenizer.special_tokens_map, **options})

    @property
    def vocab_size(self) -> int:
        return self._tokenizer.vocab_size

    def get_vocab(self) -> dict[str, int]:
        return self._tokenizer.get_vocab()

    def _tokenize(self, text: str, **_: object) -> list[str]:
        return self._tokenizer.tokenize(text)

    def _convert_token_to_id(self, token: str) -> int:
        return self._tokenizer.convert_tokens_to_ids(token)

    def _convert_id_to_token(self, index: int) -> str:
        return self._tokenizer.convert_ids_to_tokens(index)

    def _decode(self, token_ids: int | list[int], skip_special_tokens: bool = False, **_: object) -> str:
        return self._tokenizer.decode(token_ids, skip_special_tokens=skip_special_tokens)

    def save_vocabulary(self, save_directory: str, filename_prefix: str | None = None) -> tuple[str, ...]:
        own = Path(self._tokenizer.name_or_path)
        files = [own / name for name in ("vocab.txt", "tokenizer.json", "dict.txt", "user_dict.txt")]
        return tuple(shutil.copy(file, save_directory) for file in files if file.exists())


def register() -> None:
    transformers.AutoConfig.register("rf_encoder", RfEncoderConfig, exist_ok=True)
    transformers.AutoTokenizer.register(
        RfEncoderConfig, transformers.BertTokenizer, slow_tokenizer_class=RoFormerTokenizer, exist_ok=True
    )
    for suffix in _SUFFIXES:
        auto = getattr(transformers, "AutoModel" + suffix.removeprefix("Model"))
        auto.register(RfEncoderConfig, globals()["RfEncoder" + suffix], exist_ok=True)
    pretraining = globals()["RfEncoderForMaskedLM"]
    transformers.AutoModelForPreTraining.register(RfEncoderConfig, pretraining, exist_ok=True)
