"""The text index: BM25 over Tantivy, exact for each owner, with scores in [0, 1].

In: documents of the ledger. Out: keys with scores. Two Tantivy indexes ("shelves") stand side by side, one for long
texts (episodes, memories, …) and one for single statements (facts, foresights): BM25 compares a text's length with the
average, and one average over both would make it meaningless for either.

Each term is stored with a lead that stands for its owner. So a term's document frequency is that of the owner's own
documents, an owner with few documents is searched without walking through those of others, and a query can't even name
a term of another owner. The scope is a condition of the query besides.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import shutil
import threading
import zlib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import msgspec
import tantivy

from everosd import errors, types
from everosd.index import contract, token, where

SCHEMA_VERSION = 1
"""Of the documents and their terms; any change of either makes another one and with it a rebuild.
1: first."""

HEAP_BYTES = 15_000_000
"""Of each shelf's writer: Tantivy's least. A full heap only means one more segment, to be merged later."""

TITLE_WEIGHT = 2
"""A title's terms count as if they stood there this often."""

KEPT_ASIDE = 2
"""Damaged indexes that are kept for a look."""

SHORT_KINDS = frozenset({"atomic_fact", "foresight"})
"""Kinds whose entries are single statements."""

_SCHEMA_FILE = "schema.json"
_K1 = 1.2  # of Tantivy's BM25 (tantivy 0.27, bm25.rs); b is 0.75 there
_PRIOR_DOCUMENTS = 20
"""Imagined documents without any query term beside the owner's own: among three entries, a word that two have would
else weigh next to nothing."""
_CURVE = 1.0
"""Bends the share of the reachable BM25 so that a document with each word once scores about 0.6, not 0.45."""
_MAX_TERMS = 64
"""Terms of a query that are looked up, the rarest first: a pasted page costs no more than a sentence."""
_EVERY = "."  # the one value of a field that all documents have; its frequency counts documents, merged away or not
_FOOTER_MAGIC = 1337  # last four bytes of Tantivy's files (tantivy 0.27, directory/footer.rs)
_IO_WORDS = ("No space left", "Permission denied", "Read-only file system", "Input/output error", "Too many open files",
             "Disk quota exceeded", "Stale file handle", "os error")  # fmt: skip


class Hit(msgspec.Struct, frozen=True, kw_only=True):
    """One document found."""

    key: types.EntryKey
    score: float
    """In [0, 1], comparable between queries and shelves: what BM25 gives of what it could give for this query at most
    (each term there, endlessly often), bent upward. One of several words is weak, each of them once is about 0.6."""
    own_link: int
    """Stands for owner and entry id; what a part of this entry has as its `parent_link`."""
    parent_link: int
    """Stands for owner and parent id."""


class Stats(msgspec.Struct, frozen=True, kw_only=True):
    """Size of the index, for status and for deciding on a compaction."""

    documents: int
    dead: int
    """Replaced or removed documents not merged away yet."""
    segments: int
    size_bytes: int


def link(owner: types.Owner, entry_id: str) -> int:
    """Return the number that stands for an entry of an owner: 62 bits of a hash; 0 for no entry."""
    if not entry_id:
        return 0
    digest = hashlib.blake2b(_scope(owner).encode() + b"\0" + entry_id.encode(), digest_size=8).digest()
    return (int.from_bytes(digest) >> 2) or 1


