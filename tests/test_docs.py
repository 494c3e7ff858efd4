"""The pages keep their word: their links lead somewhere, their tables are complete."""

from __future__ import annotations

import importlib
import re
from dataclasses import fields
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from checkpoints.table import markdown
from rlm_memory import PromotionPolicy, errors, integrations
from rlm_memory.checkpoints import errors as checkpoint_errors
from rlm_memory.filters import Operator

ROOT = Path(__file__).parents[1]
README = ROOT / "README.md"
PAGES = sorted((ROOT / "docs").glob("*.md"))
if not PAGES:
    pytest.skip("the pages are in the checkout alone", allow_module_level=True)


def text(page: str) -> str:
    return (ROOT / "docs" / page).read_text("utf-8")


def prose(page: Path) -> str:
    return re.sub(r"^```.*?^```$", "", page.read_text("utf-8"), flags=re.MULTILINE | re.DOTALL)


def anchors(page: Path) -> set[str]:
    """As GitHub makes them: small letters, no punctuation, dashes for blanks."""
    titles = re.findall(r"^#+ (.*)$", prose(page), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("page", [README, *PAGES], ids=lambda page: page.stem)
def test_links_lead_to_a_file_and_a_heading(page: Path) -> None:
    lost = []
    for link in re.findall(r"\]\(([^)\s]+)\)", prose(page)):
        path, _, anchor = link.partition("#")
        if "://" in link:
            continue
        target = (page.parent / path) if path else page
        if not target.exists() or (anchor and anchor not in anchors(target)):
            lost.append(link)
    assert lost == []


HOSTS = {"keepachangelog.com", "semver.org"}
"""Whom the pages may name; who adds one has looked whether its page is there, which the tests cannot."""
BESIDE = [ROOT / "CHANGELOG.md", ROOT / "SECURITY.md"]


@pytest.mark.parametrize("page", [README, *BESIDE, *PAGES], ids=lambda page: page.stem)
def test_links_to_other_sites_are_of_known_hosts_over_https(page: Path) -> None:
    found = page.read_text("utf-8")
    addresses = re.findall(r"https?:[^\s)>\"'`|\]]*", found)
    addresses += re.findall(r"\]\((\w+:[^)]*)\)", found)
    for address in addresses:
        parts = urlsplit(address)
        assert (parts.scheme, parts.username, parts.port) == ("https", None, None), address
        assert parts.hostname in HOSTS, address
        assert re.fullmatch(r"https://[a-z0-9.-]+(/[\w.~/%+-]*)?(#[\w.-]+)?", address), address


def test_every_known_host_is_named() -> None:
    told = "".join(page.read_text("utf-8") for page in [README, *BESIDE, *PAGES])
    assert [host for host in sorted(HOSTS) if f"https://{host}/" not in told] == []


def test_every_page_is_linked_from_the_readme() -> None:
    front = README.read_text("utf-8")
    assert [page.name for page in PAGES if f"](docs/{page.name})" not in front] == []


@pytest.mark.parametrize("page", [README, *PAGES], ids=lambda page: page.stem)
def test_prose_has_one_sentence_a_line(page: Path) -> None:
    plain = [line for line in prose(page).splitlines() if line and line[0] not in "#|-$`"]
    assert [line for line in plain if re.search(r"[a-z)][.!?] [A-Z]", line)] == []


def errors_of(module: object) -> list[type]:
    return [value for name, value in vars(module).items() if isinstance(value, type) and name.endswith("Error")]


ERRORS = {error.__name__: error for module in (errors, checkpoint_errors, integrations) for error in errors_of(module)}


def test_every_error_has_a_row() -> None:
    assert len(ERRORS) > 25
    assert [name for name in ERRORS if f"\n| `{name}` |" not in text("troubleshooting.md")] == []


def test_no_row_names_an_error_that_is_not_there() -> None:
    named = re.findall(r"^\| `(\w+Error)` \|", text("troubleshooting.md"), re.MULTILINE)
    assert [name for name in named if name not in ERRORS] == []


def test_every_error_is_in_the_tree_below_its_base() -> None:
    for name, error in ERRORS.items():
        trees = [
            tree for tree in (errors.__doc__, checkpoint_errors.__doc__) if tree and re.search(rf"\b{name}\b", tree)
        ]
        assert trees, name
        base = error.__mro__[1].__name__
        assert name == "RLMError" or any(base in tree for tree in trees), (name, base)


def test_every_operator_has_a_row() -> None:
    first = "".join(line.split("|")[1] for line in text("filters.md").splitlines() if line.startswith("|"))
    assert [operator for operator in Operator if f"`{operator}`" not in first] == []


def test_what_every_operator_matches_is_told() -> None:
    told = text("filters.md").partition("| operators | what they match |")[2].partition("\n\n")[0]
    assert [operator for operator in Operator if f"`{operator}`" not in told] == []


def test_every_operator_of_llamaindex_has_a_cell() -> None:
    pytest.importorskip("llama_index.core", reason="needs the extra llamaindex")
    types = importlib.import_module("llama_index.core.vector_stores.types")
    assert [name for name in types.FilterOperator.__members__ if f"`{name}`" not in text("filters.md")] == []


def test_numbers_of_the_policy_are_its_defaults() -> None:
    rows = dict(re.findall(r"^\| `(\w+)` \| ([\d.]+) \|", text("tiers.md"), re.MULTILINE))
    assert {name: float(value) for name, value in rows.items()} == {
        field.name: float(field.default) for field in fields(PromotionPolicy)
    }


def test_types_of_checkpoints_are_those_that_are_proved() -> None:
    assert markdown() in text("checkpoints.md")
