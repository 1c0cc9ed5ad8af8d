"""The gateway's package. It needs only the low-level server of the MCP SDK, whose packages would also load the client
and the high-level server (a third of a second and 12 MB). So their `__init__` modules run only when one of their
attributes is used, not when a submodule is imported."""

import sys
from importlib.util import find_spec, module_from_spec
from types import ModuleType
from typing import Any


class _Unloaded(ModuleType):
    """A package whose code runs at the first access to one of its attributes."""

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