class TextIndex:
    """Keyword search over the entries of the ledger; implements `contract.Index`.

    `write`, `commit` and `close` take turns under a lock, searches come from any thread at any time and see the last
    commit. All calls block.
    """

    name = "text"

    def __init__(self, folder: Path) -> None:
        """Open the index in `folder`, made where there is none.

        Raises:
            DerivedIndexError: the files are damaged or of another version: set them aside and rebuild.
            IndexUnavailable: they can't be read or written now (permission, I/O): nothing was changed.
        """
        self.folder = folder
        self._lock = threading.Lock()
        with _translated():
            _check_version(folder)
            self._long = _Shelf(folder / "long")
            self._short = _Shelf(folder / "short")
            _write_version(folder)

    def write(self, documents: Iterable[contract.Document], removed: Iterable[types.EntryKey]) -> None:
        """Replace documents by key and remove keys; idempotent; visible and durable after `commit`."""
        with self._lock, _translated(self._drop_writers):
            for key in removed:
                self._long.remove(key)
                self._short.remove(key)
            for document in documents:
                shelf, other = (self._short, self._long) if document.kind in SHORT_KINDS else (self._long, self._short)
                other.remove(document.key)
                shelf.replace(document)

    def commit(self) -> None:
        """Make what was written durable and visible; about 15 ms, nothing where nothing was written.

        Raises:
            IndexUnavailable: the disk refused; everything since the last commit has to be written again.
        """
        with self._lock, _translated(self._drop_writers):
            self._long.commit()
            self._short.commit()

    def search(self, terms: Sequence[token.Term], bounds: where.Where, k: int) -> list[Hit]:
        """Return the `k` best documents within the bounds, best first; equal scores by key, the newest first."""
        with _translated():
            hits = [hit for shelf in self._shelves(bounds.kinds) for hit in shelf.search(terms, bounds, k)]
        hits.sort(key=lambda hit: (-hit.score, -hit.key))
        return hits[:k]

    def score(self, terms: Sequence[token.Term], bounds: where.Where, links: Iterable[int]) -> list[Hit]:
        """Return the entries that these links stand for, as far as they lie within the bounds; score 0 without a term."""
        wanted = [number for number in links if number]
        with _translated():
            return [hit for shelf in self._shelves(bounds.kinds) for hit in shelf.linked(terms, bounds, wanted)]

    def count(self) -> int:
        """Return the number of documents that a search can reach."""
        return self._long.searcher.num_docs + self._short.searcher.num_docs

    def keys(self) -> set[int]:
        """Return the keys of all documents that a search can reach."""
        with _translated():
            return self._long.keys() | self._short.keys()

    def stats(self) -> Stats:
        """Return sizes; walks the folder."""
        shelves = (self._long, self._short)
        return Stats(
            documents=self.count(),
            dead=sum(shelf.n_slots() for shelf in shelves) - self.count(),
            segments=sum(shelf.searcher.num_segments for shelf in shelves),
            size_bytes=_size_bytes(self.folder),
        )

    def close(self) -> None:
        """Release files and threads; what was not committed is dropped."""
        with self._lock:
            self._drop_writers()

    def _drop_writers(self) -> None:
        self._long.drop_writer()
        self._short.drop_writer()

    def _shelves(self, kinds: Iterable[str]) -> list[_Shelf]:
        is_short = {kind in SHORT_KINDS for kind in kinds}
        return [self._short if short else self._long for short in sorted(is_short)]


def open_or_set_aside(folder: Path) -> tuple[TextIndex, bool]:
    """Open the index; a damaged one is renamed to `<folder>.damaged-<n>` and an empty one put in its place.

    Returns:
        The index, and whether it has to be filled again.

    Raises:
        IndexUnavailable: permission, lock or I/O: nothing was renamed or removed.
    """
    try:
        return TextIndex(folder), False
    except errors.DerivedIndexError:
        set_aside(folder)
        return TextIndex(folder), True


def set_aside(folder: Path) -> Path:
    """Rename a damaged index so that it can be looked at; only the last `KEPT_ASIDE` are kept."""
    numbers = sorted(
        int(number) for path in folder.parent.glob(f"{folder.name}.damaged-*") if (number := path.name.rpartition("-")[2]).isdigit()
    )
    target = folder.with_name(f"{folder.name}.damaged-{numbers[-1] + 1 if numbers else 1}")
    with _translated():
        folder.rename(target)
    for number in numbers[: max(0, len(numbers) + 1 - KEPT_ASIDE)]:
        shutil.rmtree(folder.with_name(f"{folder.name}.damaged-{number}"), ignore_errors=True)
    return target


