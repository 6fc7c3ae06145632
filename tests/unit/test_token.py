"""Terms: what is written in any script is found by what a person types for it."""

from __future__ import annotations

import time

import hypothesis
import pytest
from hypothesis import strategies as st

from everosd.index import token


def document_terms(text: str) -> list[str]:
    """Return the terms of a long document, without a lead."""
    return token.lead_terms(text, "", has_pairs=True).split()


def shared(document: str, query: str) -> float:
    """Return the weight of the query's terms that the document has, as a share of all of them."""
    terms = token.query_terms(query)
    there = set(document_terms(document))
    total = sum(term.weight for term in terms)
    return sum(term.weight for term in terms if term.text in there) / total if total else 0.0


@pytest.mark.parametrize(
    ("document", "query"),
    [
        ("把機器推論洗成權威事實", "權威事實"),
        ("我家的貓叫小花", "貓"),
        ("東京タワーに行きました", "タワー"),
        ("ﾄｳｷｮｳ", "トウキョウ"),
        ("서울에서 만났다", "서울"),
        ("tantivy你好", "你好"),
        ("tantivy你好", "tantivy"),
        ("Привет, Ёжик и йод", "ежик"),
        ("ПРИВЕТ", "привет"),
        ("مُحَمَّد في البَيت", "محمد"),
        ("أحمد", "احمد"),
        ("ฉันชอบกินข้าวผัด", "ข้าวผัด"),
        ("मुझे हिन्दी पसंद है", "हिन्दी"),
        ("שָׁלוֹם", "שלום"),
        ("Αθήνα", "ΑΘΗΝΑ"),
        ("Ἀθῆναι", "αθηναι"),
        ("café naïve Zürich Łódź", "cafe naive zurich lodz"),
        ("Zu\u0308rich", "zürich"),
        ("Straße", "STRASSE"),
        ("İstanbul", "istanbul"),
        ("ＦＵＬＬ　ｗｉｄｔｈ １２３", "full width 123"),
        ("ﬁsh", "fish"),
        ("a dog 🐶 and more", "🐶"),
        ("version 1.5.1 is out", "1.5.1"),
        ("mail a.b@c.de please", "a.b@c.de"),
        ("mail a.b@c.de please", "c.de"),
        ("call foo_bar() twice", "foo_bar"),
        ("call foo_bar() twice", "bar"),
        ("see https://a.b/c?d=1 for it", "https://a.b/c?d=1"),
        ("written in C++ and C#", "c++"),
        ("an e-mail came", "email"),
        ("O'Brien called", "obrien"),
        ("O\u2019Brien called", "O'Brien"),
        ("the dog's bowl", "dog"),
        ("**bold** _word_ __both__", "bold word both"),
        ("on 2026-03-02", "2026-03-02"),
        ("on 2026-03-02", "2026"),
    ],
)
def test_S02_every_script_and_compound_is_found(document: str, query: str) -> None:
    """All that the query is made of is among the document's terms."""
    assert 1.0 == shared(document, query)


def test_a_compound_written_as_one_word_is_found_by_its_parts_together() -> None:
    """`e-mail` looks for `email` first of all."""
    assert 0.5 <= shared("an email came", "e-mail")
    assert 0.0 == shared("male", "e-mail")


@pytest.mark.parametrize(("document", "query"), [("pet", "pets"), ("pets", "pet"), ("she was running", "run")])
def test_english_inflections_find_each_other_below_an_exact_match(document: str, query: str) -> None:
    """An inflection counts for most of the word, the word itself for all of it."""
    assert 0.5 < shared(document, query) <= shared(query, query)
    assert 1.0 == shared(query, query)


def test_a_word_that_only_looks_alike_is_not_found() -> None:
    """Parts of longer words are no match in scripts that have spaces."""
    assert 0.0 == shared("a catalogue of concatenations", "cat")


def test_stop_words_are_dropped_from_queries_unless_nothing_else_is_left() -> None:
    """`who is the dog` asks for the dog; `who is the` asks for what it says."""
    assert ["dog"] == [term.text for term in token.query_terms("Who is the dog?")]
    assert {"who", "is", "the"} <= {term.text for term in token.query_terms("Who is the")}
    assert {"who", "is", "the"} <= set(document_terms("Who is the dog?"))


@pytest.mark.parametrize("query", ["", "   ", ">>>", "*", "---", "___", "?!", "\u200d", "\x00", "'"])
def test_a_query_without_words_has_no_terms(query: str) -> None:
    """Signs alone look for nothing."""
    assert () == token.query_terms(query)


def test_long_words_are_cut_alike_in_documents_and_queries() -> None:
    """A pasted hash or base64 blob is found again and stays short in the dictionary."""
    blob = "a1" * 5_000
    assert 1.0 == shared(f"key {blob} end", blob)
    assert token.MAX_TERM_CHARS >= max(len(term) for term in document_terms(f"key {blob} {'你' * 3}"))


def test_a_lead_stands_before_every_term() -> None:
    """The lead is on each term exactly once, also where a word has several terms."""
    text = "Dogs run; foo_bar 你好"
    assert [f"x:{term}" for term in document_terms(text)] == token.lead_terms(text, "x:", has_pairs=True).split(" ")
    assert "" == token.lead_terms(">>>", "x:")


@hypothesis.given(text=st.text())
def test_any_text_can_be_cut(text: str) -> None:
    """No text raises; no term is empty, holds a space or is longer than the limit; queries repeat none."""
    terms = document_terms(text)
    assert all(term and not term.isspace() and len(term) <= token.MAX_TERM_CHARS for term in terms)
    wanted = [term.text for term in token.query_terms(text)]
    assert len(wanted) == len(set(wanted))
    assert set(wanted) <= set(terms)


@hypothesis.given(text=st.text(alphabet=st.characters(categories=["L", "M", "N"]), min_size=1, max_size=30))
def test_what_a_document_says_finds_it(text: str) -> None:
    """A word typed as it stands, and in capitals where that can be undone, is among the document's terms."""
    terms = token.query_terms(text)
    assert all(term.text in document_terms(f"before {text} after") for term in terms)


def pairs(text: str) -> list[str]:
    return [term.text for term in token.query_terms(text) if term.is_pair]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Who went to the support groups?", ["went~support", "support~group"]),
        ("Mara's dog, mara dogs", ["mara~dog", "dog~mara"]),
        ("mail a.b@c.de today", ["mail~a.b@c.de", "a.b@c.de~today"]),
        ("京都に引っ越しました", []),
        ("dog", []),
        ("who is it", []),
    ],
)
def test_words_that_stand_together_are_a_term_more(text: str, expected: list[str]) -> None:
    """By their stems, over words that say nothing, each pair once; scripts without spaces have pairs of their own."""
    assert expected == pairs(text)
    assert set(expected) <= set(document_terms(f"so {text} it is"))
    assert not set(expected) & set(token.lead_terms(text, "").split())


def test_a_megabyte_is_cut_within_a_second() -> None:
    """Speed: known vocabulary goes at tens of MB/s here; the bound leaves room for a busy machine."""
    text = "The quick brown foxes jumped over lazy dogs near foo_bar 1.5.1 and wrote to a.b@c.de twice. " * 11_000
    token.lead_terms(text[:1_000], "x:", has_pairs=True)
    started_s = time.process_time()
    token.lead_terms(text, "x:", has_pairs=True)
    assert 1.0 > time.process_time() - started_s
