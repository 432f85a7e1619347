"""Writes docs/families.md: the models of other libraries that the engine opens, each computed beside transformers.

    scripts/families_page.py [--check] [--json FILE]

Directories of each family and head at two sizes, with random weights, from the makers of tests/foreign_encoders.py and
tests/decoder_embedders.py, and directories with the keys and names of their authors. Tokens: of the class that
transformers has for the family, trained on random strings. --check only compares with the bound of float32 and the
tokens, and ends with 1 if one differs.
"""

import argparse
import json
import logging
import os
import sys
import tempfile
import warnings
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "families.md"
BEGIN = "<!-- families: scripts/families_page.py writes what is between these lines -->"
END = "<!-- end of families -->"
TITLES = ["directory", "float32: difference", "bfloat16: cosine", "int8: cosine"]
TOKEN_TITLES = ["tokenizer of transformers", "families", "texts with equal tokens"]
TEXTS = 4000
# The first size is that of the maker.
DECODER_SHAPES = ({}, {"hidden_size": 72, "intermediate_size": 44})

os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
sys.path[:0] = [str(ROOT / folder) for folder in ("tests", "tests/oracles", "python")]


def compare(result, make, head="Model"):
    """Adds a directory: the largest difference in float32, relative to the largest value, and the lowest cosines of the
    others. make: saves it, and gives the function that computes what it gives for a row."""
    import numpy as np
    import test_foreign_encoders as cases

    from rf_engine import Engine

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


def measure(family, head):
    """A class of transformers, at two sizes."""
    import test_foreign_encoders as cases

    result = {"family": family, "float32": 0.0, "bfloat16": 1.0, "int8": 1.0}
    for changes in cases.SHAPES.values():

        def make(folder, changes=changes):
            oracle = cases.make_encoder(family, head, folder, **changes)
            result["class"] = type(oracle).__name__
            return lambda row: cases.theirs_of(oracle, row)

        compare(result, make, head)
    return result


def measure_decoder(case):
    """Hidden states of a decoder without its head."""
    import decoder_embedders as decoders

    result = {"class": f"{decoders.CASES[case][0]}Model", "family": case, "float32": 0.0, "bfloat16": 1.0, "int8": 1.0}
    for changes in DECODER_SHAPES:

        def make(folder, changes=changes):
            oracle = decoders.make_bare(case, folder, spread=0.1, **changes)
            return lambda row: decoders.theirs_of(oracle, row)

        compare(result, make)
    return result


def measure_published(name):
    """The keys that authors publish, beside the class of transformers."""
    from test_published_configs import PUBLISHED, publish

    import decoder_embedders as decoders

    make_weights, keys = PUBLISHED[name]

    def make(folder):
        oracle = make_weights(folder)
        publish(folder, keys)
        return lambda row: decoders.theirs_of(oracle, row)

    result = {"class": keys["architectures"][0], "family": name, "float32": 0.0, "bfloat16": 1.0, "int8": 1.0}
    compare(result, make)
    return result


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
        if name not in (None, "TokenizersBackend"):  # by tokenizer.json alone
            classes.setdefault(name, []).append(family)
    for name, users in classes.items():
        trained = getattr(transformers, name)().train_new_from_iterator(plain, 4000)
        with tempfile.TemporaryDirectory() as folder:
            trained.save_pretrained(folder)
            (Path(folder) / "config.json").write_text(json.dumps({"model_type": users[0]}))
            theirs, ours = transformers.AutoTokenizer.from_pretrained(folder), roformer_cpp.Tokenizer(folder)
            equal = sum(ours.encode(text) == theirs(text)["input_ids"] for text in texts)
        yield {"tokenizer": name, "families": users, "texts": len(texts), "equal": equal}


def measure_authors(name):
    """A class of its authors, beside tests/authors_encoders.py."""
    from authors_encoders import AUTHORS

    result = {"class": name[0], "family": name[1], "float32": 0.0, "bfloat16": 1.0, "int8": 1.0}
    compare(result, AUTHORS[name])
    return result


def cells(result):
    return [
        f"`{result['class']}` (`{result['family']}`)",
        f"{result['float32']:.1e}",
        f"{result['bfloat16']:.4f}",
        f"{result['int8']:.4f}",
    ]


def table(titles, rows):
    return "\n".join("| " + " | ".join(line) + " |" for line in (titles, ["---"] * len(titles), *rows))


def main():
    from test_published_configs import PUBLISHED

    import authors_encoders
    import decoder_embedders
    import foreign_encoders
    import tolerances as tol

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing")
    parser.add_argument("--json", type=Path, help="also writes the figures to this file")
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    results, bad = [], 0
    cases = [lambda case=case: measure(*case) for case in foreign_encoders.CASES]
    cases += [lambda case=case: measure_decoder(case) for case in decoder_embedders.CASES]
    cases += [lambda name=name: measure_published(name) for name in PUBLISHED]
    cases += [lambda name=name: measure_authors(name) for name in authors_encoders.AUTHORS]
    for measured in cases:
        result = measured()
        exceeds = result["float32"] > tol.T4_MAX
        bad += exceeds
        print(" | ".join(cells(result)), "beyond T4" if exceeds else "", flush=True)
        results.append(result)
    tokens = list(measure_tokens())
    for each in tokens:
        bad += each["equal"] < each["texts"]
        print(each, flush=True)
    print(f"{len(results)} classes, {bad} beyond {tol.T4_MAX}")
    if given.json:
        given.json.write_text(json.dumps({"classes": results, "tokens": tokens}, indent=1) + "\n")
    if not given.check and not bad:
        rows = [
            [f"`{x['tokenizer']}`", ", ".join(f"`{name}`" for name in x["families"]), f"{x['equal']} of {x['texts']}"]
            for x in tokens
        ]
        text = PAGE.read_text(encoding="utf-8")
        before, after = text[: text.index(BEGIN) + len(BEGIN)], text[text.index(END) :]
        body = table(TITLES, map(cells, results)) + "\n\n" + table(TOKEN_TITLES, rows)
        PAGE.write_text(f"{before}\n{body}\n{after}", encoding="utf-8")
    return int(bad > 0)


if __name__ == "__main__":
    sys.exit(main())