class _Shelf:
    """One Tantivy index and the statistics of its owners."""

    def __init__(self, folder: Path) -> None:
        _check_files(folder)
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._schema = _schema()
        self._index = tantivy.Index(self._schema, path=str(folder), reuse=True)
        self._index.config_reader("manual")
        self._index.reload()
        self.searcher = self._index.searcher()
        self._writer: tantivy.IndexWriter | None = None
        self._written: set[int] = set()  # keys since the last commit
        self._is_dirty = False

    def replace(self, document: contract.Document) -> None:
        self.remove(document.key)
        self._open_writer().add_document(_document(document))
        self._written.add(document.key)
        self._is_dirty = True

    def remove(self, key: int) -> None:
        """Remove the key if it is there: an index that never saw it is left alone and needs no commit."""
        if key in self._written or self.searcher.doc_freq("key", key):
            self._open_writer().delete_documents_by_term("key", key)
            self._is_dirty = True

    def commit(self) -> None:
        if not self._is_dirty:
            return
        self._open_writer().commit()
        self._written.clear()
        self._is_dirty = False
        self._index.reload()
        self.searcher = self._index.searcher()

    def drop_writer(self) -> None:
        self._writer = None
        self._written.clear()
        self._is_dirty = False

    def keys(self) -> set[int]:
        searcher = self.searcher
        if not searcher.num_docs:
            return set()
        found = searcher.search(tantivy.Query.all_query(), searcher.num_docs, count=False).hits
        values = searcher.fast_field_values("key", [address for _, address in found])
        return {int(value) for value in values if value is not None}

    def n_slots(self) -> int:
        return self.searcher.doc_freq("every", _EVERY)

    def search(self, terms: Sequence[token.Term], bounds: where.Where, k: int) -> list[Hit]:
        searcher = self.searcher
        scored = self._scored(searcher, terms, bounds.owner)
        if not scored.queries or k <= 0:
            return []
        query = tantivy.Query.boolean_query(
            [*self._conditions(searcher, bounds), (tantivy.Occur.Must, tantivy.Query.boolean_query(scored.queries))]
        )
        return _hits(searcher, query, k, scored.reach)

    def linked(self, terms: Sequence[token.Term], bounds: where.Where, links: Sequence[int]) -> list[Hit]:
        searcher = self.searcher
        if not links or not searcher.num_docs:
            return []
        scored = self._scored(searcher, terms, bounds.owner)
        wanted = tantivy.Query.term_set_query(self._schema, "own_link", links)
        query = tantivy.Query.boolean_query([*self._conditions(searcher, bounds), (tantivy.Occur.Must, _unscored(wanted)), *scored.queries])
        return _hits(searcher, query, len(links), scored.reach)

    def _open_writer(self) -> tantivy.IndexWriter:
        if self._writer is None:
            self._writer = self._index.writer(HEAP_BYTES, 1)
        return self._writer

    def _scored(self, searcher: tantivy.Searcher, terms: Sequence[token.Term], owner: types.Owner) -> _Scored:
        """Weigh each term by its rarity among the owner's documents.

        Tantivy weighs by the number of all owners' documents: the boost replaces its factor by ours.
        """
        n_own, n_all = searcher.doc_freq("scope", _scope(owner)), self.n_slots()
        if not n_own:
            return _Scored(queries=[], reach=1.0)
        lead = _lead(owner)
        weighed = [
            (term.weight * _rarity(max(n, 1), n_own + _PRIOR_DOCUMENTS), n, lead + term.text)
            for term in terms
            for n in (searcher.doc_freq("words", lead + term.text),)
        ]
        weighed = sorted(weighed, reverse=True)[:_MAX_TERMS]
        queries = [
            (
                tantivy.Occur.Should,
                tantivy.Query.boost_query(
                    tantivy.Query.term_query(self._schema, "words", text, "freq"), weight / _rarity(n, n_all)
                ),
            )
            for weight, n, text in weighed
            if n
        ]
        return _Scored(queries=queries, reach=sum(weight for weight, _, _ in weighed) * (_K1 + 1))

    def _conditions(self, searcher: tantivy.Searcher, bounds: where.Where) -> list[tuple[tantivy.Occur, tantivy.Query]]:
        scope = self._term("scope", _scope(bounds.owner))
        must = [scope, self._any_of("kind", bounds.kinds), self._any_of("status", bounds.statuses)]
        if bounds.clause != where.All():
            must.append(self._clause(searcher, bounds.clause, scope))
        conditions = [(tantivy.Occur.Must, _unscored(query)) for query in must]
        if "expired" not in bounds.statuses:
            conditions.append((tantivy.Occur.MustNot, self._range("expires", None, bounds.now_us)))
        return conditions

    def _clause(self, searcher: tantivy.Searcher, clause: where.Clause, scope: tantivy.Query) -> tantivy.Query:
        match clause:
            case where.Is(field=field, values=values):
                return self._any_of(field, values)
            case where.Compare():
                return self._any_of(clause.field, _compared(searcher, clause, scope))
            case where.During(from_us=from_us, to_us=to_us):
                return self._range("timestamp", from_us, to_us)
            case where.Not(part=part):
                inner = self._clause(searcher, part, scope)
                return tantivy.Query.boolean_query([(tantivy.Occur.Must, tantivy.Query.all_query()), (tantivy.Occur.MustNot, inner)])
            case where.All(parts=parts) | where.Any(parts=parts):
                if not parts:
                    return tantivy.Query.all_query() if isinstance(clause, where.All) else tantivy.Query.empty_query()
                occur = tantivy.Occur.Must if isinstance(clause, where.All) else tantivy.Occur.Should
                return tantivy.Query.boolean_query([(occur, self._clause(searcher, part, scope)) for part in parts])

    def _term(self, field: str, value: str) -> tantivy.Query:
        return tantivy.Query.term_query(self._schema, field, value, "basic")

    def _any_of(self, field: str, values: Sequence[str]) -> tantivy.Query:
        if len(values) == 1:
            return self._term(field, values[0])
        return tantivy.Query.term_set_query(self._schema, field, values) if values else tantivy.Query.empty_query()

    def _range(self, field: str, low: int | None, high: int | None) -> tantivy.Query:
        if low is None and high is None:
            return tantivy.Query.all_query()
        return tantivy.Query.range_query(self._schema, field, tantivy.FieldType.Integer, low, high)


