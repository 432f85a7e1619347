#!/usr/bin/env python3
"""Writes model/src/rotary_report/families.inc, the rotary model types of `roformer doctor`, from the classes of the
installed transformers.

Every fact is tried out: configurations are built with one key changed, the frequencies of the rotary module are
compared with the formula, and the function that the attention calls rotates two random vectors to find the pairing.
The conditions around that call, from its syntax tree, say which layers rotate. A class that does something else is
listed with what it does, and `roformer doctor` refuses it.
"""

import inspect
import re
import sys
import textwrap
from dataclasses import dataclass, field
from pathlib import Path

import torch
import transformers
from page_tables import parser_of, written
from rotary_classes import (
    AXIAL,
    SIZE_KEYS,
    Call,
    Refused,
    build,
    frequencies,
    has_plain_projections,
    head_in_layer,
    head_of,
    layer_types,
    may_rotate,
    modeling_of,
    plain,
    reads_scaling,
    rotate,
    rotating_calls,
    scores,
    size_of,
    types_of,
    unscaled_variants,
)
from transformers import PreTrainedConfig
from transformers.models.auto.configuration_auto import CONFIG_MAPPING, CONFIG_MAPPING_NAMES

PATH = Path(__file__).resolve().parents[1] / "model/src/rotary_report/families.inc"
# The keys that the C++ reader finds without the table, in this order.
TEXT_PARTS = ("text_config", "llm_config", "language_config", "thinker_config", "vlm_config")
# Classes without rope_parameters that rotate, whose rotation is fixed by the code.
FIXED = {
    "codegen": {"length": 2048, "layout": "pairs", "size": "dim", "part": 64, "part_key": "rotary_dim"},
    "gptj": {"length": 2048, "layout": "pairs", "size": "dim", "part": 64, "part_key": "rotary_dim"},
    "esm": {
        "length": 1026,
        "base_key": "rope_theta",
        "needed_key": "position_embedding_type",
        "needed_value": "rotary",
    },
    "roformer": {"length": 1536, "layout": "pairs", "head_key": ""},
}
# Keys without whose value a class does not rotate.
NEEDED = {
    "position_embedding_type": ("rope", "rotary_emb = .* if config.position_embedding_type == .rope."),
    "use_mem_rope": ("true", "if config.use_mem_rope:"),
}
# The layers selected by a condition around the call that rotates; "" if it does not depend on the layer.
CONDITIONS = {
    "self.use_rope": "listed",
    "self.is_local_attention": "full",
    "self.sliding_window is not None": "full",
    "self.sliding_window is None or self.is_sliding": "full_if_window",
    "self.config.rope_interleave": "",
    "not self.config.rope_interleave": "",
    "not is_cross_attention": "",
    "alibi is None": "",
    "self.rotary_emb is not None": "",
    "self.config.use_mem_rope": "",
    "self.is_kv_shared_layer": "",
    "not self.is_kv_shared_layer": "",
}
SEVERAL = "rotations in several parts, "
FIXED_BY_CODE = "a rotation without rope_parameters"
DEFAULTS = {  # of the columns, in their order
    "length": 2048, "original_length": 0, "layout": "halves", "base": 10000, "size": "whole", "part": 1,
    "part_key": "partial_rotary_factor", "base_key": "rope_theta", "head_key": "head_dim", "head_dim": 0,
    "layers": "one", "local_base": 0, "local_base_key": "", "unrotated": "none", "pairs_key": "", "needed_key": "",
    "needed_value": "", "reads_scaling": True, "plain_qkv": True,
}  # fmt: skip
ENUMS = {"layout": "RotaryLayout", "size": "RotarySize", "layers": "LayerTypes", "unrotated": "UnrotatedLayers"}
WIDTH = 112


@dataclass
class Table:
    rows: dict[str, dict] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)  # a mechanism for each type
    parts: dict[str, str] = field(default_factory=dict)  # the sub-configuration that is read
    others: list[str] = field(default_factory=list)  # without rotation
    files: set = field(default_factory=set)  # the modules of the models with rope_parameters


def fits_layer(row: dict, config, layer: str | None) -> bool | None:
    """Whether the row explains the frequencies; of a scaling their number. None: it gives an odd size."""
    keys, got = config.to_dict(), frequencies(config, layer)
    parameters = keys["rope_parameters"] if layer is None else keys["rope_parameters"][layer]
    share = parameters.get("partial_rotary_factor", row["part"]) if row["size"] == "share" else 1
    rotated = int(head_in_layer(row, keys, layer) * share)
    kind = parameters.get("rope_type", "default")
    if rotated < 2 or rotated % 2 or kind == "proportional":
        return None
    if kind not in ("default", "mrope"):
        return rotated == 2 * len(got)
    want = parameters["rope_theta"] ** -(torch.arange(0, rotated, 2, dtype=torch.float64) / rotated)
    return want.shape == got.shape and torch.allclose(want, got, rtol=1e-5, atol=0)


