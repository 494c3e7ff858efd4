"""Files that were made to do harm: they are refused, or are data; no code of theirs runs, and memory is bounded."""

from __future__ import annotations

import base64
import copy
import json
import pickle
import random
import subprocess
import zipfile
from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from checkpoints.processes import command, environment
from rlm_memory.checkpoints import dumps
from rlm_memory.checkpoints.container import BLOBS, pack
from rlm_memory.checkpoints.heap import Heap

SOURCE = "import os\nos.system('touch harm')\ndef f(): os.system('touch harm')\nclass C: os.system('touch harm')\n"


class Exploit:
    def __reduce__(self) -> tuple[Any, ...]:
        return eval, ("__import__('os').system('touch harm')",)


def nodes(*segment: Any, root: Any = None, blobs: dict[str, bytes] | None = None) -> bytes:
    """Return a sound file with this segment: whoever can write a file can give it the right checksums."""
    return pack({}, Heap([(0, [0] if root is None else root)], [list(segment)], blobs or {}))


def inline(content: bytes) -> str:
    return base64.b64encode(content).decode()


def npy(header: str) -> bytes:
    text = header.encode() + b"\n"
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text


def pickled_array() -> bytes:
    buffer = BytesIO()
    np.save(buffer, np.array([Exploit()], dtype=object), allow_pickle=True)
    return buffer.getvalue()


def zipped(**members: bytes) -> bytes:
    """Return a zip that ends like a checkpoint, with any members."""
    import hashlib

    buffer = BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.comment = b"sha256:" + b"0" * 64
        for name, content in members.items():
            archive.writestr(name.replace("__", "/").replace("_json", ".json"), content)
    whole = buffer.getvalue()[:-64]
    return whole + hashlib.sha256(whole).hexdigest().encode()


def manifest(**members: Any) -> bytes:
    return json.dumps({"format": "rlm-memory checkpoint", "version": "1.0", "members": members}).encode()


def name(kind: str, text: str) -> bytes:
    return nodes(["list", [[kind, text]]])


