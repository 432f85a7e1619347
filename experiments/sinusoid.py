"""C-14 and C-15: claims about the sinusoid of Eq. 4, measured on the encoding `sinusoidal`, and for comparison the
change of a vector by RoPE."""

from .run import Experiment, row


def settings():
    return {"width": 64, "positions": 10000, "shifts": [1, 5, 100], "seeds": [1]}


def run(_, settings):
    import torch

    from .vectors import largest, rotated, sinusoid

    width, positions = settings["width"], torch.arange(settings["positions"])
    rows_TE = sinusoid(positions, width)
    yield row("smallest distance of two rows", "sinusoid", smallest_distance(rows_TE))
    yield row("largest element", "sinusoid", largest(rows_TE))
    yield row(
        "change of the first rows with the length", "sinusoid", largest(sinusoid(positions[:64], width) - rows_TE[:64])
    )
    yield row(
        "error of a shift as a linear map", "sinusoid", max(shift_error(rows_TE, by) for by in settings["shifts"])
    )
    torch.manual_seed(settings["seeds"][0])
    x_T2E = torch.randn(2, width, dtype=torch.float64).expand(len(positions), 2, width).contiguous()
    for arm, placed in (("sinusoid", x_T2E + rows_TE[:, None]), ("rope", rotated(x_T2E, positions))):
        change_T2E = placed - x_T2E
        yield row("difference of a position's change of two tokens", arm, largest(change_T2E[:, 0] - change_T2E[:, 1]))


def smallest_distance(rows_TE):
    import torch

    smallest = float("inf")
    for begin in range(0, len(rows_TE), 256):
        block = rows_TE[begin : begin + 256]
        distances = torch.cdist(block, rows_TE, compute_mode="donot_use_mm_for_euclid_dist")  # products would cancel
        distances[:, begin : begin + len(block)].fill_diagonal_(float("inf"))
        smallest = min(smallest, distances.min().item())
    return smallest


def shift_error(rows_TE, shift):
    """The largest difference between the rows moved by `shift` and a matrix of the shift alone times the rows."""
    import torch

    from .vectors import frequencies, largest

    sin, cos = rows_TE[:-shift].unflatten(1, (-1, 2)).unbind(2)
    angle = shift * frequencies(rows_TE.shape[1])
    moved = torch.stack([angle.cos() * sin + angle.sin() * cos, angle.cos() * cos - angle.sin() * sin], 2).flatten(1)
    return largest(rows_TE[shift:] - moved)


EXPERIMENTS = [Experiment("sinusoid", "What the sinusoid is said to be", run, settings, has_scale=False)]
