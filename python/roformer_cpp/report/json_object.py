"""The JSON of results, read with errors that name the file and the key."""

import json

NUMBER = (int, float)
_MAX_DRAWN = 1e300  # of a number that can be drawn


class JsonObject:
    """A JSON object, and the file it comes from."""

    def __init__(self, where, value):
        if not isinstance(value, dict):
            raise ValueError(f"[report] {where} must be a JSON object, got {short(value)}")
        self.where, self.value = where, value

    @staticmethod
    def of_file(path):
        try:
            return JsonObject(path, json.loads(path.read_text(encoding="utf-8")))
        except UnicodeDecodeError as error:
            raise ValueError(f"[report] {path} must be UTF-8, got {error}") from error
        except (ValueError, RecursionError) as error:  # of numbers without end and of deep lists, too
            raise ValueError(f"[report] {path} must be JSON, got {error}") from error

    def get(self, key, kind):
        if key not in self.value:
            raise ValueError(f"[report] {self.where} must have the key {key}, got {short(sorted(self.value))}")
        found = self.value[key]
        if not isinstance(found, kind) or isinstance(found, bool):
            names = " or ".join(each.__name__ for each in (kind if isinstance(kind, tuple) else (kind,)))
            raise ValueError(f"[report] {key} of {self.where} must be {names}, got {short(found)}")
        return found

    def texts(self, key, kind):
        """A list of texts, or a dict whose values are texts."""
        found = self.get(key, kind)
        if not all(isinstance(text, str) for text in (found.values() if kind is dict else found)):
            raise ValueError(f"[report] {key} of {self.where} must hold texts, got {short(found)}")
        return found

    def object(self, key):
        return JsonObject(f"{key} of {self.where}", self.get(key, dict))

    def objects(self, key):
        return [JsonObject(f"{key}[{i}] of {self.where}", entry) for i, entry in enumerate(self.get(key, list))]

    def optional(self, key, kind):
        return self.get(key, kind) if key in self.value else kind()

    def optional_object(self, key):
        return self.object(key) if key in self.value else JsonObject(self.where, {})

    def optional_objects(self, key):
        return self.objects(key) if key in self.value else []

    def number(self, key):
        if not is_number(self.get(key, NUMBER)):
            raise ValueError(f"[report] {key} of {self.where} must be a number, got {short(self.value[key])}")
        return self.value[key]


def short(value):
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 80 else text[:77] + "..."


def is_number(value):
    """Whether it is a finite number that can be drawn."""
    return isinstance(value, NUMBER) and not isinstance(value, bool) and abs(value) <= _MAX_DRAWN
