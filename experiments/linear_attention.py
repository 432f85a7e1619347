"""C-05, C-08: linear attention with rotations (arXiv 2104.09864 Eq. 17-19). The program's sums over keys are compared
with the sums over all pairs, written out here in float64: Eq. 19 works, and its denominator and weights are as
claimed."""

from .run import Experiment, row

FORMS = ("Eq. 18", "Eq. 19", "both sums rotated")


def settings():
    return {"tokens": 1024, "head_dim": 64, "seeds": [1]}


def example():
    """Queries, keys and values of three tokens, one frequency."""
    import torch

    elements = [[0.5, -1, 2, 0.25, -2, 1], [1, -2, -0.5, 0.5, 0, 3], [1, 0, 0, 1, 2, -1]]
    return torch.tensor(elements, dtype=torch.float64).view(3, 3, 2)


def by_product(qkv, form):
    """By the program's operator, [T,D]."""
    import torch

    import roformer_cpp

    q, k, v = (x[None, :, None] for x in qkv)
    terms = None
    if form != FORMS[0]:
        rope = roformer_cpp.encoding("rope", head_dim=q.shape[-1])
        terms = rope.terms(torch.arange(q.shape[1]), dtype=torch.float64)
    options = {"rotate_denominator": form == FORMS[2]}
    return roformer_cpp.linear_attention(q, k, v, "elu", terms, **options)[0, :, 0]


def by_pairs(qkv, form):
    """(outputs [T,D], weights [T,T], denominators [T]) with features elu(x) + 1, rotated by a complex product."""
    import torch

    from .vectors import frequencies

    def turned(x_TD):
        angle = torch.arange(len(x_TD), dtype=torch.float64)[:, None] * frequencies(x_TD.shape[1])
        z = torch.view_as_complex(x_TD.unflatten(1, (-1, 2)).contiguous())
        return torch.view_as_real(z * torch.polar(torch.ones_like(angle), angle)).flatten(1)

    q, k = (torch.nn.functional.elu(x) + 1 for x in qkv[:2])
    plain_TT = q @ k.T
    turned_TT = plain_TT if form == FORMS[0] else turned(q) @ turned(k).T
    denominator_T = (turned_TT if form == FORMS[2] else plain_TT).sum(1)
    weights_TT = turned_TT / denominator_T[:, None]
    return weights_TT @ qkv[2], weights_TT, denominator_T


def run(_, settings):
    import torch

    from .vectors import largest

    torch.manual_seed(settings["seeds"][0])
    drawn = torch.randn(3, settings["tokens"], settings["head_dim"], dtype=torch.float64)
    for form in FORMS:
        outputs, weights, denominators = by_pairs(drawn, form)
        worked, worked_weights, _ = by_pairs(example(), form)
        error = max(
            largest(by_product(drawn, form) - outputs) / largest(outputs), largest(by_product(example(), form) - worked)
        )
        yield row("difference of sums over keys from sums over all pairs", form, error)
        yield row("smallest denominator", form, denominators.min())
        yield row("lowest sum of a query's weights", form, weights.sum(1).min())
        yield row("highest sum of a query's weights", form, weights.sum(1).max())
        yield row("distance of a query's lowest sum of weights from 1", form, (weights.sum(1).min() - 1).abs())
        yield row("smallest weight of the worked example", form, worked_weights.min())
        for i, value in enumerate(worked.flatten().tolist()):
            yield row("outputs of the worked example", form, value, step=i)


EXPERIMENTS = [Experiment("linear-attention", "RoPE in linear attention (Eq. 19)", run, settings, has_scale=False)]
