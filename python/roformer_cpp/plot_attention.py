"""Writes a page with the attention of a model to a text: `roformer plot-attention MODEL TEXT --output page.html`.

MODEL is a directory of transformers, a GGUF file, or a directory of roformer. The page is self-contained. It shows
the weights of every layer and head, and how much content and position encoding contribute to each score. In a checkout:
`python -m roformer_cpp.plot_attention`.
"""

import argparse
import json
import sys
from pathlib import Path

from ._command import exit_code


def write_page(model: Path, text: str, output: Path, graft: dict) -> None:
    from transformers import AutoModel, AutoTokenizer

    from . import Tokenizer, inspect, load_model
    from .graft import graft as apply

    folder, where = (model, {}) if model.is_dir() else (model.parent, {"gguf_file": model.name})
    config = json.loads((folder / "config.json").read_text(encoding="utf-8")) if not where else {}
    if config.get("model_type") in ("rf_encoder", "roformer"):
        loaded, tokenizer = load_model(folder), Tokenizer(folder)
    else:
        loaded = AutoModel.from_pretrained(folder, **where, dtype="float32")
        tokenizer = AutoTokenizer.from_pretrained(folder, **where)
    if graft:
        apply(loaded, **graft)
    inspect(loaded, text, tokenizer).save(output, f"Attention of {model.name}")


def _options(text: str) -> dict:
    try:
        return dict(json.loads(text))
    except (TypeError, ValueError):
        raise argparse.ArgumentTypeError(f"must be a JSON object, got {text!r}") from None


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="roformer plot-attention", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("model", type=Path, help="a directory, or a GGUF file")
    parser.add_argument("text", help="what the model reads")
    parser.add_argument("--output", type=Path, default=Path("attention.html"), help="the page (default: %(default)s)")
    parser.add_argument("--graft", type=_options, default={}, help='arguments of graft: {"encoding": "rerope", ..}')
    options = parser.parse_args(arguments)
    return exit_code(lambda: write_page(options.model, options.text, options.output, options.graft))


if __name__ == "__main__":
    sys.exit(main())