CORPUS: dict[str, Callable[[], bytes]] = {
    **{
        f"name {text}": lambda text=text: name("global", text)
        for text in (
            "os:system",
            "posix:system",
            "builtins:eval",
            "builtins:exec",
            "builtins:open",
            "builtins:__import__",
            "builtins:getattr",
            "subprocess:Popen",
            "numpy:load",
            "numpy:memmap",
            "pandas:read_pickle",
            "typing:get_type_hints",
            "numpy:os.system",
            "json:codecs.open",
            "json:decoder.scanner",
            "random:_os.system",
            "random:__builtins__",
            "collections:_sys.modules",
            "functools:partial",
            "pathlib:os.system",
            "pathlib:Path.unlink",
            "typing:sys.modules",
            "types:FunctionType",
            "builtins:object.__subclasses__",
            "langchain_core.documents:base.Path",
            "langchain_core.messages:importlib",
            "antigravity:x",
            "intruder:x",
        )
    },
    **{
        f"module {text}": lambda text=text: name("module", text)
        for text in ("os", "subprocess", "pickle", "antigravity", "this", "json.tool", "../x", "", "intruder")
    },
    "pickle": lambda: nodes(["pickle", None, inline(pickle.dumps(Exploit()))]),
    "pickle as a blob": lambda: nodes(
        ["pickle", None, {"blob": "x.pickle"}], blobs={"x.pickle": pickle.dumps(Exploit())}
    ),
    "array of pickles": lambda: nodes(["numpy.ndarray", None, {"npy": inline(pickled_array()), "writeable": True}]),
    "array of eight terabytes": lambda: nodes(
        [
            "numpy.ndarray",
            None,
            {
                "npy": inline(npy("{'descr': '<f8', 'fortran_order': False, 'shape': (1000000000000,), }")),
                "writeable": True,
            },
        ]
    ),
    "array with code for a header": lambda: nodes(
        ["numpy.ndarray", None, {"npy": inline(npy("__import__('os').system('touch harm')")), "writeable": True}]
    ),
    "empty array of objects without end": lambda: nodes(
        ["numpy.ndarray", None, {"objects": [10**12, 0, 10**12], "order": "C", "writeable": True}]
    ),
    **{
        f"view {view}": lambda view=view: nodes(
            ["numpy.ndarray", [[1]], {"dtype": "'<f8'", "writeable": True, **view}],
            ["numpy.ndarray", None, {"npy": inline(_npy_of(np.zeros(4))), "writeable": True}],
        )
        for view in (
            {"shape": [10], "strides": [8], "offset": 0},
            {"shape": [4], "strides": [8], "offset": -8},
            {"shape": [2], "strides": [-80], "offset": 8},
            {"shape": [2], "strides": [10**30], "offset": 0},
            {"shape": [1], "strides": [8], "offset": 0, "dtype": "'|O'"},
            {"shape": [1], "strides": [], "offset": 0},
            {"shape": "x", "strides": None, "offset": {}},
        )
    },
    "function": lambda: nodes(
        ["function", [SOURCE, ["namespace"], None, None, [1], [1]], {"place": ["f", 3, 0], "flags": 3, "name": "f"}],
        ["dict", {}],
    ),
    "class": lambda: nodes(
        ["class", [SOURCE, [1], [1]], {"qualname": "C", "module": "m", "own globals": True}], ["dict", {}]
    ),
    "object of a function": lambda: nodes(
        ["instance", [[1], None, None]], ["function", [SOURCE, None, None, None, None, None], {}]
    ),
    **{
        f"object of {text}": lambda text=text: nodes(["instance", [["global", text], None, [1]]], ["dict", {"a": 1}])
        for text in (
            "builtins:type",
            "builtins:object",
            "subprocess:Popen",
            "collections:Counter",
            "pathlib:Path",
            "functools:partial",
            "langchain_core.documents:Document",
        )
    },
    "model that is none": lambda: nodes(["model", [["global", "builtins:int"], None, None, None, None]]),
    "exception that is none": lambda: nodes(["exception", [[1], None, None, None], ["eval", False]], ["tuple", ["1"]]),
    "exception with a state": lambda: nodes(
        ["exception", [[1], None, None, [2]], ["OSError", False]], ["tuple", []], ["dict", {"__class__": 1}]
    ),
    "partial": lambda: nodes(
        ["partial", [["global", "builtins:print"], [1], [2], [2]]], ["tuple", ["x"]], ["dict", {}]
    ),
    "factory": lambda: nodes(["defaultdict", [["global", "os:getcwd"]]]),
    "named tuple with code for a field": lambda: nodes(
        [
            "namedtuple class",
            [[1]],
            {
                "name": "P",
                "qualname": "P",
                "fields": ["x, y=__import__('os').system('touch harm')"],
                "module": "m",
                "doc": None,
            },
        ],
        ["dict", {}],
    ),
    "method": lambda: nodes(["method", [["global", "builtins:print"], 1]]),
    "method of a type": lambda: nodes(["builtin method", [["global", "builtins:type"]], "mro"]),
    "attrgetter": lambda: nodes(["operator", [[1]], "attrgetter"], ["tuple", ["__globals__"]]),
    "pattern of a gigabyte": lambda: nodes(["pattern", [[1]], 0], ["str", None, "(" * 200_000]),
    "patterns in patterns": lambda: nodes(["pattern", ["(" * 5_000 + ")" * 5_000], 0]),
    "zone outside its folder": lambda: nodes(["ZoneInfo", None, "../../../../etc/passwd"]),
    "zone of a device": lambda: nodes(["ZoneInfo", None, "/dev/zero"]),
    "blob outside its folder": lambda: nodes(["bytes", None, {"blob": "../../../../etc/passwd"}]),
    "text bomb": lambda: zipped(manifest_json=manifest(), heap_json=b" " * (300 << 20)),
    "nested without end": lambda: zipped(manifest_json=b"[" * 200_000, heap_json=b"[" * 200_000),
    "members outside": lambda: zipped(**{"..__..__x": b"x"}, manifest_json=manifest(), heap_json=b"{}"),
    "no members": lambda: zipped(x=b""),
    "a manifest that is a list": lambda: zipped(manifest_json=b"[]", heap_json=b"[]"),
    "members of a wrong form": lambda: zipped(manifest_json=manifest(**{"heap.json": 3}), heap_json=b"[]"),
    "a version of a wrong form": lambda: pack({"version": "1.0.0-x"}, Heap([(0, 1)], [[]])),
    "reference to nowhere": lambda: nodes(["list", [[99]]]),
    "reference below zero": lambda: nodes(["list", [[-1]]]),
    "reference of a truth": lambda: nodes(["list", [[True]]]),
    "empty reference": lambda: nodes(["list", [[]]]),
    "object for a slot": lambda: nodes(["list", [{}]]),
    "tuple in itself": lambda: nodes(["tuple", [[0]]]),
    "frozen set in itself": lambda: nodes(["frozenset", [[0]]]),
    "set of a list": lambda: nodes(["set", [[1]]], ["list", []]),
    "key that is a list": lambda: nodes(["map", [[1], 1]], ["list", []]),
    "map of one": lambda: nodes(["map", [1]]),
    "node that is none": lambda: nodes("list"),
    "unsaved without a reason": lambda: nodes(["unsaved", None]),
    "withheld of a wrong form": lambda: nodes(["withheld", [1], 5]),
    "integer of a gigabyte": lambda: nodes(["int", None, "z" * 100]),
    "root in no segment": lambda: pack({}, Heap([(7, [0])], [[]])),
    "array of a wrong code": lambda: nodes(["array", None, {"typecode": "O", "items": ""}]),
    "state of a wrong size": lambda: nodes(["Random", [[1]]], ["tuple", [3, [2], None]], ["tuple", [1, 2, 3]]),
    "deque of nothing": lambda: nodes(["deque", [1], -5]),
    "range of everything": lambda: nodes(["range", [0, 1, 0]]),
}


