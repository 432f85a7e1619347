"""Options on their way to C++, which reads them as JSON and knows their rules."""

import json


def options_json(where: str, options: dict) -> str:
    """``options`` as JSON.

    Raises:
        ValueError: a number that is not finite, or a value that JSON does not have.
    """
    try:
        return json.dumps(options, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"[{where}] options must be finite numbers, strings, booleans, lists and dictionaries, got {options}"
        ) from error
