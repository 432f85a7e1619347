"""How the classes of transformers describe and compute their rotations, tried out: for doctor_table.py and its test."""

import ast
import copy
import importlib
import inspect
import re
import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import torch
import transformers
from transformers import AutoModel
from transformers.models.auto.modeling_auto import MODEL_MAPPING, MODEL_MAPPING_NAMES

AXIAL = "rotations by the coordinates of image patches"


SIZE_KEYS = {
    "width": ("hidden_size", "n_embd", "d_model"),
    "heads": ("num_attention_heads", "n_head", "n_heads", "num_heads"),
    "length": ("max_position_embeddings", "n_positions", "max_seq_len"),
}
CALLED = re.compile(r"^_?(vision_)?apply_(rotary|rope|multi)")
CALLS = re.compile(r"\b" + CALLED.pattern[1:])
OTHER_MODELS = re.compile(r"from (\.{1,2}|transformers\.models\.)(\w+\.)*modeling_(?!auto)")


class Refused(Exception):
    """A class rotates in a way that the table cannot describe."""


def build(cls, **keys):
    """A configuration of a class; None if it refuses the keys."""
    try:
        return cls(**keys)
    except Exception:
        return None


@cache
def modeling_of(cls: type):
    try:
        return importlib.import_module(cls.__module__.replace("configuration_", "modeling_"))
    except ImportError:
        names = MODEL_MAPPING_NAMES.get(cls.model_type)
        model = getattr(transformers, names if isinstance(names, str) else names[0], None) if names else None
        return sys.modules.get(model.__module__) if model is not None else None


def may_rotate(cls: type) -> bool:
    """Whether the file of the model has a name of a rotation, or classes of other models; without importing it."""
    path = Path(sys.modules[cls.__module__].__file__)
    path = path.with_name(path.name.replace("configuration_", "modeling_"))
    text = path.read_text() if path.exists() else ""
    return not text or bool(CALLS.search(text) or OTHER_MODELS.search(text))


def configuration_of(function) -> str:
    """The annotation of its argument `config`."""
    parameter = inspect.signature(function).parameters.get("config")
    annotation = "" if parameter is None or parameter.annotation is parameter.empty else parameter.annotation
    return getattr(annotation, "__name__", str(annotation))


def own_classes(config, pattern: str) -> list[type]:
    """Classes of the model's file by name: for this configuration, otherwise all classes not for images or sound."""
    modeling = modeling_of(type(config))
    found = [x for x in vars(modeling).values() if inspect.isclass(x) and re.search(pattern, x.__name__)]
    names = [c.__name__ for c in type(config).__mro__[:-1]]
    for name in names:
        exact = [x for x in found if name in re.findall(r"\w+", configuration_of(x.__init__))]
        if exact:
            return exact
    return [x for x in found if not re.search("Vision|Audio|Flash|SaProt", x.__name__)]


def rotary_module(config):
    for cls in own_classes(config, "Rotary|Rope"):
        try:
            return cls(config)
        except Exception:
            continue
    raise Refused("a rotary module that is not built from its configuration")


def layer_types(config) -> list[str | None]:
    """[None] for one rotation, otherwise the keys of rope_parameters that are dictionaries or null."""
    parameters = getattr(config, "rope_parameters", None) or {}
    nested = [key for key, value in parameters.items() if isinstance(value, dict)]
    return sorted(nested) or [None]


def frequencies(config, layer: str | None) -> torch.Tensor:
    module = rotary_module(config)
    found = getattr(module, "inv_freq" if layer is None else f"{layer}_inv_freq", None)
    if found is None:
        raise Refused("a rotary module without inv_freq")
    if found.dim() != 1:
        raise Refused(AXIAL)
    return found.double()


def plain(config) -> dict:
    """rope_parameters without scaling, for each layer type."""

    def unscaled(parameters):
        kept = {k: v for k, v in parameters.items() if k in ("rope_theta", "partial_rotary_factor", "mrope_section")}
        return {"rope_type": "default", **kept}

    parameters = config.rope_parameters
    nested = layer_types(config) != [None]
    return {k: v and unscaled(v) for k, v in parameters.items() if v is None or isinstance(v, dict)} if nested else (
        unscaled(parameters)
    )  # fmt: skip


