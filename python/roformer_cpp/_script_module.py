"""Modules whose computation is in C++ (nn/src/script_terms.h) and whose parameters are torch's."""

import functools
import hashlib
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import _disable_current_modes

_makers: dict[str, Callable[[str], torch.ScriptObject]] = {}


def script_maker(kind: str) -> Callable:
    """A decorator of the function that makes the C++ module of a definition, for ``kept_script``."""

    def keep(make: Callable[[str], torch.ScriptObject]) -> Callable[[str], torch.ScriptObject]:
        _makers[kind] = make
        return make

    return keep


def made_script(kind: str, text: str) -> torch.ScriptObject:
    """The C++ module of a definition."""
    return _makers[kind](text)


_tables: dict[str, Tensor] = {}  # of files, by their hash


def keep_table(table: Tensor) -> str:
    """The number of a table, by which this process finds it."""
    number = hashlib.sha256(table.contiguous().view(torch.uint8).numpy().tobytes()).hexdigest()
    _tables[number] = table
    return number


def kept_table(number: str) -> Tensor:
    if number not in _tables:
        raise ValueError("[model] a program of a model with a position table must be used in its process, got none")
    return _tables[number]


@functools.cache
def kept_script(kind: str, text: str, training: bool = False) -> torch.ScriptObject:
    """The C++ module of a definition, without values: one for each mode, because a call sets the module's mode.

    It outlives the trace that asks for it, so its constants must not be the tensors that stand for others there.
    """
    with _disable_current_modes():
        script = made_script(kind, text)
        script.release()
    return script


def value_of(module: nn.Module, name: str) -> Tensor | None:
    """A parameter or buffer; where accelerate has offloaded it, its value on the device that computes."""
    x = getattr(module, name)
    if x is None or not x.is_meta or not hasattr(module, "_hf_hook"):
        return x
    hooks = getattr(module._hf_hook, "hooks", [module._hf_hook])
    offloads = (hook for hook in hooks if getattr(hook, "offload", False))
    return next((hook.weights_map[name].to(hook.execution_device) for hook in offloads), x)


class ScriptModule(nn.Module):
    """Has the parameters and buffers of a C++ module under their names, and gives them to each of its calls.

    They are ordinary ones: ``state_dict``, ``load_state_dict(assign=True)``, ``functional_call``, ``parametrize``,
    ``deepcopy``, ``pickle``, ``.to()``, averaging, DDP and FSDP treat them as usual. On the default
    device ``meta`` they have values only after loading.
    """

    _group: type[nn.Module] = nn.Module  # of modules with one beginning of their names

    def __init__(self, script: torch.ScriptObject, parts: dict[str, nn.Module] | None = None):
        """parts: modules by their paths. Their tensors are used, but replaced where they are on the device meta."""
        super().__init__()
        self._script = script
        for path, part in (parts or {}).items():
            container, name = self._container(path)
            container.add_module(name, part)
        self._places: list[tuple[nn.Module, str]] = []  # of the tensors, in the order of C++
        on_meta = torch.get_default_device().type == "meta"
        parameters, buffers = script.named_parameters(), script.named_buffers()
        self._names = [*parameters, *buffers]
        for name, given in {**parameters, **buffers}.items():
            module, leaf = self._container(name)
            self._places.append((module, leaf))
            existing = module._parameters.get(leaf, module._buffers.get(leaf))
            if existing is not None and (on_meta or not existing.is_meta):
                continue
            values = torch.empty_like(given, device="meta") if on_meta else given.detach()
            if name in parameters:
                module.register_parameter(leaf, nn.Parameter(values, given.requires_grad))
            else:
                module.register_buffer(leaf, values)
        script.release()

    @property
    def _script(self) -> torch.ScriptObject:
        return self._held[0]

    @_script.setter
    def _script(self, script: torch.ScriptObject) -> None:
        # In a tuple, because torch.export asks each object that is an attribute for its tensors.
        self._held = (script,)

    def _container(self, full_name: str) -> tuple[nn.Module, str]:
        *path, leaf = full_name.split(".")
        module: nn.Module = self
        for part in path:
            if part not in module._modules:
                module.add_module(part, self._group())
            module = module._modules[part]
        return module, leaf

    def _tensors(self) -> list[Tensor]:
        return [value_of(module, leaf) for module, leaf in self._places]

    def __getstate__(self) -> dict:
        state = self.__dict__.copy()
        del state["_held"]
        return state

    def __setstate__(self, state: dict) -> None:
        super().__setstate__(state)
        self._script = self._rebuilt()  # of the subclass: the C++ module again, without values
        self._script.release()