class _Scored(msgspec.Struct, frozen=True, kw_only=True):
    """The scoring part of a query."""

    queries: list[tuple[tantivy.Occur, tantivy.Query]]
    """Of the terms that the owner has at all."""
    reach: float
    """BM25 of a document that had every term endlessly often."""


def _schema() -> tantivy.Schema:
    builder = tantivy.SchemaBuilder()
    # Signed: deleting by a term of an unsigned field silently deletes nothing (tantivy-py 0.27).
    builder.add_integer_field("key", indexed=True, fast=True)
    builder.add_integer_field("own_link", indexed=True, fast=True)
    builder.add_integer_field("parent_link", fast=True)
    builder.add_integer_field("timestamp", indexed=True, fast=True)
    builder.add_integer_field("expires", indexed=True, fast=True)
    for name in ("every", "scope", "kind", "status", "session_id", "parent_type", "parent_id", "sender_id"):
        builder.add_text_field(name, tokenizer_name="raw", index_option="basic")
    builder.add_text_field("words", tokenizer_name="whitespace", index_option="freq")
    return builder.build()


def _document(source: contract.Document) -> tantivy.Document:
    document = tantivy.Document()
    document.add_integer("key", source.key)
    document.add_integer("own_link", link(source.owner, source.entry_id))
    document.add_integer("parent_link", link(source.owner, source.parent_id))
    document.add_integer("timestamp", source.timestamp_us)
    if source.expires_us is not None:
        document.add_integer("expires", source.expires_us)
    document.add_text("every", _EVERY)
    document.add_text("scope", _scope(source.owner))
    document.add_text("kind", source.kind)
    document.add_text("status", source.status)
    document.add_text("session_id", source.session_id)
    document.add_text("parent_type", source.parent_type)
    document.add_text("parent_id", source.parent_id)
    for sender in source.sender_ids:
        document.add_text("sender_id", sender)
    lead = _lead(source.owner)
    title = token.lead_terms(source.title, lead)
    document.add_text("words", " ".join([*[title] * TITLE_WEIGHT, token.lead_terms(source.body, lead)]))
    return document


def _scope(owner: types.Owner) -> str:
    return json.dumps([owner.app, owner.project, owner.type, owner.id], ensure_ascii=False)


def _lead(owner: types.Owner) -> str:
    """Return what stands before each term of an owner: 64 bits of a hash, so short that it costs little in a dictionary."""
    return hashlib.blake2b(_scope(owner).encode(), digest_size=8).hexdigest() + ":"


def _rarity(n: int, total: int) -> float:
    """Return the inverse document frequency of BM25 as Tantivy has it: positive even for a term that all have."""
    return math.log(1 + (max(total, n) - n + 0.5) / (n + 0.5))


def _unscored(query: tantivy.Query) -> tantivy.Query:
    return tantivy.Query.const_score_query(query, 0.0)


def _hits(searcher: tantivy.Searcher, query: tantivy.Query, k: int, reach: float) -> list[Hit]:
    found = searcher.search(query, k, count=False).hits
    addresses = [address for _, address in found]
    columns = [searcher.fast_field_values(field, addresses) for field in ("key", "own_link", "parent_link")]
    return [
        Hit(key=types.EntryKey(int(key)), score=_absolute(raw / reach), own_link=int(own), parent_link=int(parent))
        for (raw, _), key, own, parent in zip(found, *columns, strict=True)
        if key is not None and own is not None and parent is not None
    ]


def _absolute(share: float) -> float:
    return min(1.0, max(0.0, share * (1 + _CURVE) / (share + _CURVE)))


