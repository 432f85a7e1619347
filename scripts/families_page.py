"""Writes docs/families.md: the models of other libraries that the engine opens, each compared with transformers.

Directories of each family and head at two sizes, with random weights, from the makers of tests/foreign_encoders.py and
tests/decoder_embedders.py, and directories with the keys and names of their authors. Tokens: of the class that
transformers has for the family, trained on random strings. Decoders: directories and GGUF files of the makers of
tests/rotary_decoders.py, with greedy search. --check only compares with the bound of float32 and the tokens, and ends
with 1 if one differs.
"""

import json
import logging
import os
import sys
import tempfile
import warnings
from functools import partial
from pathlib import Path

from page_tables import parser_of, table, with_body, written

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "families.md"
BEGIN = "<!-- families: scripts/families_page.py writes what is between these lines -->"
END = "<!-- end of families -->"
TITLES = ["directory", "float32: difference", "bfloat16: cosine", "int8: cosine"]
TOKEN_TITLES = ["tokenizer of transformers", "families", "texts with equal tokens"]
DECODER_TITLES = ["decoder", "float32: difference", "equal tokens", "GGUF file: difference"]
TEXTS, NEW_TOKENS = 4000, 64
# The first shape is the maker's default.
DECODER_SHAPES = ({}, {"hidden_size": 72, "intermediate_size": 44})

os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
sys.path[:0] = [str(ROOT / folder) for folder in ("tests", "tests/oracles", "tests/engine", "python")]


def measure(name, family, makers, head="Model"):
    """The class and the family; of all directories the largest difference in float32, relative to the largest value,
    and the lowest cosines of the others. A maker saves a directory, and gives what computes its results of a row."""
    import numpy as np
    import test_foreign_encoders as cases

    from rf_engine import Engine

    result = {"class": name, "family": family, "float32": 0.0, "bfloat16": 1.0, "int8": 1.0}
    for make in makers:
        with tempfile.TemporaryDirectory() as folder:
            compute, rows = make(Path(folder)), cases.rows_of()
            theirs = np.concatenate([compute(row).ravel() for row in rows])
            for precision in ("float32", "bfloat16", "int8"):
                engine = Engine(folder, precision, head="none" if head == "Model" else "configured")
                ours = (engine.hidden(rows) if head == "Model" else engine.logits(rows)).ravel()
                if precision == "float32":
                    difference = float(np.abs(ours - theirs).max() / np.abs(theirs).max())
                    result[precision] = max(result[precision], difference)
                    continue
                cosine = float(ours @ theirs / np.linalg.norm(ours) / np.linalg.norm(theirs))
                result[precision] = min(result[precision], cosine)
    return result


def models():
    """The arguments of `measure`: encoders and decoders at two sizes, and what authors publish."""
    import test_foreign_encoders as encoders
    from test_published_configs import PUBLISHED, publish

    import authors_encoders
    import decoder_embedders as decoders
    import foreign_encoders

    def maker(theirs_of, make, **changes):
        return lambda folder: partial(theirs_of, make(folder=folder, **changes))

    def published(name, folder):
        make_weights, keys = PUBLISHED[name]
        oracle = make_weights(folder)
        publish(folder, keys)
        return partial(decoders.theirs_of, oracle)

    for family, head in foreign_encoders.CASES:
        make = partial(foreign_encoders.make_encoder, family, head)
        makers = [maker(encoders.theirs_of, make, **changes) for changes in encoders.SHAPES.values()]
        yield foreign_encoders.FAMILIES[family][0] + head, family, makers, head
    for case, (stem, _) in decoders.CASES.items():
        make = partial(decoders.make_bare, case, spread=0.1)
        yield f"{stem}Model", case, [maker(decoders.theirs_of, make, **changes) for changes in DECODER_SHAPES]
    for name, (_, keys) in PUBLISHED.items():
        yield keys["architectures"][0], name, [partial(published, name)]
    for (name, family), make in authors_encoders.AUTHORS.items():
        yield name, family, [make]


