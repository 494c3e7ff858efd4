"""Which modules, classes and functions a file may name, and how they are found.

A name is never enough to run something, but it can bind `json` to `pickle`, or a factory to `os.system`. So a file that
nobody signed can name the harmless part of the standard library alone, plus the classes that the reader was given.
A file that its owner signed can name whatever could be imported when it was saved.
"""

from __future__ import annotations

import importlib
import sys
import types
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

SAFE_MODULES = frozenset(
    {
        "abc",
        "array",
        "base64",
        "binascii",
        "bisect",
        "builtins",
        "calendar",
        "cmath",
        "collections",
        "collections.abc",
        "colorsys",
        "contextlib",
        "copy",
        "csv",
        "dataclasses",
        "datetime",
        "decimal",
        "difflib",
        "enum",
        "fractions",
        "functools",
        "hashlib",
        "heapq",
        "hmac",
        "ipaddress",
        "html",
        "itertools",
        "json",
        "keyword",
        "math",
        "numbers",
        "operator",
        "pathlib",
        "pprint",
        "random",
        "re",
        "secrets",
        "statistics",
        "string",
        "struct",
        "textwrap",
        "time",
        "types",
        "typing",
        "unicodedata",
        "uuid",
        "zlib",
        "zoneinfo",
        "numpy",
        "pandas",
        "polars",
        "pyarrow",
    }
)
_LIBRARIES = frozenset({"numpy", "pandas", "polars", "pyarrow"})
DENIED = frozenset(
    {
        "builtins:eval",
        "builtins:exec",
        "builtins:compile",
        "builtins:open",
        "builtins:input",
        "builtins:breakpoint",
        "builtins:getattr",
        "builtins:setattr",
        "builtins:delattr",
        "builtins:globals",
        "builtins:locals",
        "builtins:vars",
        "builtins:exit",
        "builtins:quit",
        "builtins:memoryview",
        "builtins:help",
        "dataclasses:make_dataclass",
        "numpy:memmap",
        "pandas:ExcelFile",
        "pandas:ExcelWriter",
        "pandas:HDFStore",
        "typing:ForwardRef",
        "typing:get_type_hints",
        "functools:partial",
        "functools:partialmethod",
        "functools:reduce",
        "functools:singledispatch",
        "itertools:starmap",
        "operator:attrgetter",
        "operator:call",
        "operator:methodcaller",
        "types:CodeType",
        "types:FunctionType",
        "types:LambdaType",
        "types:MethodType",
        "types:DynamicClassAttribute",
        "types:new_class",
    }
)
"""Of the safe modules: what runs, opens, imports, or calls something by a name that data can choose."""

RESTORABLE: Mapping[str, str] = {
    "langchain_core.documents": "langchain_core",
    "langchain_core.messages": "langchain_core",
    "langchain_core.outputs": "langchain_core",
    "langchain_core.prompt_values": "langchain_core",
    "langgraph.types": "langgraph",
    "llama_index.core.schema": "llama_index",
    "llama_index.core.base.llms.types": "llama_index",
}
"""Modules of the frameworks whose classes hold data alone: their instances are restored from any file."""

RESTORABLE_STANDARD = frozenset(
    {
        "collections:UserDict",
        "collections:UserList",
        "collections:UserString",
        "ipaddress:IPv4Address",
        "ipaddress:IPv4Network",
        "ipaddress:IPv6Address",
        "ipaddress:IPv6Network",
    }
)


class NameRefusedError(Exception):
    """A name cannot be resolved here; the message is the reason that the placeholder gives."""


def name_of(value: Any) -> str | None:
    """Return "module:qualname" of a class or function that this name leads back to, or None."""
    module, qualname = getattr(value, "__module__", None), getattr(value, "__qualname__", None)
    if module is None and isinstance(value, types.BuiltinFunctionType) and isinstance(value.__self__, types.ModuleType):
        module = value.__self__.__name__
    if module is None and isinstance(value, (types.MethodDescriptorType, types.WrapperDescriptorType)):
        module = value.__objclass__.__module__
    for place in (module, "types"):  # NoneType says that it lives in builtins, where it cannot be found
        if isinstance(place, str) and isinstance(qualname, str) and _leads_to(place, qualname, value):
            return f"{place}:{qualname}"
    return None


