"""What stands in the place of a value that could not be brought back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NoReturn

from rlm_memory.checkpoints.errors import UnrestoredValueError


@dataclass(frozen=True, slots=True)
class Payload:
    """What was stored of a value that was not rebuilt: the tag, the values inside it, its data, and their blobs."""

    tag: str
    slots: Any
    data: Any
    blobs: Mapping[str, bytes] = field(default_factory=dict)

    @property
    def source(self) -> str | None:
        """The source text of a function or a class, or None."""
        kind = self.data.get("tag") if self.tag == "withheld" else self.tag
        if kind in {"function", "class"} and isinstance(self.slots, list) and self.slots:
            return self.slots[0] if isinstance(self.slots[0], str) else None
        return None


class Unrestored:
    """Stands for a value that is not there: it says why, and raises when it is used.

    Comparing it by identity, hashing it and showing it work, so that the container that holds it stays usable. It
    keeps what was stored of the value, so that saving it again loses nothing; `unrestored_source` shows the text of a
    function or class that was not run because nobody signed it.
    """

    __slots__ = ("__weakref__", "unrestored_payload", "unrestored_reason", "unrestored_type")

    def __init__(self, type: str, reason: str, payload: Payload | None = None) -> None:
        self.unrestored_type = type
        self.unrestored_reason = reason
        self.unrestored_payload = payload

    @property
    def unrestored_source(self) -> str | None:
        """The source text that was stored with a function or a class, or None."""
        return self.unrestored_payload.source if self.unrestored_payload is not None else None

    def __repr__(self) -> str:
        return f"<not restored: {self.unrestored_type}: {self.unrestored_reason}>"

    def _refuse(self, *_: Any, **__: Any) -> NoReturn:
        raise UnrestoredValueError(
            f"This {self.unrestored_type} was not restored from the checkpoint: {self.unrestored_reason}. "
            "Make it anew before you use it."
        )

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("__"):
            raise AttributeError(name)  # protocols are asked for by tools that only look
        self._refuse()

    __call__ = __iter__ = __next__ = __len__ = __bool__ = __contains__ = _refuse
    __getitem__ = __setitem__ = __delitem__ = __enter__ = __exit__ = _refuse
    __int__ = __float__ = __index__ = __lt__ = __le__ = __gt__ = __ge__ = _refuse
    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __truediv__ = __rtruediv__ = _refuse
    __await__ = __aiter__ = __anext__ = _refuse
