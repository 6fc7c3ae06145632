"""One Tantivy index: documents and queries in its terms, and BM25 that is exact for each owner.

Each term is stored with a lead that stands for its owner. So a term's document frequency is that of the owner's own
documents, an owner with few documents is searched without walking through those of others, and a query can't even name
a term of another owner. The scope is a condition of the query besides.
"""

from __future__ import annotations

import base64
import contextlib
import functools
import hashlib
import math
import operator
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import tantivy

from everosd import types
from everosd.index import contract, token, where

HEAP_BYTES = 15_000_000
"""Of the writer: Tantivy's least. A full heap only means one more segment, to be merged later."""

TITLE_WEIGHT = 2
"""A title's terms count as if they stood there this often."""

PRIOR_DOCUMENTS = 20
"""Imagined documents without any query term beside the owner's own: among three entries, a word that two have would
else weigh next to nothing. Between 10 and 100 LoCoMo's sessions are found equally well, without any 0.5 % fewer."""

MAX_TERMS = 64
"""Terms of a query that are looked up, the weightiest first: a pasted page costs no more than a paragraph."""

MAX_ALTERNATIVES = 256
"""Values of one field that are looked up one by one: a set of terms walks the field's whole dictionary, which took 0.2 ms
for two kinds and 1.5 ms for fifty links among 10,000 documents; one by one it is a fifth of that."""

MAX_REGEX_BYTES, MAX_WILDCARDS = 128, 3
"""Of a pattern that Tantivy is given as an automaton; a longer one, which takes it up to half a second to refuse, is held
against each of the owner's values, 2 µs each."""

CURVE = 1.0
"""Bends the share of the reachable BM25 so that a document with each word once scores about 0.6, not 0.45."""

_K1 = 1.2  # of Tantivy's BM25 (tantivy 0.27, bm25.rs); b is 0.75 there
_COLUMNS = ("key", "own_link", "parent_link", "timestamp")  # what a hit is made of
_SIGNS = frozenset(r"\.+*?()|[]{}^$#&-~")
"""Of an expression: none of them stands for itself."""
_EVERY = "."  # the one value of a field that all documents have: its frequency counts them, merged away or not


class _View(NamedTuple):
    """What a search sees: replaced as a whole, so that no search sees half of a change."""

    disk: tantivy.Searcher
    fresh: tantivy.Searcher | None
    """Documents that the disk has not yet, in memory; None: there are none."""
    masked: tuple[int, ...]
    """Keys that the disk holds as they were before."""
    number: int
    """No other view of the shelf has it."""

    def parts(self) -> list[tuple[tantivy.Searcher, tuple[int, ...]]]:
        """Return each searcher with the keys that are not to be taken from it."""
        return [(self.disk, self.masked)] + ([(self.fresh, ())] if self.fresh is not None else [])


class _Weighed(NamedTuple):
    """Terms as a view weighs them; holds nothing of the view itself, so that files that were replaced are let go of."""

    view: int
    terms: Sequence[token.Term]
    owner: types.Owner
    reach: float
    """BM25 of a document that had every term endlessly often, pairs left out."""
    scored: list[list[tuple[tantivy.Occur, tantivy.Query]]]
    """The scoring part of a query for each part of the view; empty: it has none of the terms."""

    def is_of(self, view: _View, terms: Sequence[token.Term], owner: types.Owner) -> bool:
        """Whether it is what was asked for."""
        return self.view == view.number and self.terms is terms and self.owner == owner