def fits(row: dict, configs: list) -> bool:
    found = [fits_layer(row, config, layer) for config in configs for layer in layer_types(config)]
    return False not in found and True in found


def variants(cls, config) -> list:
    """The configuration without scaling, and copies with one changed key, as far as the class accepts them."""
    keys = config.to_dict()
    parameters = plain(config)
    types = types_of(config)
    found = [build(cls, rope_parameters=parameters, **types)]
    pattern = re.compile(f"head_(dim|size)$|d_kv|kv_channels|^({'|'.join(SIZE_KEYS['width'])})$")
    changes = [{key: 2 * keys[key]} for key in keys if type(keys[key]) is int and pattern.search(key)]
    changes.append({"head_dim": 48})  # read by many classes without this field
    found += [build(cls, rope_parameters=parameters, **types, **change) for change in changes]
    if layer_types(config) == [None]:
        found.append(build(cls, rope_parameters=parameters | {"partial_rotary_factor": 0.5}))
    usable = []
    for each in found:
        if each is None:
            continue
        try:
            for layer in layer_types(each):
                frequencies(each, layer)
            usable.append(each)
        except Refused:
            raise
        except Exception:
            continue
    if not usable:
        raise Refused("a rotary module that cannot be built")
    return usable


def sizes_of(cls, config) -> dict:
    """head_key, head_dim, size and part of a row that explain all variants."""
    keys, all_configs = config.to_dict(), [*variants(cls, config), config]
    head_keys = [k for k in ("qk_rope_head_dim", "kv_channels", "attention_head_dim", "d_kv") if k in keys]
    width_key = next((k for k in SIZE_KEYS["width"] if type(keys.get(k)) is int), None)
    wider = build(cls, **{width_key: 2 * keys[width_key]}) if width_key else None
    parameters = config.rope_parameters
    part = 1 if layer_types(config) != [None] else parameters.get("partial_rotary_factor", 1)
    for head_key in [*head_keys, "head_dim", ""]:
        fixed = 0
        if head_key == "qk_rope_head_dim":  # from which these classes derive head_dim
            described = [(c, c.to_dict()) for c in all_configs]
            configs = [c for c, own in described if own.get("head_dim") in (None, own[head_key], keys.get("head_dim"))]
        else:
            configs = all_configs
        if head_key == "head_dim" and not any(c.to_dict().get("head_dim") for c in configs):
            continue
        if head_key and keys.get(head_key):
            stays = wider is None or wider.to_dict().get(head_key) == keys[head_key]
            fixed = keys[head_key] if stays else 0
            width, heads = size_of(keys, "width"), size_of(keys, "heads")
            if not stays and keys[head_key] != width // heads:
                raise Refused("heads of another size than hidden_size / num_attention_heads")
        for size in ("whole", "share"):
            row = {"head_key": head_key, "head_dim": fixed, "size": size, "part": part}
            if fits(row, configs):
                return row
            # A class that scales by default, and whose frequencies have another size without scaling.
            scaled = part != 1 and config.rope_parameters["rope_type"] not in ("default", "mrope")
            if scaled and size == "share" and int(head_of(row, keys) * part) == 2 * len(frequencies(config, None)):
                return row
    raise Refused("frequencies of another formula")


def key_that_sets(cls, name: str, value: float, keys: tuple[str, ...], layer: str | None = None) -> str | None:
    """The first of the keys that sets ``name`` in rope_parameters."""
    for key in keys:
        if (other := build(cls, **{key: value})) is not None:
            parameters = other.rope_parameters if layer is None else other.rope_parameters[layer]
            if parameters.get(name) == value:
                return key
    return None


def keys_of(cls, config) -> dict:
    """The names by which older files give the base and the share at the top level."""
    base, part = "rope_theta", "partial_rotary_factor"
    if layer_types(config) == [None]:
        base = key_that_sets(cls, base, 12345.0, ("rotary_emb_base", base)) or base
        part = key_that_sets(cls, part, 0.75, ("rotary_pct", part)) or part
    return {"base_key": base, "part_key": part}


