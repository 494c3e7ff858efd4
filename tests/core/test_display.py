"""Records show themselves as tables: HTML in notebooks, text in terminals, and never as markup."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlm_memory import CheckReport, Hits, Memory, Problem, PromotionLog
from rlm_memory.checkpoints import RLMCheckpoint
from rlm_memory.display import Table
from rlm_memory.errors import InvalidInputError
from support import SettableClock, WordEmbedder

HOSTILE = "<script>alert('tea')</script> & \x1b[2J tea"


@pytest.fixture
def memory(clock: SettableClock) -> Memory:
    memory = Memory.open(":memory:", embedder=WordEmbedder(), clock=clock)
    memory.add([HOSTILE, "Ada drinks tea", "Bo has a dog"], ids=["<b>", "ada", "bo"])
    memory.promote("ada", "longterm", reason="<i>because</i>")
    return memory


def shown(memory: Memory) -> dict[str, object]:
    return {
        "hits": memory.search("tea", k=3),
        "decision": memory.explain_promotion("<b>"),
        "log": memory.promotion_log(),
        "stats": memory.stats(),
        "checkpoint": RLMCheckpoint(session_id="<script>", repl_state={"<b>": 1}),
    }


@pytest.mark.parametrize("name", ["hits", "decision", "log", "stats", "checkpoint"])
def test_what_people_look_at_is_a_table_in_a_notebook_and_text_in_a_terminal(memory: Memory, name: str) -> None:
    value = shown(memory)[name]
    page = value._repr_html_()  # type: ignore[attr-defined]  # what Jupyter calls
    assert page.startswith("<table>")
    assert page.endswith("</table>")
    for markup in ("<script", "<b>alert", "<i>because", "<b></td>"):
        assert markup not in page
    text = str(value)
    assert "<table>" not in text
    assert "\x1b" not in text
    assert len(text.splitlines()) > 1


def test_hits_are_a_list_and_their_table_has_rank_scores_and_text(memory: Memory) -> None:
    hits = memory.search("tea", k=2)
    assert isinstance(hits, list)
    assert isinstance(hits, Hits)
    table = hits.as_table()
    assert table.caption == "2 hits"
    assert [row[0] for row in table.rows] == [1, 2]
    assert [row[1] for row in table.rows] == [hit.score for hit in hits]


def test_a_log_can_be_walked_through_again_and_shows_its_last_entries(memory: Memory) -> None:
    log = memory.promotion_log()
    assert isinstance(log, PromotionLog)
    assert list(log) == list(log) != []
    for turn in range(60):
        memory.promote("bo", "session" if turn % 2 else "task", reason=f"turn {turn}")
    rows = log.as_table().rows
    assert len(rows) == 50
    assert rows[-1][-1] == "turn 59"


def test_one_entry_of_a_log_is_called_so() -> None:
    with Memory.open(":memory:", embedder=None) as memory:
        (id,) = memory.add("Ada likes tea.")
        memory.pin(id, reason="hers")
        assert str(memory.promotion_log()).startswith("1 entry\n")


def test_a_terminal_with_ipython_shows_the_table_too(memory: Memory) -> None:
    pretty = pytest.importorskip("IPython.lib.pretty", reason="IPython is not installed")
    hits = memory.search("tea", k=2)
    assert pretty.pretty(hits) == str(hits)
    assert pretty.pretty([memory.stats()]).count("\n") > 10


def test_columns_are_aligned_and_a_long_last_one_is_broken_into_lines() -> None:
    text = Table("Two", ("name", "n", "text"), [("a", 1, "short"), ("bb", 22, "many words " * 12)]).to_text()
    caption, head, first, second, *more = text.splitlines()
    assert caption == "Two"
    assert head.index("n", 4) == first.index("1") == second.index("22")
    assert head.index("text") == first.index("short") == second.index("many")
    assert [len(line) - len(line.lstrip()) for line in more] == [head.index("text")]


def test_columns_without_room_stand_below_their_row_with_their_names() -> None:
    row = (1, "i" * 36, "a rule with a name", "a user", "because " * 9)
    assert Table("One", ("", "id", "rule", "actor", "reason"), [row]).to_text().splitlines() == [
        "One",
        "   id                                    rule                actor",
        f"1  {'i' * 36}  a rule with a name  a user",
        "   reason: " + " ".join(["because"] * 8),
        "   because",
    ]


def columns(line: str) -> int:
    """How many columns of a terminal a line takes."""
    return sum(2 if unicodedata.east_asian_width(letter) in "WF" else 1 for letter in line)


def test_cells_in_letters_of_two_columns_are_aligned_and_broken_where_the_terminal_ends() -> None:
    table = Table("2 hits", ("id", "kind", "text"), [("茶", "fact", "茶を飲む" * 20), ("tea", "事实", "🍵 " * 30)])
    _, head, *lines = table.to_text().splitlines()
    at = head.index("text")
    first, second = (line for line in lines if not line.startswith(" "))
    assert columns(first[: first.index("茶を")]) == columns(second[: second.index("🍵")]) == at
    assert {len(line) - len(line.lstrip()) for line in lines if line.startswith(" ")} == {at}
    assert 78 < max(map(columns, lines)) <= 80
    assert "".join("".join(line.split()) for line in lines).count("茶を飲む") == 20


@given(st.text(st.characters(min_codepoint=0x3000, max_codepoint=0x9FFF, categories=("Lo",)), max_size=150))
def test_a_text_without_blanks_in_letters_of_two_columns_fits_a_terminal(text: str) -> None:
    lines = Table("t", ("id", "text"), [("1", text)]).to_text().splitlines()
    assert max(map(columns, lines)) <= 80
    assert "".join(line.strip() for line in lines[2:]).removeprefix("1").strip() == text


@given(
    st.text(max_size=400),
    st.integers(1, 8).flatmap(
        lambda width: st.tuples(
            st.lists(st.text(max_size=30), min_size=width, max_size=width),
            st.lists(
                st.lists(st.text(max_size=200) | st.floats() | st.none(), min_size=width, max_size=width), max_size=4
            ),
        )
    ),
)
def test_whatever_is_in_a_table_its_lines_fit_a_terminal_of_80_columns(
    caption: str, table: tuple[list[str], list[list[object]]]
) -> None:
    columns, rows = table
    lines = Table(caption, columns, rows).to_text().split("\n")
    assert max(map(len, lines)) <= 80
    assert all(line.isprintable() for line in lines)
    assert len(lines) >= 2 + len(rows)


@pytest.mark.parametrize("name", ["hits", "decision", "log", "stats", "checkpoint"])
def test_what_people_look_at_fits_a_terminal_with_long_names_too(memory: Memory, name: str) -> None:
    memory.add(["tea " * 60], ids=["7e9e57cf-8d6c-4bd7-8e8d-7e6a3c1f0f52"])
    memory.promote("7e9e57cf-8d6c-4bd7-8e8d-7e6a3c1f0f52", "session", reason="tea is what everybody asks for " * 5)
    assert max(map(len, str(shown(memory)[name]).splitlines())) <= 80


def test_pictures_show_tiers_and_the_parts_of_scores(memory: Memory, clock: SettableClock) -> None:
    matplotlib = pytest.importorskip("matplotlib", reason="needs the extra notebooks")
    matplotlib.use("Agg")
    from rlm_memory.plots import plot_scores, plot_tiers

    axes = memory.plot_tiers()
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["task", "session", "longterm", "archive"]
    inline = pytest.importorskip("matplotlib_inline.backend_inline", reason="the pictures are shown without Jupyter")
    assert not inline._fetch_figure_metadata(axes.figure), "no background of its own, on light pages and on dark ones"
    last = memory.timeline()[-1].at
    assert matplotlib.dates.num2date(axes.dataLim.x1) > last, "what is now is seen, too"
    hits = memory.search("Ada tea", k=3)
    semantic, keyword = ([bar.get_width() for bar in bars] for bars in plot_scores(hits).containers)
    assert [a + b for a, b in zip(semantic, keyword, strict=True)] == pytest.approx([hit.score for hit in hits])
    for nothing in (lambda: plot_tiers([]), lambda: plot_scores([])):
        with pytest.raises(InvalidInputError, match="no "):
            nothing()
    matplotlib.pyplot.close("all")


@pytest.mark.parametrize("alpha", [0.0, 0.3, 1.0])
def test_the_parts_of_scores_are_those_that_the_search_has_added_up(alpha: float) -> None:
    pytest.importorskip("matplotlib", reason="needs the extra notebooks")
    from rlm_memory.plots import score_parts

    memory = Memory.open(":memory:", embedder=WordEmbedder())
    memory.add(["Ada drinks tea", "Bo drinks tea and tea", "Cy has a dog", "a dog drinks"])
    memory.add(["tea without a vector"], compute_embedding=False)
    question = "who drinks tea"
    hits = memory.search(question, k=5, alpha=alpha)
    alone = {hit.id: hit.score for hit in memory.search(question, k=5, alpha=0.0)}
    _, keyword = score_parts(hits)
    assert keyword.tolist() == pytest.approx([(1 - alpha) * alone[hit.id] for hit in hits], abs=1e-6)


def test_a_decision_says_its_evidence_once(memory: Memory) -> None:
    waiting = memory.explain_promotion("bo").as_table()
    assert waiting.rows
    assert "required" not in waiting.caption
    by_hand = memory.promote("bo", "session", reason="Ada said so").as_table()
    assert "Ada said so" in by_hand.caption


def test_sizes_of_a_small_store_are_more_than_nothing(memory: Memory) -> None:
    assert "text  " in str(memory.stats())
    assert "0.00" not in str(memory.stats())


def test_a_report_of_a_check_is_read_by_people(memory: Memory) -> None:
    assert str(memory.check()) == "The store is sound."
    assert str(CheckReport((Problem("nodes", "a row too many"),))) == "nodes: a row too many"
