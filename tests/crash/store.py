"""Kill processes that write to a store, at random moments, and look for everything they were told is kept.

    python tests/crash/store.py --kills 1000 [--migrations 100] [--reembeddings 50] [--seed 0]

Each process adds, updates, deletes, promotes, compacts and backs up, and says on a pipe what it begins and what has
returned. After each kill the store is opened again: what had returned is there, what had not is there whole or not at
all, `check` is clean, no node is without its keyword row, no vector without its node. Then processes are killed while
they bring a file to the schema of a next release (a copy of this one with one migration more), and while they change
the embedding model. Exits with a traceback when anything is lost or torn. Needs fork().
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import zlib
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NoReturn

import apsw
import numpy as np

import rlm_memory
from rlm_memory import Memory
from rlm_memory.ports import Vector

NODES = 240
"""How many ids there are; so most of what is added replaces something."""
LONGEST_LIFE = 0.06
KINDS = ["add", "update", "delete", "promote", "compact", "backup"]
TIERS = ["task", "session", "longterm", "archive"]
NEXT_MIGRATION = """
ALTER TABLE nodes ADD COLUMN shout TEXT;
UPDATE nodes SET shout = upper(text);
CREATE TABLE shouts AS SELECT node, shout || shout || shout AS shout FROM nodes;
CREATE INDEX shouts_by_text ON shouts (shout);
"""

State = dict[str, list[Any]]
"""Of each id the text, the number in the metadata, the confidence and the tier."""


class TextEmbedder:
    """Gives each text a direction of its own, the same in every process."""

    def __init__(self, model: str = "texts", dimensions: int = 16) -> None:
        self.model = model
        self.dimensions = dimensions

    def embed(self, texts: Sequence[str]) -> Vector:
        return np.stack([self.embed_query(text) for text in texts])

    def embed_query(self, text: str) -> Vector:
        generator = np.random.default_rng(zlib.crc32(f"{self.model} {text}".encode()))
        return generator.standard_normal(self.dimensions).astype(np.float32)


# -- what a store should hold ---------------------------------------------------------------------------------------


def after(state: State, step: Any) -> State:
    """Return what a store holds after this step."""
    state = {id: list(node) for id, node in state.items()}
    match step:
        case ["add", [*nodes]]:
            for id, text, n, confidence in nodes:
                state[id] = [text, n, confidence, state[id][3] if id in state else "task"]
        case ["update", id, text, n]:
            state[id][:2] = [text, n]
        case ["delete", [*ids]]:
            for id in ids:
                state.pop(id, None)
        case ["delete where", n]:
            state = {id: node for id, node in state.items() if node[1] != n}
        case ["promote", id, tier, _]:
            state[id][3] = tier
        case ["compact"] | ["backup", _]:
            pass
        case _:
            raise ValueError(step)
    return state


def stored(memory: Memory) -> State:
    return {
        node.id: [node.text, node.metadata["n"], node.confidence, node.tier]
        for node in memory.list(limit=10 * NODES, include_archived=True)
    }


def chosen(state: State, kind: str, chance: random.Random, name: str) -> Any:
    """Return a step of this kind that can be made with what is there."""
    known = sorted(state)
    word = f"word{name}"
    match kind:
        case "update" if known:
            return ["update", chance.choice(known), f"changed {word} 设备", chance.randrange(10)]
        case "delete" if known:
            if chance.random() < 0.2:
                return ["delete where", chance.randrange(10)]
            return ["delete", chance.sample(known, min(len(known), chance.randint(1, 5)))]
        case "promote" if known:
            return ["promote", chance.choice(known), chance.choice(TIERS), f"because {name}"]
        case "compact":
            return ["compact"]
        case "backup":
            return ["backup", name]
    ids = [f"n{number}" for number in chance.sample(range(NODES), chance.randint(1, 12))]
    return ["add", [[id, f"{id} text {word} {chance.random()}", chance.randrange(10), chance.random()] for id in ids]]


def carry_out(memory: Memory, step: Any, folder: Path) -> None:
    match step:
        case ["add", [*nodes]]:
            memory.add([rlm_memory.Node(text=t, id=i, metadata={"n": n}, confidence=c) for i, t, n, c in nodes])
        case ["update", id, text, n]:
            memory.update(id, text=text, metadata={"n": n})
        case ["delete", [*ids]]:
            memory.delete(ids)
        case ["delete where", n]:
            memory.delete(where={"n": n})
        case ["promote", id, tier, reason]:
            memory.promote(id, tier, reason=reason)
        case ["compact"]:
            memory.compact()
        case ["backup", name]:
            memory.backup(folder / f"{name}.backup")


# -- processes that are killed --------------------------------------------------------------------------------------


def live_and_die(life: float, work: Callable[[Callable[[Any], None]], None]) -> list[Any]:
    """Fork a process that does this work, kill it after so many seconds of it, and return what it has said."""
    reading, writing = os.pipe()
    process = os.fork()
    if process == 0:
        _work(work, writing)
    os.close(writing)
    with open(reading, encoding="utf-8") as said:
        first = said.readline()  # it is up, and begins
        time.sleep(life)
        os.kill(process, signal.SIGKILL)
        lines = [first, *said]
    _, status = os.waitpid(process, 0)
    assert os.WIFSIGNALED(status) or os.WEXITSTATUS(status) == 0, "the process failed; its error is above"
    return [json.loads(line) for line in lines if line.endswith("\n")]


def _work(work: Callable[[Callable[[Any], None]], None], writing: int) -> NoReturn:
    try:
        work(lambda what: void(os.write(writing, json.dumps(what).encode() + b"\n")))
        os._exit(0)
    except BaseException as error:  # noqa: BLE001  # a forked child must never return into its parent's code
        os.write(2, f"{type(error).__name__}: {error}\n".encode())
        os._exit(1)


def void(_: object) -> None:
    """Return nothing."""


def expect_sound(memory: Memory, chance: random.Random) -> None:
    """Fail if the parts of a store do not fit together, by its own check and by looking past it."""
    problems = list(memory.check())
    assert not problems, problems
    connection = apsw.Connection(memory.location, flags=apsw.SQLITE_OPEN_READONLY)
    with contextlib.closing(connection):
        without_words = connection.execute("SELECT id FROM nodes WHERE node NOT IN (SELECT id FROM nodes_fts_docsize)")
        assert not without_words.fetchall()
        without_node = connection.execute("SELECT id FROM nodes_fts_docsize WHERE id NOT IN (SELECT node FROM nodes)")
        assert not without_node.fetchall()
        if connection.execute("SELECT 1 FROM sqlite_schema WHERE name = 'node_embeddings'").fetchone():
            (vectors,) = connection.execute("SELECT count(*) FROM node_embeddings_rowids").fetchone() or (0,)
            (owners,) = connection.execute("SELECT count(place) FROM nodes").fetchone() or (0,)
            assert vectors == owners, f"{vectors} vectors, {owners} nodes with one"
    nodes = memory.list(limit=10 * NODES, include_archived=True)
    for node in chance.sample(nodes, min(3, len(nodes))):
        same = {other.id for other in nodes if other.text == node.text}
        assert memory.search(node.text, k=1, alpha=0, include_archived=True)[0].id in same
        assert memory.search(node.text, k=1, alpha=1, include_archived=True)[0].id in same


def kill_writers(folder: Path, kills: int, seed: int) -> dict[str, int]:
    """Kill writers again and again; return how many kills fell into each kind of step.

    Raises:
        AssertionError: Something that had returned is lost, or something is torn.
    """
    chance = random.Random(seed)
    path = folder / "store.db"
    state: State = {}
    tally: Counter[str] = Counter()
    for kill in range(kills):
        favourite, own_seed = KINDS[kill % len(KINDS)], chance.randrange(2**31)

        def work(
            say: Callable[[Any], None],
            kill: int = kill,
            favourite: str = favourite,
            seed: int = own_seed,
            held: State = state,
        ) -> None:
            own = random.Random(seed)
            with Memory.open(path, embedder=TextEmbedder()) as memory:
                say(["up"])
                for number in range(1_000_000):
                    kind = favourite if own.random() < 0.5 else own.choice(KINDS)
                    step = chosen(held, kind, own, f"{kill}x{number}")
                    say(["begin", step])
                    carry_out(memory, step, folder)
                    say(["done"])
                    held = after(held, step)

        pending = None
        backups: dict[str, list[State]] = {}
        for what in live_and_die(chance.uniform(0, LONGEST_LIFE), work):
            match what:
                case ["begin", step]:
                    pending = step
                    if step[0] == "backup":
                        backups[step[1]] = [state]
                case ["done"]:
                    state, pending = after(state, pending), None
        tally[pending[0] if pending else "between"] += 1
        with Memory.open(path, embedder=TextEmbedder()) as memory:
            found = stored(memory)
            if pending is not None and found != state:
                state = after(state, pending)
            assert found == state, difference(found, state)
            expect_sound(memory, chance)
        for name, [expected] in backups.items():
            copy = folder / f"{name}.backup"
            if pending == ["backup", name] and not copy.exists():
                continue
            with Memory.open(copy, embedder=TextEmbedder()) as memory:
                assert stored(memory) == expected, f"backup {name} is not the state it was taken of"
                assert memory.check()
            copy.unlink()
        left = [entry.name for entry in folder.iterdir() if entry.name.endswith(".partial")]
        assert len(left) <= 1, left
        for name in left:  # of a backup that was killed: it never got its name
            (folder / name).unlink()
            tally["half a backup left, under another name"] += 1
    return dict(tally)


def difference(found: State, expected: State) -> str:
    ids = [id for id in found.keys() | expected.keys() if found.get(id) != expected.get(id)]
    return "; ".join(f"{id}: found {found.get(id)}, expected {expected.get(id)}" for id in sorted(ids)[:5])


# -- a change of the embedding model --------------------------------------------------------------------------------


def kill_reembeddings(folder: Path, kills: int, seed: int) -> dict[str, int]:
    """Kill changes of the embedding model, each taken up by the next process; return how often one was finished."""
    chance = random.Random(seed)
    path = folder / "reembed.db"
    models = [TextEmbedder("one", 16), TextEmbedder("two", 24)]
    texts = [f"text {i} word{i}" for i in range(1500)]
    with Memory.open(path, embedder=models[0]) as memory:
        memory.add(texts, ids=[str(i) for i in range(len(texts))])
    tally = {"killed": 0, "finished": 0, "embedded": 0}
    embedded: Counter[str] = Counter()
    while tally["killed"] < kills:
        old, new = models

        class Telling(TextEmbedder):
            """Tells what it embeds."""

            say: Callable[[Any], None]

            def embed(self, texts: Sequence[str]) -> Vector:
                self.say(["asked", len(texts)])
                return super().embed(texts)

        def work(say: Callable[[Any], None], new: TextEmbedder = new, telling: type[Telling] = Telling) -> None:
            embedder = telling(new.model, new.dimensions)
            embedder.say = say
            say(["up"])
            with Memory.open(path, embedder=None) as memory:
                memory.reembed(embedder)
                say(["done"])

        said = live_and_die(chance.uniform(0, 0.25), work)
        embedded[new.model] += sum(what[1] for what in said if what[0] == "asked")
        with Memory.open(path, embedder=None) as memory:
            model = memory.stats().embedding_model
            assert model in (old.model, new.model), model
            assert memory.stats().with_vector == len(texts)
            assert not list(memory.check())
        serving = new if model == new.model else old
        with Memory.open(path, embedder=serving) as memory:  # the old vectors serve until all the new ones are there
            for i in chance.sample(range(len(texts)), 3):
                assert memory.search(texts[i], k=1, alpha=1)[0].text == texts[i]
        if model == new.model:
            # Each kill may have cost the batch that was on its way, never what was kept before.
            assert embedded[new.model] <= len(texts) + 256 * (tally["killed"] + 1)
            tally["finished"] += 1
            tally["embedded"] += embedded.pop(new.model)
            models.reverse()
        else:
            assert ["done"] not in said
        tally["killed"] += ["done"] not in said
    return tally


# -- the schema of the next release ---------------------------------------------------------------------------------


def next_release(folder: Path) -> Path:
    """Return a folder to import from, with a copy of the package that has one migration more."""
    ours = Path(rlm_memory.__file__).parent
    copy = folder / "next" / "rlm_memory"
    shutil.copytree(ours, copy, ignore=shutil.ignore_patterns("__pycache__"))
    migrations = copy / "engines" / "sqlite" / "migrations"
    number = 1 + max(int(entry.name[:4]) for entry in migrations.glob("[0-9]*.sql"))
    (migrations / f"{number:04}_shout.sql").write_text(NEXT_MIGRATION)
    return copy.parent


def kill_migrations(folder: Path, kills: int, seed: int) -> dict[str, int]:
    """Kill a next release while it brings files of this one up to date; return how far they had come."""
    path = folder / "old.db"
    texts = [f"text {i} word{i}" for i in range(2000)]
    with Memory.open(path, embedder=TextEmbedder()) as memory:
        memory.add(texts, ids=[str(i) for i in range(len(texts))], metadatas=[{"n": i} for i in range(len(texts))])
        memory.promote("7", "longterm", reason="it is needed")
    found = os.pathsep.join([str(next_release(folder)), *filter(None, sys.path)])
    done = subprocess.run(
        [sys.executable, __file__, "--next", str(path), str(kills), str(seed)],
        env={**os.environ, "PYTHONPATH": found}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    tally: dict[str, int] = json.loads(done.stdout)
    return tally


def migrate_and_be_killed(old: Path, kills: int, seed: int) -> dict[str, int]:
    """Be the next release."""
    chance = random.Random(seed)
    path = old.with_name("migrated.db")
    before = version(old)
    tally: Counter[str] = Counter()
    for _ in range(kills):
        for left in path.parent.glob("migrated.db*"):
            left.unlink()
        shutil.copyfile(old, path)

        def work(say: Callable[[Any], None]) -> None:
            say(["up"])
            with Memory.open(path, embedder=None) as memory:
                say(["open"])
                memory.add("one more", ids=["more"], metadatas=[{"n": -1}])
                say(["added"])

        said = live_and_die(chance.uniform(0, 0.12), work)
        copies = list(path.parent.glob("migrated.db.*.backup"))
        tally["before" if not copies else "during" if ["open"] not in said else "after"] += 1
        with Memory.open(path, embedder=TextEmbedder()) as memory:
            assert version(path) == before + 1
            assert memory.count(include_archived=True) in ([2001] if ["added"] in said else [2000, 2001])
            assert memory.get("7")[0].tier == "longterm"
            expect_sound(memory, chance)
            (shouts,) = apsw.Connection(str(path)).execute("SELECT count(shout) FROM shouts").fetchone() or (0,)
            assert shouts == 2000
        (copy,) = path.parent.glob("migrated.db.*.backup")
        assert version(copy) == before
        assert copy.stat().st_mode & 0o777 == 0o600
        connection = apsw.Connection(str(copy), flags=apsw.SQLITE_OPEN_READONLY)
        assert connection.execute("SELECT count(*) FROM nodes").fetchall() == [(2000,)]
        assert connection.pragma("integrity_check") == "ok"
        connection.close()
    return dict(tally)


def version(path: Path) -> int:
    with contextlib.closing(apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)) as connection:
        return int(connection.pragma("user_version"))


def main() -> None:
    if sys.argv[1:2] == ["--next"]:
        path, kills, seed = sys.argv[2:]
        print(json.dumps(migrate_and_be_killed(Path(path), int(kills), int(seed))))
        return
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=1000)
    parser.add_argument("--migrations", type=int, default=100)
    parser.add_argument("--reembeddings", type=int, default=50)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    report: dict[str, dict[str, int]] = {}
    for name, kill, kills in (
        ("writers", kill_writers, options.kills),
        ("migrations", kill_migrations, options.migrations),
        ("reembeddings", kill_reembeddings, options.reembeddings),
    ):
        with tempfile.TemporaryDirectory() as folder:
            report[name] = kill(Path(folder), kills, options.seed) if kills else {}
    print(json.dumps(report))


if __name__ == "__main__":
    main()