def measure_decoders():
    """Differences of logits, relative to the largest, and how many tokens of greedy search equal transformers'
    tokens."""
    import numpy as np
    import test_gguf as files
    import test_rotary_decoders as directories
    import torch

    from rf_generation import CausalEngine
    from rotary_decoders import FAMILIES, VARIANTS, make_decoder, make_rows, oracle_logits, write_gguf

    def difference(oracle, engine):
        rows = make_rows()
        theirs = np.concatenate([oracle_logits(oracle, row) for row in rows])
        return float(np.abs(engine.logits(rows) - theirs).max() / np.abs(theirs).max())

    options = {"max_new_tokens": NEW_TOKENS, "do_sample": False, "eos_token_id": None, "pad_token_id": 0}
    for name in [*FAMILIES, *VARIANTS]:
        family, changes = directories.case_of(name)
        with tempfile.TemporaryDirectory() as folder:
            oracle = make_decoder(family, folder, max_position_embeddings=128, **changes)
            engine, (row,) = CausalEngine(folder), make_rows((21,))
            ids = torch.tensor(row)[None].long()
            theirs = oracle.generate(ids, attention_mask=torch.ones_like(ids), **options)[0, len(row) :].tolist()
            ours = engine.generate([row], max_new_tokens=NEW_TOKENS)[0][0].ids
            result = {"class": type(oracle).__name__, "case": name, "float32": difference(oracle, engine)}
            result["equal"] = sum(a == b for a, b in zip(ours, theirs, strict=True))
            if name in files.FAMILIES or name in ("llama", "qwen2", "gpt_neox"):
                family, changes = files.FAMILIES.get(name, (name, {}))
                oracle = make_decoder(family, **changes)
                result["gguf"] = difference(oracle, CausalEngine(write_gguf(oracle, Path(folder) / "model.gguf")))
        yield result


def measure_tokens():
    """For each tokenizer class of the families: how many random strings have the same tokens."""
    import transformers
    from transformers.models.auto.tokenization_auto import TOKENIZER_MAPPING_NAMES

    import roformer_cpp
    import tokenizer_texts
    from foreign_encoders import FAMILIES

    texts = list(tokenizer_texts.random_strings(TEXTS, 3))
    plain = [text.replace("[", "(") for text in texts[:500]]  # without special tokens
    families = [*dict.fromkeys(family.split()[0] for family in FAMILIES), "qwen2", "qwen3", "t5", "bert"]
    classes = {}
    for family in families:
        name = TOKENIZER_MAPPING_NAMES.get(family)
        if name not in (None, "TokenizersBackend", "EsmTokenizer"):  # by tokenizer.json alone; by a fixed vocabulary
            classes.setdefault(name, []).append(family)
    for name, users in classes.items():
        trained = getattr(transformers, name)().train_new_from_iterator(plain, 4000)
        with tempfile.TemporaryDirectory() as folder:
            trained.save_pretrained(folder)
            (Path(folder) / "config.json").write_text(json.dumps({"model_type": users[0]}))
            theirs, ours = transformers.AutoTokenizer.from_pretrained(folder), roformer_cpp.Tokenizer(folder)
            equal = sum(ours.encode(text) == theirs(text)["input_ids"] for text in texts)
        yield {"tokenizer": name, "families": users, "texts": len(texts), "equal": equal}


def cells(result):
    return [
        f"`{result['class']}` (`{result['family']}`)",
        f"{result['float32']:.1e}",
        f"{result['bfloat16']:.4f}",
        f"{result['int8']:.4f}",
    ]


def main():
    import tolerances as tol

    parser = parser_of(__doc__)
    parser.add_argument("--json", type=Path, help="also writes the figures to this file")
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    results, bad = [], 0
    for model in models():
        result = measure(*model)
        exceeds = result["float32"] > tol.T4_MAX
        bad += exceeds
        print(" | ".join(cells(result)), "beyond T4" if exceeds else "", flush=True)
        results.append(result)
    decoders = list(measure_decoders())
    for each in decoders:
        bad += max(each["float32"], each.get("gguf", 0)) > tol.T4_MAX or each["equal"] < NEW_TOKENS
        print(each, flush=True)
    tokens = list(measure_tokens())
    for each in tokens:
        bad += each["equal"] < each["texts"]
        print(each, flush=True)
    print(f"{len(results)} classes, {len(decoders)} decoders, {bad} beyond {tol.T4_MAX} or with other tokens")
    if given.json:
        given.json.write_text(json.dumps({"classes": results, "decoders": decoders, "tokens": tokens}, indent=1) + "\n")
    if not given.check and not bad:
        rows = [
            [f"`{x['tokenizer']}`", ", ".join(f"`{name}`" for name in x["families"]), f"{x['equal']} of {x['texts']}"]
            for x in tokens
        ]
        lines = [
            [
                f"`{x['class']}` (`{x['case']}`)",
                f"{x['float32']:.1e}",
                f"{x['equal']}",
                f"{x['gguf']:.1e}" if "gguf" in x else "–",
            ]
            for x in decoders
        ]
        tables = table(TITLES, map(cells, results)), table(DECODER_TITLES, lines), table(TOKEN_TITLES, rows)
        body = "\n\n".join(tables)
        written(PAGE, with_body(PAGE.read_text(encoding="utf-8"), BEGIN, END, body), given.check)
    return int(bad > 0)


if __name__ == "__main__":
    sys.exit(main())