def layers_of(cls, config) -> dict:
    """Whether there is one rotation, one each for two types of layers that older files describe too, or own ones."""
    types = layer_types(config)
    if types == [None]:
        return {}
    simple = types == ["full_attention", "sliding_attention"] and all(
        value.get("rope_type", "default") == "default" and value.get("partial_rotary_factor", 1) == 1
        for value in config.rope_parameters.values()
    )
    scaled = build(cls, rope_scaling={"rope_type": "linear", "factor": 8.0})
    hit = [t for t in types if scaled is not None and scaled.rope_parameters.get(t, {}).get("factor") == 8.0]
    if not simple or "full_attention" not in hit:
        return {"layers": "own", "base_key": ""}
    row = {"layers": "two_scaled" if len(hit) == 2 else "two"}
    row["local_base"] = config.rope_parameters["sliding_attention"]["rope_theta"]
    for name, layer, keys in (
        ("base_key", "full_attention", ("global_rope_theta", "rope_theta")),
        ("local_base_key", "sliding_attention", ("local_rope_theta", "rope_local_base_freq")),
    ):
        if key := key_that_sets(cls, "rope_theta", 12345.0, keys, layer):
            row[name] = key
    return row


def unrotated_of(config, calls: list[Call]) -> str:
    rules = set()
    for condition in {c for call in calls for c in call.conditions}:
        if condition == "position_embeddings is not None":
            source = inspect.getsource(modeling_of(type(config)))
            keys = config.to_dict()
            if "layer_rope_theta[i] else None" in source:
                rules.add("zero_base")
            elif "layer_rope_theta" in keys:
                raise Refused("a base for each layer (layer_rope_theta)")
            continue
        if condition not in CONDITIONS:
            raise Refused(f"layers that rotate if {condition}")
        rules.add(CONDITIONS[condition])
    rules.discard("")
    if len(rules) > 1:
        raise Refused("layers that rotate by several rules")
    return next(iter(rules), "none")


def layout_of(config, function: str) -> str:
    error = None
    for each in unscaled_variants(config):
        try:
            return layout_in(each, function)
        except Refused as refused:
            error = error or refused
    raise error


def layout_in(config, function: str) -> str:
    """By scores of rotated vectors, because some write the rotated elements in another order."""
    inverse = frequencies(config, layer_types(config)[0])
    generator = torch.Generator().manual_seed(1)
    x, y = torch.randn(2, 16, 2 * len(inverse), generator=generator, dtype=torch.float64)
    positions = torch.arange(0, 32, 2)
    theirs = (rotate(config, function, x, positions) @ rotate(config, function, y, positions).T).double()
    for pairing in ("pairs", "halves"):
        if torch.allclose(theirs, scores(pairing, x, y, positions, inverse), atol=1e-4 * x.shape[1]):
            return pairing
        if torch.allclose(theirs, scores(pairing, x, y, -positions, inverse), atol=1e-4 * x.shape[1]):
            raise Refused("rotations by negative angles")
    raise Refused("another order of rotated elements")


def pairing_of(config, calls: list[Call]) -> dict:
    layouts = {call.function: layout_of(config, call.function) for call in calls}
    kinds = set(layouts.values())
    if len(kinds) == 1:
        return {"layout": kinds.pop()}
    by_key = {c for call in calls for c in call.conditions if "rope_interleave" in c}
    if by_key:
        return {
            "layout": "pairs" if getattr(config, "rope_interleave", True) else "halves",
            "pairs_key": "rope_interleave",
        }
    raise Refused("two pairings")


def needed_of(config) -> dict:
    keys, source = config.to_dict(), inspect.getsource(modeling_of(type(config)))
    for key, (value, pattern) in NEEDED.items():
        if key in keys and re.search(pattern, source):
            return {"needed_key": key, "needed_value": value}
    return {}


def row_of(cls: type, config) -> dict:
    types = layer_types(config)
    parameters = config.rope_parameters
    if not parameters:
        raise Refused("no rotation unless rope_parameters has one for each layer type")
    if any(
        (value or {}).get("rope_type") == "axial"
        for value in ([parameters] if types == [None] else parameters.values())
    ):
        raise Refused(AXIAL)
    if modeling_of(cls) is None:
        raise Refused("a model file that is not its own")
    if types_of(config) and (complete := build(cls, rope_parameters=parameters, **types_of(config))) is not None:
        config = complete
    keys = config.to_dict()
    row = {"length": size_of(keys, "length") or 0}
    row |= sizes_of(cls, config) | keys_of(cls, config) | layers_of(cls, config)
    row["original_length"] = keys.get("original_max_position_embeddings") or 0
    scaled = types == [None] and parameters.get("rope_type") not in ("default", "mrope")
    bare = build(cls, rope_parameters={"rope_type": "default"}) if scaled else None
    first = parameters if types == [None] else parameters.get("full_attention", {"rope_theta": DEFAULTS["base"]})
    if row.get("layers") != "own":
        row["base"] = (bare.rope_parameters if bare is not None else first).get("rope_theta", first["rope_theta"])
    calls = rotating_calls(config)
    row |= pairing_of(config, calls)
    row["unrotated"] = unrotated_of(config, calls)
    row |= needed_of(config)
    row["reads_scaling"] = reads_scaling(cls, config)
    row["plain_qkv"] = has_plain_projections(cls, row)
    return row


