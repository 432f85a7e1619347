"""The two layouts of rotary embedding: pair i is elements (2i, 2i+1) of a head, or (i, i + R/2).

A model in one layout computes the same scores in the other when the rows of its query and key projections, which make
these elements, change their places in the same way: a score is a sum over pairs, and both sides of a pair are rotated
alike. Where values are rotated too, so do the rows of the value projection and the columns of the one that reads them.
"""

import numpy as np

from .._model_files import ModelFiles, Stored
from .checkpoint import WHERE


def order(rotary_dim: int, head_dim: int, layout: str) -> np.ndarray:
    """int64 [head_dim]: of each element in the layout that is named, its place in the other one. Elements beyond
    ``rotary_dim`` are not rotated and keep their places."""
    halves = np.arange(rotary_dim).reshape(-1, 2).T.ravel()  # 0, 2, 4, .., 1, 3, 5, ..
    rotated = halves if layout == "halves" else np.argsort(halves)
    return np.concatenate([rotated, np.arange(rotary_dim, head_dim)])


def change_layout(files: ModelFiles, tensors: dict[str, Stored], layout: str) -> bool:
    """Moves rows of ``tensors``, which have the names of the file, to another layout. Returns False and changes nothing
    if the model already has it. Raises ValueError for a model that does not rotate or also reads the rows elsewhere."""
    encoding = _rotation(files)
    if encoding["layout"] == layout:
        return False
    if files.written_config["model_type"] not in ("roformer", "roformer_v2", "rf_encoder"):
        raise ValueError(f"[convert] a {files.written_config['model_type']} cannot name another layout, got {layout!r}")
    head_dim, heads = files.head_dim, files.config["num_attention_heads"]
    places = order(encoding["rotary_dim"], head_dim, layout)
    rows = (np.arange(heads)[:, None] * head_dim + places).ravel()
    sides = ["query", "key"]
    rotates_values = encoding["rotates_values"] or files.config["rotary_value"]
    for number in range(files.config["num_hidden_layers"]):
        name = f"{files.prefix}encoder.layer.{number}.attention"
        for side in sides + ["value"] * rotates_values:
            for part in ("weight", "bias"):
                _take(tensors, files.file_name(f"{name}.self.{side}.{part}"), rows, 0)
        if rotates_values:
            _take(tensors, files.file_name(f"{name}.output.dense.weight"), rows, 1)
    return True


def _take(tensors: dict[str, Stored], name: str, rows: np.ndarray, axis: int) -> None:
    tensors[name] = Stored(tensors[name].dtype, np.take(tensors[name].array, rows, axis))


def _rotation(files: ModelFiles) -> dict:
    kinds = [encoding["kind"] for encoding in files.encodings]
    names = ", ".join(encoding["type"] for encoding in files.encodings)
    if kinds.count("rotary") != 1:
        raise ValueError(f"[{WHERE}] layout needs a model whose position encoding rotates, got {names}")
    if files.linear_attention:
        raise ValueError(f"[{WHERE}] layout needs softmax attention, got linear")
    if files.native.terms() is not None:
        raise ValueError(f"[{WHERE}] layout needs a rotation without stored terms and other tables, got {names}")
    table = f"{files.prefix}encoder.embed_positions.weight"
    if files.has(table) and files.uses_stored_table(files.weight(table)):
        raise ValueError(f"[{WHERE}] layout needs the computed position table, got another one in {table}")
    return files.encodings[kinds.index("rotary")]


def with_layout(config: dict, layout: str) -> dict:
    """The keys of config.json that say so; ``config`` is a configuration as this library writes it."""
    config = dict(config)
    if config["model_type"] in ("roformer", "roformer_v2"):
        config |= {"model_type": "rf_encoder", "family": config["model_type"], "position_encoding": "rope"}
    given = config["position_encoding"]
    changed = []
    for encoding in given if isinstance(given, list) else [given]:
        encoding = {"type": encoding} if isinstance(encoding, str) else dict(encoding)
        if encoding["type"] in ("rope", "axial", "axial-nd", "mrope", "xpos"):
            encoding["layout"] = layout
            if layout == ("halves" if encoding["type"] == "mrope" else "pairs"):  # the default
                del encoding["layout"]
        changed.append(encoding if len(encoding) > 1 else encoding["type"])
    config["position_encoding"] = changed if isinstance(given, list) else changed[0]
    return config
