"""Moves a namespace whole: to a file and back, or from one engine to another, as one stream of the same parts."""

from rlm_memory.interchange.copying import NamespaceCopy, copy
from rlm_memory.interchange.files import expect_export, read, write

__all__ = ["NamespaceCopy", "copy", "expect_export", "read", "write"]
