"""C-26, C-05: the encodings that linear attention could compute, whether or not this program supports them.

The weights w(m, n) of causal linear attention come from a recurrence, whose state is all that later tokens know of
earlier ones. The state holds at least as many vectors as the rank of the block of w whose rows are the tokens from some
place to the end and whose columns are the tokens before that place, and a recurrence with exactly that many exists
(Dewilde and van der Veen 1998, Time-Varying Systems and Computations, chapter 3). An encoding fits if that rank does
not grow with the number of tokens. The measured number is the rank of the block below and left of the middle, for two
kinds of w:

sum: the scores of attention with features phi(q), phi(k) in the place of q and k, as Eq. 19 has them with RoPE: a
rotation rotates features, and a term is added to their product. factor: phi(q).phi(k) exp(s), where s is the encoding's
addition to a score of q and k in softmax attention. The kind with the lower number counts.

Numbers per query, which do not weight keys, are left out of both. Queries, keys and parameters are drawn, so for terms
that read the text (fox, cope, path) it is the rank of one text.
"""

import dataclasses

from .encoding_arms import encoding_arms, parse_arm
from .run import Experiment, encodings, row

STATES, GROWTH = "states by tokens", "states for 512 tokens, of those for 256"
WITH, WITHOUT = "with a term for each pair", "without a term for each pair"


def settings():
    tokens, head_dim = [64, 128, 256, 512], 16
    arms = encoding_arms(encodings(), head_dim, tokens[0])
    sizes = {"head_dim": head_dim, "hidden_size": 64, "tokens": tokens}  # one head, as many features
    # parameters_std is added to how parameters start; singular values below tolerance of the largest are 0.
    return sizes | {"encodings": arms, "parameters_std": 0.3, "tolerance": 1e-9, "seeds": [1]}


def run(_, settings):
    import roformer_cpp

    pairwise = {each["name"]: each["pairwise"] for each in roformer_cpp.encodings()}
    growths = {WITH: [], WITHOUT: []}
    for name, arm in settings["encodings"].items():
        layer = DrawnLayer(arm, settings)
        by_kind = [layer.states(tokens, settings) for tokens in settings["tokens"]]  # (sum, factor)
        kind = int(by_kind[-1][1] < by_kind[-1][0])
        states = [each[kind] for each in by_kind]
        group = WITH if pairwise[name] else WITHOUT
        for tokens, count in zip(settings["tokens"], states, strict=True):
            yield row(STATES, name, count, step=tokens, task=group)
        growths[group].append(states[-1] / states[-2])
        yield row(GROWTH, name, growths[group][-1], task=group)
    yield row(f"{GROWTH}: least", WITH, min(growths[WITH]))
    yield row(f"{GROWTH}: largest", WITHOUT, max(growths[WITHOUT]))


class DrawnLayer:
    """A layer of one head with an encoding, and a text; all float64."""

    def __init__(self, arm, settings):
        import torch

        import roformer_cpp

        name, options = parse_arm(arm)
        dim, width, tokens = settings["head_dim"], settings["hidden_size"], settings["tokens"][-1]
        torch.manual_seed(settings["seeds"][0])
        sizes = {"head_dim": dim, "hidden_size": width, "max_position_embeddings": tokens, "vocab_size": 1}
        self.encoding = roformer_cpp.encoding(name, **sizes, is_decoder=True, **options).double()
        with torch.no_grad():
            for parameter in self.encoding.parameters():
                parameter += settings["parameters_std"] * torch.randn_like(parameter)
        self.hidden_BTC = torch.randn(1, tokens, width, dtype=torch.float64)
        query, key = torch.randn(2, dim, width, dtype=torch.float64) / width**0.5
        self.projections = query, key, key
        self.reads = next(each["reads"] for each in roformer_cpp.encodings() if each["name"] == name)

    def states(self, tokens, settings):
        """The rank of the two kinds of weights."""
        import torch

        def rank(block):
            return torch.linalg.matrix_rank(block, rtol=settings["tolerance"]).item()

        q, k = ((self.hidden_BTC[:, :tokens] @ weight.T)[:, :, None] for weight in self.projections[:2])
        of_features = self._block(*(torch.nn.functional.elu(x) + 1 for x in (q, k)))
        added = self._block(q, k) - self._block(q, k, has_encoding=False)
        return rank(_without_row_means(of_features)), settings["head_dim"] * rank(_without_row_means(added).exp())

    def _block(self, q_BTHD, k_BTHD, has_encoding=True):
        """The scores below and left of the middle, up to a number per row."""
        import torch

        import roformer_cpp

        tokens, terms = q_BTHD.shape[1], None
        if has_encoding:
            read = {"hidden_states": self.hidden_BTC[:, :tokens]} if "tokens" in self.reads else {}
            read |= {"queries": q_BTHD, "keys": k_BTHD} if {"queries", "keys"} & set(self.reads) else {}
            made = self.encoding.terms(torch.arange(tokens), projections=self.projections, dtype=torch.float64, **read)
            terms = dataclasses.replace(made, value=None, value_table=None)
        one_hot_BTHT = torch.eye(tokens, dtype=torch.float64)[None, :, None]
        with torch.no_grad():
            weights_TT = roformer_cpp.attention(q_BTHD, k_BTHD, one_hot_BTHT, terms, is_causal=True)[0, :, 0]
        return weights_TT[tokens // 2 :, : tokens // 2].log()


def _without_row_means(x):
    return x - x.mean(1, keepdim=True)


EXPERIMENTS = [Experiment("pairwise", "Which encodings fit into linear attention?", run, settings, has_scale=False)]