class Shelf:
    """One Tantivy index and the statistics of its owners.

    Beside the index on disk there may be a few documents in memory (`show`): a commit to the disk takes as long as the
    disk likes, and an edit should be found before that.
    """

    def __init__(self, folder: Path, *, has_pairs: bool) -> None:
        """Open the index in `folder`, made where there is none; its parent exists and its files are whole.

        With `has_pairs` words that stand together in a document are terms of it too.
        """
        self._has_pairs = has_pairs
        folder.mkdir(mode=0o700, exist_ok=True)
        self._schema = _schema()
        self._index = tantivy.Index(self._schema, path=str(folder), reuse=True)
        self._index.config_reader("manual")
        self._index.reload()
        self._view = _View(self._index.searcher(), None, (), 0)
        self._last: _Weighed | None = None  # a search by both looks twice for the same
        self._writer: tantivy.IndexWriter | None = None
        self._fresh: tuple[tantivy.Index, tantivy.IndexWriter] | None = None
        self._written: set[int] = set()  # keys since the last commit
        self._shown: dict[int, tuple[contract.Document, tantivy.Document]] = {}  # as made for `show`, until written
        self.is_dirty = False

    def replace(self, document: contract.Document) -> None:
        """Put a document in the place of the one with its key, if there is one."""
        self.remove(document.key)
        shown, made = self._shown.pop(document.key, (None, None))
        if made is None or shown != document:
            made = _document(document, has_pairs=self._has_pairs)
        self._open_writer().add_document(made)
        self._written.add(document.key)
        self.is_dirty = True

    def remove(self, key: int) -> None:
        """Remove the key if it is there: an index that never saw it is left alone and needs no commit."""
        if key in self._written or self._view.disk.doc_freq("key", key):
            self._open_writer().delete_documents_by_term("key", key)
            self.is_dirty = True

    def show(self, documents: Sequence[contract.Document], masked: Sequence[int]) -> None:
        """Let searches see `documents` now, and not what the disk holds under the keys `masked`, until the next commit."""
        fresh = None
        self._shown = {each.key: (each, _document(each, has_pairs=self._has_pairs)) for each in documents}
        if documents:
            index, writer = self._open_fresh()
            writer.delete_all_documents()
            for _, made in self._shown.values():
                writer.add_document(made)
            writer.commit()
            index.reload()
            fresh = index.searcher()
        self._view = _View(self._view.disk, fresh, tuple(masked), self._view.number + 1)

    def commit(self) -> None:
        """Make what was written durable and visible, if anything was; what was shown before is on disk now."""
        if self.is_dirty:
            self._open_writer().commit()
            self._written.clear()
            self._shown.clear()
            self.is_dirty = False
            self._index.reload()
        elif not self._view.masked and self._view.fresh is None:
            return
        self._view = _View(self._index.searcher(), None, (), self._view.number + 1)

    def drop_writer(self) -> None:
        """Forget what was not committed; after one failure Tantivy's writer refuses everything."""
        self._writer = None
        self._written.clear()
        self._shown.clear()
        self.is_dirty = False

    def count(self) -> int:
        """Return the number of documents that a search can reach."""
        view = self._view
        n_masked = sum(view.disk.doc_freq("key", key) for key in view.masked)
        return view.disk.num_docs - n_masked + (0 if view.fresh is None else view.fresh.num_docs)

    def keys(self) -> set[int]:
        """Return the keys of all documents."""
        found: set[int] = set()
        for searcher, masked in self._view.parts():
            if searcher.num_docs:
                hits = searcher.search(tantivy.Query.all_query(), searcher.num_docs, count=False).hits
                values = searcher.fast_field_values("key", [address for _, address in hits])
                found |= {int(value) for value in values if value is not None} - set(masked)
        return found

    def search(self, terms: Sequence[token.Term], bounds: where.Where, k: int) -> list[contract.Hit]:
        """Return the `k` best documents within the bounds that have one of the terms, best first."""
        view = self._view
        weighed = self._weighed(view, terms, bounds.owner)
        found: list[contract.Hit] = []
        for (searcher, masked), scored in zip(view.parts(), weighed.scored, strict=True):
            if scored and k > 0:
                wanted = (tantivy.Occur.Must, tantivy.Query.boolean_query(scored))
                query = tantivy.Query.boolean_query([*self._conditions(searcher, bounds, masked), wanted])
                found += _hits(searcher, query, k, weighed.reach)
        return found

    def linked(self, terms: Sequence[token.Term], bounds: where.Where, links: Sequence[int]) -> list[contract.Hit]:
        """Return the documents with these own links within the bounds, whether they have one of the terms or not."""
        view = self._view
        if not links:
            return []
        weighed = self._weighed(view, terms, bounds.owner)
        found: list[contract.Hit] = []
        for (searcher, masked), scored in zip(view.parts(), weighed.scored, strict=True):
            if searcher.num_docs:
                wanted = _unscored(self._any_of("own_link", links))
                query = tantivy.Query.boolean_query(
                    [
                        *self._conditions(searcher, bounds, masked),
                        (tantivy.Occur.Must, wanted),
                        *scored,
                    ]
                )
                found += _hits(searcher, query, len(links), weighed.reach)
        return found

    def _weighed(self, view: _View, terms: Sequence[token.Term], owner: types.Owner) -> _Weighed:
        last = self._last
        if last is None or not last.is_of(view, terms, owner):
            known = [term for term in terms if self._has_pairs or not term.is_pair]
            weighed, reach = _weigh(view, known, owner)
            scored = [self._scored(searcher, weighed) for searcher, _ in view.parts()]
            last = self._last = _Weighed(view.number, terms, owner, reach, scored)
        return last

    def _open_writer(self) -> tantivy.IndexWriter:
        if self._writer is None:
            self._writer = self._index.writer(HEAP_BYTES, 1)
        return self._writer

    def _open_fresh(self) -> tuple[tantivy.Index, tantivy.IndexWriter]:
        if self._fresh is None:
            index = tantivy.Index(self._schema)
            index.config_reader("manual")
            self._fresh = index, index.writer(HEAP_BYTES, 1)
        return self._fresh

    def _scored(
        self, searcher: tantivy.Searcher, weighed: Sequence[tuple[float, str]]
    ) -> list[tuple[tantivy.Occur, tantivy.Query]]:
        """Return the scoring part of a query.

        Tantivy weighs by the number of all owners' documents: the boost replaces its factor by ours.
        """
        n_all = _n_slots(searcher)
        queries = []
        for weight, text in weighed:
            n = searcher.doc_freq("words", text)
            if n:
                query = tantivy.Query.term_query(self._schema, "words", text, "freq")
                queries.append((tantivy.Occur.Should, tantivy.Query.boost_query(query, weight / _rarity(n, n_all))))
        return queries

    def _conditions(
        self, searcher: tantivy.Searcher, bounds: where.Where, masked: Sequence[int]
    ) -> list[tuple[tantivy.Occur, tantivy.Query]]:
        scope = self._term("owner", contract.scope(bounds.owner))
        must = [scope, self._any_of("kind", bounds.kinds), self._status(bounds.statuses, bounds.now_us)]
        if bounds.clause != where.All():
            must.append(self._clause(searcher, bounds.clause, scope))
        must += [self._like(searcher, like, scope) for like in bounds.likes]
        conditions = [(tantivy.Occur.Must, _unscored(query)) for query in must]
        if masked:
            conditions.append((tantivy.Occur.MustNot, self._any_of("key", masked)))
        return conditions

    def _status(self, statuses: Sequence[str], now_us: int) -> tantivy.Query:
        """An active entry is an expired one from its `expires_at` on, before anything has written that down."""
        is_over = self._range("expires", None, now_us)
        written = [status for status in statuses if status != "active"]
        choices = [self._any_of("status", written)] if written else []
        active = self._term("status", "active")
        if "active" in statuses and "expired" in statuses:
            choices.append(active)
        elif "active" in statuses:
            choices.append(
                tantivy.Query.boolean_query([(tantivy.Occur.Must, active), (tantivy.Occur.MustNot, is_over)])
            )
        elif "expired" in statuses:
            choices.append(tantivy.Query.boolean_query([(tantivy.Occur.Must, active), (tantivy.Occur.Must, is_over)]))
        return tantivy.Query.boolean_query([(tantivy.Occur.Should, choice) for choice in choices])

    def _clause(self, searcher: tantivy.Searcher, clause: where.Clause, scope: tantivy.Query) -> tantivy.Query:
        match clause:
            case where.Is(field=field, values=values):
                return self._any_of(field, values)
            case where.Compare():
                return self._any_of(clause.field, _compared(searcher, clause, scope))
            case where.During():
                return self._range("timestamp", clause.from_us, clause.to_us)
            case where.Not(part=part):
                inner = self._clause(searcher, part, scope)
                return tantivy.Query.boolean_query(
                    [(tantivy.Occur.Must, tantivy.Query.all_query()), (tantivy.Occur.MustNot, inner)]
                )
            case where.All(parts=parts) | where.Any(parts=parts):
                if not parts:
                    return tantivy.Query.all_query() if isinstance(clause, where.All) else tantivy.Query.empty_query()
                occur = tantivy.Occur.Must if isinstance(clause, where.All) else tantivy.Occur.Should
                return tantivy.Query.boolean_query([(occur, self._clause(searcher, part, scope)) for part in parts])

    def _like(self, searcher: tantivy.Searcher, like: where.Like, scope: tantivy.Query) -> tantivy.Query:
        if like.is_exact:
            return self._term(like.field, like.pattern)
        if len(like.pattern.encode()) <= MAX_REGEX_BYTES and like.pattern.count(where.ANYTHING) <= MAX_WILDCARDS:
            with contextlib.suppress(ValueError):  # more states than Tantivy allows
                return tantivy.Query.regex_query(self._schema, like.field, _regex(like.pattern))
        fits = where.fitting(like.pattern)
        lead = like.pattern.partition(where.ANYTHING)[0]
        known = searcher.terms_with_prefix(like.field, lead, filter_query=scope)
        return self._any_of(like.field, [value for value, _ in known if fits(value)])

    def _term(self, field: str, value: str | int) -> tantivy.Query:
        return tantivy.Query.term_query(self._schema, field, value, "basic")

    def _any_of(self, field: str, values: Sequence[str] | Sequence[int]) -> tantivy.Query:
        if len(values) == 1:
            return self._term(field, values[0])
        if not values:
            return tantivy.Query.empty_query()
        if len(values) > MAX_ALTERNATIVES:
            return tantivy.Query.term_set_query(self._schema, field, values)
        return tantivy.Query.boolean_query([(tantivy.Occur.Should, self._term(field, value)) for value in values])

    def _range(self, field: str, low: int | None, high: int | None) -> tantivy.Query:
        if low is None and high is None:
            return tantivy.Query.all_query()
        return tantivy.Query.range_query(self._schema, field, tantivy.FieldType.Integer, low, high)


