"""The style of the package's pictures. The same numbers give files with the same bytes."""

from contextlib import contextmanager
from pathlib import Path

# Colours that colour-blind readers can distinguish (Okabe and Ito); with the dashes also in grey.
COLOURS = ["#000000", "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00"]
DASHES = ["-", "--", "-.", ":", (0, (5, 1, 1, 1, 1, 1)), (0, (1, 1)), (0, (8, 2))]
# From dark blue to yellow, with rising lightness.
COLOUR_MAP = "cividis"

_STYLE = {
    "font.size": 9,
    "font.sans-serif": ["DejaVu Sans", "Verdana"],
    "axes.titlesize": 9,
    "axes.grid": True,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "grid.alpha": 0.3,
    "grid.linewidth": 0.6,
    "lines.linewidth": 1.4,
    "legend.frameon": False,
    "savefig.facecolor": "white",
    "savefig.dpi": 120,
    "svg.fonttype": "none",  # text that can be searched and read aloud; DejaVu Sans, or another font of the viewer
    "svg.hashsalt": "roformer",
}
# Metadata that would differ from one run to the next.
_DATES = {".svg": {"Date": None}, ".pdf": {"CreationDate": None}}


@contextmanager
def picture(output, width=7.0, height=4.0):
    """A matplotlib figure of this size in inches for the ``with`` block, at whose end it is written to ``output``.

    The file's name determines the format. Raises ImportError, with what to install, without matplotlib.
    """
    try:
        import matplotlib
        from cycler import cycler
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ImportError(
            "[plot] matplotlib must be installed to draw pictures, got none. Hint: pip install matplotlib"
        ) from error
    style = _STYLE | {"axes.prop_cycle": cycler(color=COLOURS, linestyle=DASHES)}
    with matplotlib.rc_context(style):
        figure = Figure(figsize=(width, height), layout="constrained")
        yield figure
        figure.savefig(output, metadata=_DATES.get(Path(output).suffix))