def parts_of(config) -> dict[str, PreTrainedConfig]:
    return {
        key: part
        for key in getattr(config, "sub_configs", {})
        if isinstance(part := getattr(config, key, None), PreTrainedConfig)
    }


def rotating_parts(config, table: Table) -> list[str]:
    found = []
    for key, part in parts_of(config).items():
        if part.model_type in table.rows:
            found.append(key)
        found += [f"{key}.{inner}" for inner in rotating_parts(part, table)]
    return found


def read_part(config) -> str:
    """The sub-configuration that the reader takes, "" for none."""
    key = next((key for key in TEXT_PARTS if key in parts_of(config)), "")
    inner = read_part(parts_of(config)[key]) if key else ""
    return f"{key}.{inner}" if inner else key


def rotates_by_code(config) -> bool:
    try:
        return modeling_of(type(config)) is not None and bool(rotating_calls(config))
    except Refused:
        return False


def add_composite(model_type: str, config, table: Table) -> None:
    rotating, read = rotating_parts(config, table), read_part(config)
    if read in rotating:
        table.parts[model_type] = read
    elif model_type in table.refused and len(rotating) < 2:
        return
    elif rotating:
        table.refused[model_type] = (
            SEVERAL + ", ".join(rotating) if len(rotating) > 1 else f"a rotation in {rotating[0]} alone"
        )
    else:
        may = not parts_of(config) and may_rotate(type(config))
        if may and modeling_of(type(config)) not in table.files and rotates_by_code(config):
            table.refused[model_type] = FIXED_BY_CODE
        else:
            table.others.append(model_type)


def make_table(types=None) -> Table:
    table, composites = Table(), {}
    for model_type in sorted(types or CONFIG_MAPPING_NAMES):
        cls = CONFIG_MAPPING[model_type]
        if cls.model_type != model_type:  # another name of a class, which no file has
            continue
        config = build(cls)
        if model_type in FIXED:
            table.rows[model_type] = {"base": 10000.0, "base_key": "", "reads_scaling": False} | FIXED[model_type]
        elif config is None:
            table.refused[model_type] = "a class without a default configuration"
        elif not hasattr(config, "rope_parameters"):
            composites[model_type] = config
        else:
            table.files.add(modeling_of(cls))
            try:
                table.rows[model_type] = row_of(cls, config)
            except Refused as refused:
                table.refused[model_type] = str(refused)
                if parts_of(config):
                    composites[model_type] = config
    for model_type, config in composites.items():
        add_composite(model_type, config, table)
    return table


def shown(column: str, value) -> str:
    if column in ENUMS:
        return f"{ENUMS[column]}::k{value.title().replace('_', '')}"
    if isinstance(value, bool):
        return str(value).lower()
    return f'"{value}"' if isinstance(value, str) else f"{value:.12g}"


def line_of(model_type: str, row: dict) -> str:
    given = {column: row[column] for column in DEFAULTS if column in row}
    if row.get("size") not in ("share", "dim"):
        given = {column: value for column, value in given.items() if column not in ("part", "part_key")}
    cells = [f".{column} = {shown(column, value)}" for column, value in given.items() if value != DEFAULTS[column]]
    return f"    {{{', '.join([f'.model_type = {chr(34)}{model_type}{chr(34)}', *cells])}}},"


def text_of(table: Table) -> str:
    rows = [line_of(model_type, row) for model_type, row in sorted(table.rows.items())]
    refused: dict[str, list[str]] = {}
    for model_type, mechanism in sorted(table.refused.items()):
        refused.setdefault(mechanism, []).append(model_type)
    lists = []
    for mechanism, names in sorted(refused.items()):
        lines = textwrap.wrap(" ".join(names), WIDTH - 8, break_long_words=False, break_on_hyphens=False)
        lists += [f'    {{"{mechanism}",'] + [f'     " {line} "' for line in lines]
        lists[-1] += "},"
    return "\n".join(
        [
            f"// Written by scripts/doctor_table.py from the classes of transformers {transformers.__version__}.",
            "// clang-format off",
            "constexpr RotaryFamily kFamilies[] = {",
            *rows,
            "};",
            "// Model types whose rotation the table does not describe: the reason, and their names between spaces.",
            "constexpr std::pair<std::string_view, std::string_view> kRefused[] = {",
            *lists,
            "};",
            "",
        ]
    )


def main() -> int:
    given = parser_of(__doc__).parse_args()
    transformers.logging.set_verbosity_error()
    return written(PATH, text_of(make_table()), given.check)


if __name__ == "__main__":
    sys.exit(main())
