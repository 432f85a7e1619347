"""What the cosines of a model's vectors say of pairs of texts whose similarity people have judged."""

import numpy as np
from scipy import stats

COUNTS = "counts"  # how often each token is in a text, without the model


def correlation_of_cosines(model, pooling, pairs, max_length, threads=None):
    """Spearman's rank correlation of cosines with labels.

    Args:
        pooling: of the vectors as `roformer embed` takes it: cls, mean, pooler; or COUNTS.
        pairs: (text, text, label) of each.
        max_length: tokens of a text, which is cut beyond.
    """
    texts = [text for pair in pairs for text in pair[:2]]
    vectors = _vectors(model, pooling, texts, max_length, threads)
    norms = np.sqrt(_products(vectors, vectors))
    cosines = _products(vectors[::2], vectors[1::2]) / np.maximum(norms[::2] * norms[1::2], np.finfo(float).tiny)
    return float(stats.spearmanr(cosines, [label for *_, label in pairs]).statistic)


def _vectors(model, pooling, texts, max_length, threads):
    from sklearn.feature_extraction.text import CountVectorizer

    import roformer_cpp

    if pooling != COUNTS:
        options = {"pooling": pooling, "normalize": False, "max_length": max_length, "threads": threads}
        return roformer_cpp.Engine(model, task="embed", **options).embed(texts).astype(np.float64)
    tokenizer = roformer_cpp.Tokenizer(model)
    rows = tokenizer(texts, truncation=True, max_length=max_length)["input_ids"]
    return CountVectorizer(analyzer=lambda row: row[1:-1], dtype=np.float64).fit_transform(rows)  # without [CLS], [SEP]


def _products(first, second):
    products = first * second if isinstance(first, np.ndarray) else first.multiply(second)
    return np.asarray(products.sum(1)).ravel()
