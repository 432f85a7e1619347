"""Options as JSON for the C++ side, which checks them."""

import json
import math

from . import _checks


def options_json(where: str, options: dict) -> str:
    """``options`` as JSON. Plain ones are written here, because torch.compile does not see through json.

    Raises:
        ValueError: a number that is not finite, or a value without a JSON form.
    """
    if all(_is_plain(value) for value in options.values()):
        return "{" + ", ".join(f'"{key}": {_text(value)}' for key, value in options.items()) + "}"
    try:
        return json.dumps(options, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"[{where}] options must be finite numbers, strings, booleans, lists and dictionaries, got "
            f"{_checks.shown(options)}"
        ) from error


def _is_plain(value: object) -> bool:
    if type(value) is float:
        return math.isfinite(value)
    return type(value) is bool or (type(value) is str and value.isidentifier())


def _text(value: bool | float | str) -> str:
    if type(value) is bool:
        return "true" if value else "false"
    return f'"{value}"' if type(value) is str else repr(value)