def without_end(shape: list[int], strides: list[int], dtype: str = "'<f8'") -> list[list[Any]]:
    """Return a view that shows four numbers again and again, and the numbers; they are nodes 1 and 2."""
    view = {"dtype": dtype, "writeable": True, "shape": shape, "strides": strides, "offset": 0}
    return [
        ["numpy.ndarray", [[2]], view],
        ["numpy.ndarray", None, {"npy": inline(_npy_of(np.zeros(4))), "writeable": True}],
    ]


def _empty(descr: str, count: int) -> list[Any]:
    header = f"{{'descr': '{descr}', 'fortran_order': False, 'shape': ({count},), }}"
    return ["numpy.ndarray", None, {"npy": inline(npy(header)), "writeable": True}]


SMALL_FILES_FOR_MUCH_MEMORY: dict[str, Callable[[], bytes]] = {
    "a long axis without objects": lambda: nodes(
        ["numpy.ndarray", None, {"objects": [10**9, 0], "order": "C", "writeable": True}]
    ),
    "items without a size": lambda: nodes(_empty("|V0", 10**12)),
    "empty texts": lambda: nodes(_empty("<U0", 10**9)),
    "empty bytes": lambda: nodes(_empty("|S0", 10**9)),
    "a view without end": lambda: nodes(["list", [[1]]], *without_end([10**9], [0])),
    "a view of items without a size": lambda: nodes(["list", [[1]]], *without_end([10**12], [0], "'|V0'")),
    "a mask without end": lambda: nodes(
        ["numpy.masked", [[1], [1], 0], {"hard": False, "nomask": False}], *without_end([10**8], [0])
    ),
    "a masked array without end": lambda: nodes(
        ["numpy.masked", [[2], [2], [1]], {"hard": False, "nomask": True}], *without_end([10**7], [0])
    ),
}


def _npy_of(array: Any) -> bytes:
    buffer = BytesIO()
    np.save(buffer, array)
    return buffer.getvalue()


