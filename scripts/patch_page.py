"""Writes docs/patch-families.md: what `patch` does with each model type of the auto classes of transformers.

Results are read from the files of transformers, by the functions that `patch` calls. --check writes nothing, and ends
with 1 if the page is out of date.
"""

import importlib
import inspect
import re
import sys
from pathlib import Path

from page_tables import parser_of, with_body, written

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "patch-families.md"
BEGIN = "<!-- table: scripts/patch_page.py writes what is between these lines -->"
END = "<!-- end of the table -->"
KINDS = ("", "_FOR_CAUSAL_LM", "_FOR_MASKED_LM", "_FOR_SEQ_TO_SEQ_CAUSAL_LM", "_FOR_TEXT_ENCODING")
TESTED = "patched, and compared with the unpatched model by the tests"
PATCHED = "patched through the attention interface"
SOFTCAP = "patched, except where scores are capped (`softcap`)"
TERMS = "accepted, but transformers computes the calls: its function for eager attention has other terms"
PARTS = "as the models inside: pictures, sound or several models"
OWN = "refused: attention in its own code, or none"
LACKING = "not examined: it needs another package"

sys.path[:0] = [str(ROOT / folder) for folder in ("python", "tests")]


def model_classes():
    """The first class of each model type."""
    import transformers
    from transformers.models.auto import modeling_auto as auto

    names = {}
    for kind in KINDS:
        for model_type, name in getattr(auto, f"MODEL{kind}_MAPPING_NAMES").items():
            names.setdefault(model_type, name if isinstance(name, str) else name[0])
    for model_type, name in sorted(names.items()):
        try:
            cls = getattr(transformers, name)
            yield model_type, cls if cls.config_class else None
        except (ImportError, AttributeError):
            yield model_type, None


def result_of(cls, tested):
    from roformer_cpp._patched import masks

    own_code = importlib.import_module("roformer_cpp.patch")._FAMILIES  # the package has the function by this name

    if cls is None:
        return LACKING
    files = {base.__module__ for base in cls.__mro__}
    if cls.config_class in tested:
        return TESTED
    if files & own_code.keys():
        return PATCHED
    modeling = masks.modeling_of(cls)
    if modeling is None:
        has_parts = not set(getattr(cls.config_class, "sub_configs", {})) <= {"attn_config"}
        return PARTS if has_parts or re.search(r"from \.\.\w+\.modeling\w+ import \w+Model\b", source_of(cls)) else OWN
    eager = getattr(modeling, "eager_attention_forward", None)
    if eager is not None and "softcap" in inspect.getsource(eager):
        return SOFTCAP
    has_sinks = "s_aux" in inspect.getsource(modeling)  # which are a score of the kernel
    is_plain = masks.supports_sdpa(modeling) or masks.has_plain_eager(modeling)
    return PATCHED if has_sinks or is_plain else TERMS


def source_of(cls):
    return "" if cls is None else inspect.getsource(sys.modules[cls.__module__])


def is_rotary(cls):
    return bool(re.search(r"apply_\w*(rotary|rope)|rotary_emb|rotary_pos", source_of(cls)))


def table():
    import transformers

    import patch_models

    tested = {getattr(transformers, family.head).config_class for family in patch_models.FAMILIES.values()}
    groups = {}
    for model_type, cls in model_classes():
        groups.setdefault((result_of(cls, tested), is_rotary(cls)), []).append(f"`{model_type}`")
    lines = [f"Of transformers {transformers.__version__}, {sum(map(len, groups.values()))} model types:", ""]
    lines += ["| result | rotary | number | model types |", "|---|---|---:|---|"]
    order = (TESTED, PATCHED, SOFTCAP, TERMS, PARTS, OWN, LACKING)
    for (result, rotary), types in sorted(groups.items(), key=lambda x: (order.index(x[0][0]), not x[0][1])):
        lines.append(f"| {result} | {'yes' if rotary else 'no'} | {len(types)} | {', '.join(types)} |")
    return "\n".join(lines)


def main():
    given = parser_of(__doc__).parse_args()
    return written(PAGE, with_body(PAGE.read_text(encoding="utf-8"), BEGIN, END, table()), given.check)


if __name__ == "__main__":
    sys.exit(main())
