"""Options as JSON for the C++ side, which checks them."""

import json
import math
import re
from pathlib import Path

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


def yaml_options(path: str) -> dict:
    """The mapping in a YAML 1.1 file. As in YAML 1.2, 1e-3 is a number.

    Raises:
        ImportError: PyYAML is not installed.
        OSError: it cannot be read.
        ValueError: it is not YAML, has a key twice, or is not a mapping.
    """
    yaml = _checks.needed("yaml", f"[{path}] PyYAML must be installed to read YAML", ". Hint: pip install pyyaml")

    class Loader(yaml.SafeLoader):
        def construct_mapping(self, node, deep=False):
            keys = [key.value for key, _ in node.value]
            if twice := next((key for key in keys if keys.count(key) > 1), None):
                raise yaml.constructor.ConstructorError(problem=f"the key {twice} twice", problem_mark=node.start_mark)
            return super().construct_mapping(node, deep)

    number = re.compile(r"[-+]?([0-9]+\.?[0-9]*|\.[0-9]+)[eE][-+]?[0-9]+$")
    Loader.add_implicit_resolver("tag:yaml.org,2002:float", number, list("-+.0123456789"))
    try:
        value = yaml.load(Path(path).read_bytes(), Loader)
    except OSError as error:
        raise type(error)(f"[{path}] the file must be readable, got: {error.strerror}") from error
    except (yaml.YAMLError, RecursionError) as error:
        raise ValueError(f"[{path}] the file must be YAML, got: {' '.join(str(error).split())}") from error
    if not isinstance(value, dict):
        raise ValueError(f"[{path}] the file must be a mapping of keys, got {_checks.shown(value)}")
    return value