def types_of(config) -> dict:
    """Keys with a layer of each type of rope_parameters, where the default configuration lacks some."""
    types = [t for t in layer_types(config) if t is not None]
    default = getattr(build(type(config)), "layer_types", None) or types
    if set(types) <= set(default) or getattr(config, "_rope_type_labels", None):
        return {}
    window = {"sliding_window": 64} if getattr(config, "sliding_window", 64) is None else {}
    return {"num_hidden_layers": len(types), "layer_types": types} | window


@dataclass
class Call:
    function: str
    conditions: tuple[str, ...]


@cache
def class_nodes(module: str) -> dict[str, ast.ClassDef]:
    text = Path(sys.modules[module].__file__).read_text()
    tree = ast.parse(text if CALLS.search(text) else "")
    return {node.name: node for node in tree.body if isinstance(node, ast.ClassDef)}


@cache
def calls_of(cls: type) -> list[Call]:
    """The calls of rotating functions in the methods of a class, with the conditions around them."""
    found = []

    def walk(node, conditions):
        for name, value in ast.iter_fields(node):
            for child in value if isinstance(value, list) else [value]:
                if not isinstance(child, ast.AST):
                    continue
                here = conditions
                if isinstance(node, ast.If) and name in ("body", "orelse"):
                    test = ast.unparse(node.test)
                    here = (*conditions, test if name == "body" else f"not {test}")
                if isinstance(child, ast.Call):
                    called = ast.unparse(child.func).split(".")[-1]
                    if CALLED.match(called):
                        found.append(Call(called, here))
                walk(child, here)

    node = class_nodes(cls.__module__).get(cls.__name__) if cls.__module__.startswith("transformers.models") else None
    if node is not None:
        walk(node, ())
    return found


def rotating_calls(config) -> list[Call]:
    classes = own_classes(config, "Attention$|Attn$|SelfAttention$|Attention2$")
    calls = [call for cls in classes for call in calls_of(cls)]
    if not calls:  # an attention class without annotation, or one that inherits its forward
        everywhere = own_classes(config, "") + [base for cls in classes for base in cls.__mro__[1:-1]]
        calls = [
            call for cls in everywhere if cls.__module__.startswith("transformers.models") for call in calls_of(cls)
        ]
    if not calls:
        raise Refused("a rotation inside its attention")
    return calls


def apply_rows(function, rows, x: torch.Tensor, config) -> torch.Tensor:
    heads = x[None, None]  # [B, H, T, R]
    names = list(inspect.signature(function).parameters)
    if isinstance(rows, torch.Tensor):  # complex
        if "xq" in names and config.model_type.startswith("llama4"):
            return function(heads.transpose(1, 2), heads.transpose(1, 2), rows)[0][0, :, 0]
        return function(heads, heads, rows)[0][0, 0]
    if names[0] == "x" or names[1] == "cos":
        return function(heads, *rows)[0, 0]
    return function(heads, heads, *rows)[0][0, 0]


def scores(pairing: str, x, y, positions, inverse) -> torch.Tensor:
    angles = positions.double()[:, None] * inverse
    half = x.shape[-1] // 2

    def turned(z):
        first, second = (z[:, ::2], z[:, 1::2]) if pairing == "pairs" else (z[:, :half], z[:, half:])
        cos, sin = angles.cos(), angles.sin()
        return torch.cat([first * cos - second * sin, second * cos + first * sin], 1)

    return turned(x) @ turned(y).T


def with_parameters(config, parameters: dict):
    other = copy.deepcopy(config)
    other.rope_parameters = parameters
    return other


