"""The gateway's package. Of the MCP SDK it loads the low-level server: the SDK's packages load their client and their
high-level server as well, which cost a third of a second and 12 MB, so their own code runs when something of it is
asked for, and not for the sake of a module below them."""

from __future__ import annotations

import sys
from importlib.util import find_spec, module_from_spec
from types import ModuleType
from typing import Any


class _Unloaded(ModuleType):
    """A package whose code runs at the first question for what only that can answer."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        self.__class__ = ModuleType  # type: ignore[assignment]
        assert self.__spec__ is not None
        assert self.__spec__.loader is not None
        self.__spec__.loader.exec_module(self)
        return getattr(self, name)


def _leave_unloaded(name: str) -> None:
    if name in sys.modules or (spec := find_spec(name)) is None:
        return
    package = sys.modules[name] = module_from_spec(spec)
    package.__class__ = _Unloaded
    above, _, own = name.rpartition(".")
    if above:
        setattr(sys.modules[above], own, package)


for _name in ("mcp", "mcp.server"):
    _leave_unloaded(_name)
