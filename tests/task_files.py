"""Small task files for the tests of finetune, predict and evaluate: what is asked can be seen in the words."""

import csv
import json
import random

WORDS = ["fade", "bad", "cab", "dead", "beef", "feed", "gab", "had", "jab", "cafe", "face", "deaf", "head"]


def sentence(rng, length=8):
    return [rng.choice(WORDS) for _ in range(length)]


def classification(rng):
    """Whether "abba" or "gaga" is among the words."""
    words, label = sentence(rng), rng.choice(["no", "yes"])
    words[rng.randrange(len(words))] = "abba" if label == "yes" else "gaga"
    return dict(text=" ".join(words), label=label)


def multi_label(rng):
    """Which of two words are there, three times each."""
    labels = [word for word in ("abba", "gaga") if rng.random() < 0.5]
    words = 3 * labels + sentence(rng, 8 - 3 * len(labels))
    rng.shuffle(words)
    return dict(text=" ".join(words), labels=labels)


def pairs(rng):
    record = classification(rng)
    return dict(text=record["text"], pair=" ".join(sentence(rng, 4)), label=record["label"])


def regression(rng):
    """How many of eight words are "abba"."""
    count = rng.randint(0, 8)
    words = ["abba"] * count + sentence(rng, 8 - count)
    rng.shuffle(words)
    return dict(text=" ".join(words), label=count / 2)


def triples(rng):
    texts = {name: " ".join(sentence(rng)) for name in "ABC"}
    label = rng.choice("BC")
    texts[label] = "abba " + texts[label]
    return dict(texts, label=label)


def choice(rng):
    count = rng.randint(2, 4)
    choices = [" ".join(sentence(rng, 5)) for _ in range(count)]
    label = rng.randrange(count)
    choices[label] = "abba " + choices[label]
    return dict(text=" ".join(sentence(rng, 3)), choices=choices, label=label)


def tokens(rng):
    words, labels = [], []
    for _ in range(rng.randint(3, 8)):
        if rng.random() < 0.3:
            words += ["abba", "gaga"]
            labels += ["B-X", "I-X"]
        else:
            words.append(rng.choice(WORDS))
            labels.append("O")
    return dict(tokens=words, labels=labels)


def answers(rng):
    words = sentence(rng, 12)
    place = rng.randrange(len(words))
    words[place] = "abba"
    context = " ".join(words)
    return dict(question="gaga", context=context, answers=dict(text=["abba"], answer_start=[context.index("abba")]))


KINDS = dict(classification=classification, multi_label=multi_label, regression=regression, triples=triples)
KINDS |= dict(choice=choice, tokens=tokens, answers=answers)


def records(kind, count, seed):
    rng = random.Random(seed)
    return [dict(id=str(i), **(kind(rng))) for i in range(count)]


def write(path, rows):
    """As JSON lines or, by the name, as a table."""
    if path.suffix == ".jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        return path
    with path.open("w", newline="") as file:
        delimiter = "\t" if path.suffix == ".tsv" else ","
        table = csv.DictWriter(file, list(rows[0]), delimiter=delimiter, lineterminator="\n")
        table.writeheader()
        table.writerows(rows)
    return path


def write_splits(folder, kind, suffix=".jsonl", train=160, valid=40):
    folder.mkdir(parents=True, exist_ok=True)
    return {
        name: write(folder / f"{name}{suffix}", records(kind, count, seed))
        for seed, (name, count) in enumerate(dict(train=train, valid=valid, test=valid).items())
    }


def options(model, files, output, task, *more):
    """The arguments of a short fine-tuning; `more`: names and values, which take the place of those here."""
    given = {
        "--task": task,
        "--model": model,
        **{f"--{name}": path for name, path in files.items()},
        "--output": output,
        "--max-length": 32,
        "--batch": 8,
        "--learning-rates": "1e-2",
        **dict(zip(more[::2], more[1::2], strict=True)),
    }
    return ["finetune", *(part for option in given.items() for part in option)]