def _weigh(view: _View, terms: Sequence[token.Term], owner: types.Owner) -> tuple[list[tuple[float, str]], float]:
    """Weigh each term by its rarity among the owner's documents.

    Returns:
        `(weight, indexed term)` of the terms that the owner has at all, the weightiest first; and the BM25 of a document
        that had every term endlessly often.
    """
    searchers = [searcher for searcher, _ in view.parts()]
    n_own = sum(searcher.doc_freq("owner", contract.scope(owner)) for searcher in searchers)
    if not n_own:
        return [], 1.0
    lead = _lead(owner)
    weighed = []
    reach = 0.0
    for term in terms:
        n = sum(searcher.doc_freq("words", lead + term.text) for searcher in searchers)
        weight = term.weight * _rarity(max(n, 1), n_own + PRIOR_DOCUMENTS)
        if not term.is_pair:
            reach += weight * (_K1 + 1)
        if n:
            weighed.append((weight, lead + term.text))
    weighed.sort(reverse=True)
    return weighed[:MAX_TERMS], reach


def _schema() -> tantivy.Schema:
    builder = tantivy.SchemaBuilder()
    # Signed: deleting by a term of an unsigned field silently deletes nothing (tantivy-py 0.27).
    builder.add_integer_field("key", indexed=True, fast=True)
    builder.add_integer_field("own_link", indexed=True, fast=True)
    builder.add_integer_field("parent_link", fast=True)
    builder.add_integer_field("timestamp", indexed=True, fast=True)
    builder.add_integer_field("expires", indexed=True, fast=True)
    texts = ("every", "owner", "kind", "status", "session_id", "parent_type", "parent_id", "sender_id")
    for name in (*texts, *where.FILINGS):
        builder.add_text_field(name, tokenizer_name="raw", index_option="basic")
    builder.add_text_field("words", tokenizer_name="whitespace", index_option="freq")
    return builder.build()


