"""Another process: reads files that were made to do harm, in little memory, and watches what happens.

An audit hook ends the process with a message when a file makes it run code, import a module that is not known to be
harmless, open a file for writing, start a program or use the network.
"""

from __future__ import annotations

import json
import os
import re
import resource
import sys
import warnings
from contextlib import suppress
from pathlib import Path
from types import CodeType
from typing import Any

from rlm_memory.checkpoints import Limits, loads
from rlm_memory.errors import CheckpointError

with suppress(ImportError):  # a file may name its classes: it is imported before the hook is set
    from langchain_core.documents import Document  # noqa: F401
    from langchain_core.messages import AIMessage  # noqa: F401
with suppress(ImportError):  # a file may hold frames, and these import much
    import pandas as pd  # noqa: F401

_FORBIDDEN = (
    "subprocess",
    "os.system",
    "os.exec",
    "os.posix_spawn",
    "os.fork",
    "os.remove",
    "os.rename",
    "socket",
    "ctypes",
)
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT
_HARMLESS = frozenset(
    re.findall(
        r"\w+",
        """
        abc array base64 binascii bisect calendar cmath collections colorsys contextlib copy csv dataclasses datetime
        decimal difflib enum fractions functools hashlib heapq hmac html itertools json keyword math numbers operator
        pathlib pprint random re secrets statistics string struct textwrap time types typing unicodedata uuid zlib
        zoneinfo numpy encodings sre_compile tzdata
        """,
    )
)
watching = False


def watch(event: str, arguments: tuple[Any, ...]) -> None:
    if not watching:
        return
    if event.startswith(_FORBIDDEN):
        stop(event, arguments)
    if event == "open" and isinstance(arguments[2], int) and arguments[2] & _WRITING:
        stop(event, arguments)
    if event == "import" and arguments[0].split(".")[0].lstrip("_") not in _HARMLESS:
        stop(event, arguments)
    if event == "exec" and not _comes_from_the_library(arguments[0]):
        stop(event, arguments)


def _comes_from_the_library(code: Any) -> bool:
    """Tell whether code is that of a module that is imported, or the constructor of a named tuple."""
    inner = [constant for constant in code.co_consts if isinstance(constant, CodeType)]
    return Path(code.co_filename).is_file() or [each.co_names for each in inner] == [("_tuple_new",)]


def stop(event: str, arguments: tuple[Any, ...]) -> None:
    print(json.dumps({"harm": f"{event} {arguments!r:.200}"}), flush=True)
    os._exit(3)


def main(paths: list[str]) -> None:
    global watching
    warnings.simplefilter("error")
    resource.setrlimit(resource.RLIMIT_AS, (512 << 20, 512 << 20))
    resource.setrlimit(resource.RLIMIT_CPU, (60, 60))
    sys.addaudithook(watch)
    limits = Limits(file=64 << 20, heap=16 << 20, total=64 << 20)
    verdicts = {}
    for path in paths:
        data = Path(path).read_bytes()
        watching = True
        try:
            value = loads(data, limits=limits)
            first = value[0] if isinstance(value, list) and value else value
            verdicts[path] = f"data: {type(first).__name__}"
        except CheckpointError as error:
            verdicts[path] = f"refused: {type(error).__name__}"
        except BaseException as error:  # noqa: BLE001  # anything else is what the test looks for
            verdicts[path] = f"foreign: {type(error).__name__}: {error}"
        watching = False
    print(json.dumps(verdicts))


if __name__ == "__main__":
    main(sys.argv[1:])
