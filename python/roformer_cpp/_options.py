"""Options as JSON for the C++ side, which checks them."""

import json


def options_json(where: str, options: dict) -> str:
    """``options`` as JSON.

    Raises:
        ValueError: a number that is not finite, or a value without a JSON form.
    """
    try:
        return json.dumps(options, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"[{where}] options must be finite numbers, strings, booleans, lists and dictionaries, got {options}"
        ) from error