def _document(source: contract.Document, *, has_pairs: bool) -> tantivy.Document:
    document = tantivy.Document()
    document.add_integer("key", source.key)
    document.add_integer("own_link", contract.link(source.owner, source.entry_id))
    document.add_integer("parent_link", contract.link(source.owner, source.parent_id))
    document.add_integer("timestamp", source.timestamp_us)
    if source.expires_us is not None:
        document.add_integer("expires", source.expires_us)
    document.add_text("every", _EVERY)
    document.add_text("owner", contract.scope(source.owner))
    document.add_text("kind", source.kind)
    document.add_text("status", source.status)
    document.add_text("session_id", source.session_id)
    document.add_text("parent_type", source.parent_type)
    document.add_text("parent_id", source.parent_id)
    for sender in source.sender_ids:
        document.add_text("sender_id", sender)
    for name in where.FILINGS:
        document.add_text(name, getattr(source, name))
    lead = _lead(source.owner)
    title = token.lead_terms(source.title, lead, has_pairs=has_pairs)
    body = token.lead_terms(source.body, lead, has_pairs=has_pairs)
    document.add_text("words", " ".join([*[title] * TITLE_WEIGHT, body]))
    return document


@functools.lru_cache(maxsize=1024)
def _lead(owner: types.Owner) -> str:
    """Return what stands before each term of an owner: 64 bits of a hash, so short that it costs little in a dictionary."""
    digest = hashlib.blake2b(contract.scope(owner).encode(), digest_size=8).digest()
    return base64.urlsafe_b64encode(digest).decode().rstrip("=") + ":"