def mutations() -> dict[str, bytes]:
    """Return sound files whose nodes were changed at random: tags, slots and data of one given to another."""
    rng = random.Random(0)
    values = [1, -1, "x", None, [0], [1], ["global", "os:system"], {}, [], 10**30, 1.5, "../x", {"blob": "x"}]
    seed: Any = [{"a": (1, {2}), (1, 2): b"x"}, np.arange(3), np.arange(6)[::2], ValueError(1), complex(1, 2), {1: [2]}]
    archive = zipfile.ZipFile(BytesIO(dumps([seed, seed[0]])))
    document = json.loads(archive.read("heap.json"))
    found = {}
    for number in range(400):
        segments = json.loads(json.dumps(document["segments"]))
        for _ in range(rng.randint(1, 3)):
            node = rng.choice(segments[0])
            place = rng.randrange(len(node))
            if place == 0:
                node[0] = rng.choice(segments[0])[0]
            elif isinstance(node[place], list) and node[place] and rng.random() < 0.7:
                node[place][rng.randrange(len(node[place]))] = copy.deepcopy(rng.choice(values))
            elif isinstance(node[place], dict) and node[place] and rng.random() < 0.7:
                node[place][rng.choice([*node[place]])] = copy.deepcopy(rng.choice(values))
            else:
                node[place] = copy.deepcopy(rng.choice(values))
        found[f"mutation {number}"] = pack({}, Heap([tuple(root) for root in document["roots"]], segments))
    return found


@pytest.fixture(scope="module")
def verdicts(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    folder = tmp_path_factory.mktemp("hostile")
    made = {title: make() for title, make in {**CORPUS, **SMALL_FILES_FOR_MUCH_MEMORY}.items()}
    files = {**made, **mutations()}
    paths = {}
    for number, (title, data) in enumerate(files.items()):
        paths[str(folder / f"{number}.rlmc")] = title
        (folder / f"{number}.rlmc").write_bytes(data)
    (folder / "intruder.py").write_text("import os; os.system('touch harm')")  # the current folder is on the path
    done = subprocess.run(
        command("hostile_process", *paths), env=environment(), cwd=folder, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert not (folder / "harm").exists()
    return {paths[path]: verdict for path, verdict in json.loads(done.stdout).items()}


@pytest.mark.parametrize("title", CORPUS)
def test_a_hostile_file_is_refused_or_is_data(title: str, verdicts: dict[str, str]) -> None:
    """Answers B082."""
    assert verdicts[title].startswith(("refused", "data")), verdicts[title]


@pytest.mark.parametrize("title", SMALL_FILES_FOR_MUCH_MEMORY)
def test_small_file_needs_little_memory_whatever_it_says(title: str, verdicts: dict[str, str]) -> None:
    """Refused for want of memory would be too late: this reader has half a gigabyte, others have all there is."""
    assert verdicts[title].startswith("data"), verdicts[title]


@pytest.mark.parametrize("title", [title for title in CORPUS if title.startswith(("name ", "module "))])
def test_a_stranger_cannot_name_what_runs_or_opens_something(title: str, verdicts: dict[str, str]) -> None:
    assert verdicts[title] == "data: Unrestored"


def test_files_that_were_changed_at_random_are_refused_or_are_data(verdicts: dict[str, str]) -> None:
    foreign = {title: verdict for title, verdict in verdicts.items() if verdict.startswith("foreign")}
    assert foreign == {}


def test_the_watcher_sees_harm(tmp_path: Path) -> None:
    """A watcher that sees nothing would make the tests above worthless."""
    program = (
        "import sys; from checkpoints import hostile_process as h; sys.addaudithook(h.watch); h.watching = True; "
        "exec(compile('1', '<data>', 'exec'))"
    )
    done = subprocess.run(
        [*command("hostile_process")[:1], "-c", program],
        env=environment(),
        cwd=tmp_path,
        capture_output=True,
        check=False,
    )
    assert done.returncode == 3
    assert b"exec" in done.stdout


def test_blobs_lie_in_one_folder_of_the_file() -> None:
    data = dumps(b"x" * 100_000)
    assert [each for each in zipfile.ZipFile(BytesIO(data)).namelist() if each.startswith(BLOBS)]
