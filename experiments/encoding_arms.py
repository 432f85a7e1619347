"""Every position encoding of the program's table as an arm, with the options that it needs."""

import json

OPTIONS = {  # of encodings that need some, or that are compared with others than the defaults
    "sinusoidal": "scale_embedding=true",  # added to scaled words, as Vaswani et al. have them
    "axial": "grid_width=8",
    "axial-nd": "grid_shape=[-1,8]",
    "rope-mixed": "grid_width=8",
}


def encoding_arms(names, head_dim, tokens):
    """{name: arm} of the names of encodings, as `roformer compare` takes them."""
    pairs = head_dim // 2
    height = 5 * pairs // 16
    sections = [pairs - 2 * height, height, height]
    options = OPTIONS | {
        "rerope": f"window={tokens // 2}",
        "mrope": "rope_parameters=" + json.dumps({"mrope_section": sections}, separators=(",", ":")),
    }
    return {name: f"{name}:{options[name]}" if name in options else name for name in names}


def parse_arm(arm):
    """(name, options) of an arm whose options have colons only within brackets."""
    name, _, options = arm.partition(":")
    pieces, depth = [""], 0
    for character in options:
        depth += (character in "[{") - (character in "]}")
        if character == ":" and depth == 0:
            pieces.append("")
        else:
            pieces[-1] += character
    return name, {key: json.loads(value) for key, _, value in (piece.partition("=") for piece in pieces) if key}