def _n_slots(searcher: tantivy.Searcher) -> int:
    return searcher.doc_freq("every", _EVERY)


def _rarity(n: int, total: int) -> float:
    """Return the inverse document frequency of BM25 as Tantivy has it: positive even for a term that all have."""
    return math.log(1 + (max(total, n) - n + 0.5) / (n + 0.5))


def _regex(pattern: str) -> str:
    """Return a pattern as an expression of Tantivy's."""
    return "".join(
        "(.|\\n)*" if each == where.ANYTHING else f"\\{each}" if each in _SIGNS else each for each in pattern
    )


def _unscored(query: tantivy.Query) -> tantivy.Query:
    return tantivy.Query.const_score_query(query, 0.0)


def _hits(searcher: tantivy.Searcher, query: tantivy.Query, k: int, reach: float) -> list[contract.Hit]:
    found = searcher.search(query, k, count=False).hits
    addresses = [address for _, address in found]
    columns = [searcher.fast_field_values(field, addresses) for field in _COLUMNS]
    return [
        contract.Hit(
            key=types.EntryKey(int(key)),
            score=_absolute(raw / reach),
            own_link=int(own),
            parent_link=int(parent),
            timestamp_us=int(moment),
        )
        for (raw, _), key, own, parent, moment in zip(found, *columns, strict=True)
        if key is not None and own is not None and parent is not None and moment is not None
    ]


def _absolute(share: float) -> float:
    return min(1.0, max(0.0, share * (1 + CURVE) / (share + CURVE)))


def _compared(searcher: tantivy.Searcher, clause: where.Compare, scope: tantivy.Query) -> list[str]:
    """Return the owner's values of a field that compare as asked: Tantivy has no ranges over text without a fast field."""
    is_so = {"gt": operator.gt, "gte": operator.ge, "lt": operator.lt, "lte": operator.le}[clause.comparison]
    values = [value for value, _ in searcher.terms_with_prefix(clause.field, "", filter_query=scope)]
    return [value for value in values if is_so(value, clause.value) and (value or clause.field != "session_id")]