def unscaled_variants(config) -> list:
    """Without scaling; also with the sections of axes that a class needs."""
    parameters = plain(config)
    found = [with_parameters(config, parameters)]
    if layer_types(config) == [None]:
        pairs = len(frequencies(found[0], None))
        for sections in ([pairs - 2 * (pairs // 3), pairs // 3, pairs // 3], [pairs // 4] * 4):
            found.append(with_parameters(config, parameters | {"mrope_section": sections}))
    return found


def rotate(config, function: str, x: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
    """x [T, R] as a function of the model's file rotates queries of its first type of layers."""
    apply = getattr(modeling_of(type(config)), function, None)
    if apply is None:
        raise Refused("a rotation inside its attention")
    layer, module = layer_types(config)[0], rotary_module(config)
    names = inspect.signature(module.forward).parameters
    extra = (layer,) if layer is not None else ()
    for ids in (positions[None], positions[None, None].expand(3, 1, -1), positions[None, None].expand(4, 1, -1)):
        try:
            rows = module(x[None, None], ids, *extra) if "x" in names or "hidden_states" in names else module(ids)
            return apply_rows(apply, rows, x, config)
        except Exception:
            continue
    raise Refused("a rotation with other arguments")


def size_of(keys: dict, name: str) -> int | None:
    return next((keys[key] for key in SIZE_KEYS[name] if isinstance(keys.get(key), int)), None)


def head_of(row: dict, keys: dict) -> int:
    """As the C++ reader finds the size of a head."""
    head = keys.get(row["head_key"]) if row["head_key"] else None
    if head:
        return head
    if row["head_dim"]:
        return row["head_dim"]
    width, heads = size_of(keys, "width"), size_of(keys, "heads")
    if not width or not heads:
        raise Refused("heads whose size is in other keys")
    return width // heads


def head_in_layer(row: dict, keys: dict, layer: str | None) -> int:
    own = keys.get("per_layer_config") or {}
    for i, kind in enumerate(keys.get("layer_types") or ()):
        if kind == layer:
            per_layer = own.get(i) or own.get(str(i)) or own.get(f"{i:02}") or {}
            return per_layer.get("head_dim") or head_of(row, keys)
    return head_of(row, keys)


def reads_scaling(cls, config) -> bool:
    if layer_types(config) != [None]:
        return True
    parameters = plain(config)
    linear = build(cls, rope_parameters=parameters | {"rope_type": "linear", "factor": 4.0})
    before = build(cls, rope_parameters=parameters)
    try:
        return linear is None or before is None or not torch.equal(frequencies(linear, None), frequencies(before, None))
    except Refused:  # a class that refuses scalings
        return True


def has_plain_projections(cls, row: dict) -> bool:
    """Whether q_proj, k_proj and v_proj have heads times the head size rows, in a model on no device."""
    if row["head_key"] == "qk_rope_head_dim":
        return False
    default = build(cls).to_dict()
    sizes = {key: value for key, value in (("num_key_value_heads", 2), ("head_dim", 64)) if key in default}
    for keys in (sizes | {"num_hidden_layers": 1}, {"num_hidden_layers": 1}, {"num_hidden_layers": 4}):
        config = build(cls, **keys)
        if config is None or type(config) not in MODEL_MAPPING:
            continue
        try:
            with torch.device("meta"):
                state = AutoModel.from_config(config).state_dict()
        except Exception:
            continue
        keys = config.to_dict()
        heads, head = size_of(keys, "heads"), head_of(row, keys)
        groups = 1 if cls.model_type == "falcon" else keys.get("num_key_value_heads") or heads
        rows = {"q_proj": heads, "k_proj": groups, "v_proj": groups, "query": heads, "key": groups, "value": groups}
        rows |= dict.fromkeys(("qkv_proj", "query_key_value", "Wqkv"), heads + 2 * groups)
        pattern = re.compile(rf"(self_attn|attn|attention|self_attention|self)\.({'|'.join(rows)})\.weight$")
        found = [
            (pattern.search(name), tensor)
            for name, tensor in state.items()
            if not re.search("vision|visual|audio", name)
        ]
        found = [(match[2], tensor.shape) for match, tensor in found if match and tensor.dim() == 2]
        if found:
            return all(shape[0] == rows[name] * head for name, shape in found)
    return False