def _leads_to(module: str, qualname: str, value: Any) -> bool:
    if module == "__main__" or "<" in qualname or module not in sys.modules:
        return False  # another process has another __main__
    try:
        return _walk(sys.modules[module], qualname) is value
    except AttributeError:
        return False


def _walk(found: Any, qualname: str) -> Any:
    for part in qualname.split("."):
        found = getattr(found, part)
    return found


@dataclass(frozen=True, slots=True)
class Permissions:
    """How far a file is believed.

    `code`: its signature was verified, so that functions and classes come back by their source and every importable
    name is allowed. `pickle`: pickled values are loaded, too. `allow` holds classes whose instances may be restored
    from any file.
    """

    code: bool = False
    pickle: bool = False
    allow: Mapping[str, type] = field(default_factory=dict)

    @classmethod
    def of(cls, *, code: bool = False, pickle: bool = False, allow: Iterable[type] = ()) -> Permissions:
        """Return permissions that allow these classes."""
        named = {f"{each.__module__}:{each.__qualname__}": each for each in allow}
        return cls(code=code, pickle=code and pickle, allow=named)

    def find(self, name: str) -> Any:
        """Return the class or function that is called "module:qualname".

        Raises:
            NameRefusedError: it is not allowed to this file, or is not installed here.
        """
        if name in self.allow:
            return self.allow[name]
        module, _, qualname = name.partition(":")
        if not self.code and not _is_safe(module, qualname, name):
            raise NameRefusedError(f"{name} is found only for a file that is signed and trusted")
        found = _import(module)
        try:
            outer, value = _walk(found, qualname.partition(".")[0]), _walk(found, qualname)
        except AttributeError as error:
            raise NameRefusedError(f"{name} is not there in this environment") from error
        if not self.code and not (_belongs(outer, module) and _belongs(value, module)):
            raise NameRefusedError(f"{name} is found only for a file that is signed and trusted")
        return value

    def find_module(self, name: str) -> types.ModuleType:
        """Return the module; a safe one is imported for any file, another one for a trusted file.

        Raises:
            NameRefusedError: it is not allowed to this file, or is not installed here.
        """
        if not self.code and name not in SAFE_MODULES:
            raise NameRefusedError(f"the module {name} is imported only for a file that is signed and trusted")
        return _import(name)

    def may_restore(self, found: type) -> bool:
        """Tell whether instances of the class may be rebuilt, without its __init__, from this file."""
        name = f"{found.__module__}:{found.__qualname__}"
        return (
            self.code
            or self.allow.get(name) is found
            or name in RESTORABLE_STANDARD
            or _framework(found.__module__) is not None
        )


def _framework(module: str) -> str | None:
    for prefix, package in RESTORABLE.items():
        if module == prefix or module.startswith(prefix + "."):
            return package
    return None


def _is_safe(module: str, qualname: str, name: str) -> bool:
    if _framework(module) is not None:
        return qualname.isidentifier() and not qualname.startswith("_")
    parts = qualname.split(".")
    public = all(part.isidentifier() and not part.startswith("_") for part in parts)
    longest = 2 if module == "builtins" else 1  # str.lower is harmless; Path.unlink is not
    return module in SAFE_MODULES and public and len(parts) <= longest and name not in DENIED


def _belongs(value: Any, module: str) -> bool:
    """Tell whether a safe module defines the value itself; what it imported from elsewhere is not safe by that."""
    if isinstance(value, (types.MethodDescriptorType, types.WrapperDescriptorType)):
        return _belongs(value.__objclass__, module)
    owner = getattr(value, "__module__", None)
    if isinstance(value, types.ModuleType) or not callable(value) or not isinstance(owner, str):
        return False
    if _framework(module) is not None:
        return isinstance(value, type) and _framework(owner) is not None
    if module in _LIBRARIES:  # their functions read files, some of them pickles
        return isinstance(value, type) and owner.partition(".")[0] == module
    return owner.lstrip("_") in SAFE_MODULES


def _import(module: str) -> types.ModuleType:
    try:
        return importlib.import_module(module)
    except (ImportError, ValueError) as error:
        raise NameRefusedError(f"the module {module} is not installed here") from error