def _compared(searcher: tantivy.Searcher, clause: where.Compare, scope: tantivy.Query) -> list[str]:
    """Return the owner's values of a field that compare as asked: Tantivy has no ranges over text without a fast field."""
    values = [value for value, _ in searcher.terms_with_prefix(clause.field, "", filter_query=scope)]
    tests = {
        "gt": lambda value: value > clause.value,
        "gte": lambda value: value >= clause.value,
        "lt": lambda value: value < clause.value,
        "lte": lambda value: value <= clause.value,
    }
    test = tests[clause.comparison]
    return [value for value in values if test(value) and (value or clause.field != "session_id")]


def _check_version(folder: Path) -> None:
    try:
        found = json.loads((folder / _SCHEMA_FILE).read_bytes())
        version = found["schema"]
    except FileNotFoundError:
        if folder.is_dir() and any(folder.iterdir()):
            raise errors.DerivedIndexError(TextIndex.name, f"{_SCHEMA_FILE} is missing") from None
        return
    except (ValueError, TypeError, KeyError) as error:
        raise errors.DerivedIndexError(TextIndex.name, f"{_SCHEMA_FILE} is damaged") from error
    if version != SCHEMA_VERSION:
        raise errors.DerivedIndexError(TextIndex.name, f"it has schema {version}, this everosd writes {SCHEMA_VERSION}")


def _write_version(folder: Path) -> None:
    """Written last: a start that was cut off before it leaves an index that is set aside and made again."""
    path = folder / _SCHEMA_FILE
    if not path.exists():
        path.write_text(json.dumps({"schema": SCHEMA_VERSION}))
        path.chmod(0o600)


def _check_files(folder: Path) -> None:
    """Compare every file that the index names with its checksum: Tantivy would fail, or answer nonsense, much later."""
    try:
        meta = json.loads((folder / "meta.json").read_bytes())
    except FileNotFoundError:
        if folder.is_dir() and any(folder.iterdir()):
            raise errors.DerivedIndexError(TextIndex.name, f"{folder.name}/meta.json is missing") from None
        return
    except ValueError as error:
        raise errors.DerivedIndexError(TextIndex.name, f"{folder.name}/meta.json is damaged") from error
    try:
        segments = [(segment["segment_id"].replace("-", ""), segment["deletes"]) for segment in meta["segments"]]
        names = [f"{stem}.{suffix}" for stem, _ in segments for suffix in ("term", "idx", "pos", "store", "fast", "fieldnorm")]
        names += [f"{stem}.{deletes['opstamp']}.del" for stem, deletes in segments if deletes]
    except (TypeError, KeyError, AttributeError) as error:
        raise errors.DerivedIndexError(TextIndex.name, f"{folder.name}/meta.json is damaged") from error
    for name in names:
        _check_file(folder / name)


def _check_file(path: Path) -> None:
    try:
        data = memoryview(path.read_bytes())
    except FileNotFoundError:
        raise errors.DerivedIndexError(TextIndex.name, f"{path.name} is missing") from None
    try:
        length, magic = int.from_bytes(data[-8:-4], "little"), int.from_bytes(data[-4:], "little")
        footer = json.loads(bytes(data[len(data) - 8 - length : -8])) if magic == _FOOTER_MAGIC else {}
        is_whole = footer["crc"] == zlib.crc32(data[: len(data) - 8 - length])
    except (ValueError, KeyError, TypeError):
        is_whole = False
    if not is_whole:
        raise errors.DerivedIndexError(TextIndex.name, f"{path.name} is damaged")


def _size_bytes(folder: Path) -> int:
    total = 0
    for path in folder.rglob("*"):
        with contextlib.suppress(FileNotFoundError):  # merged away meanwhile
            total += path.stat().st_size
    return total


@contextlib.contextmanager
def _translated(on_failure: object = None) -> Iterator[None]:
    """Turn what Tantivy and the disk raise into our errors; a panic in Rust is no Exception and would end the daemon.

    After a failure the writers are dropped: Tantivy's refuse everything once one commit failed.
    """
    try:
        yield
    except errors.EverosdError:
        raise
    except OSError as error:
        if callable(on_failure):
            on_failure()
        raise errors.IndexUnavailable(TextIndex.name, str(error)) from error
    except BaseException as error:
        is_panic = type(error).__name__ == "PanicException"
        if not is_panic and not isinstance(error, Exception):
            raise
        if callable(on_failure):
            on_failure()
        reason = str(error)
        if any(word in reason for word in _IO_WORDS):
            raise errors.IndexUnavailable(TextIndex.name, reason) from error
        raise errors.DerivedIndexError(TextIndex.name, reason) from error
