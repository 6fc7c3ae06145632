"""What one replacement of one file will do: collected from everybody who asked, rendered once, described for the journal."""

from __future__ import annotations

import msgspec

from everosd import errors, types
from everosd.log import entry, entry_text, job, layout, parse, render, surgery
from everosd.log import heal as healing
from everosd.log import kind as kinds


class Replacement:
    """The next version of one file, while it is being put together."""

    def __init__(self, parsed: parse.Parsed | None) -> None:
        """Start with the file as it is (None: there is none), nothing asked for yet."""
        self.parsed = parsed
        self.entries = {} if parsed is None else {each.id: each for each in parsed.entries if each.nth == 0}
        self.appended: list[entry.Entry] = []
        self.replaced: dict[str, entry.Entry] = {}
        self.removed: list[str] = []
        self.deprecated = {} if parsed is None else dict(parsed.deprecated)
        self.expunged: set[str] = set()
        """Of those replaced or removed: what nobody is to remember."""
        self.is_adopting = False
        self.stamps: list[str] = [] if parsed is None else [parsed.stamp]
        """What the next stamp has to be later than."""
        self.is_late = False
        """`parsed` is a save into a displaced file, not what is in the file now (`before`)."""
        self.before: parse.Parsed | None = None
        self.verbatim: bytes | None = None
        """A late save that does not parse: it becomes the file as it is, as it would have by its name."""
        self.results: list[tuple[job.Job, object]] = []
        """What each caller gets when it is on disk."""

    def is_empty(self) -> bool:
        """Tell whether nothing would change."""
        return not (
            self.appended
            or self.replaced
            or self.removed
            or self.is_adopting
            or self.is_late
            or self.deprecated != self._deprecated_before()
        )

    def leaves_plain_file(self) -> bool:
        """Tell whether everything in the file has markers afterwards."""
        if self.is_late or (self.parsed is not None and kinds.BY_NAME[self.parsed.place.kind].is_whole_file):
            return False
        return bool(self.appended) or all(each.form != "single" for each in self.entries.values())

    def finish(self) -> None:
        """Tell every caller that it is done."""
        for each, result in self.results:
            each.finish(result)

    def blame(self) -> bool:
        """Fail those callers whose entries cannot be written (a field name that is none, half a surrogate pair).

        Returns:
            Whether there was one.
        """
        found = False
        for each, _ in self.results:
            what = each.what
            ids: tuple[str, ...] = what.ids if isinstance(what, job.Append) else ()
            if isinstance(what, job.Update):
                ids = (what.entry_id,)
            if isinstance(what, job.PutBack):
                ids = (what.entry.id,)
            for made in (*self.appended, *self.replaced.values()):
                try:
                    if made.id in ids:
                        raw(made).encode()
                except ValueError as error:
                    each.fail(error)
                    found = True
        return found

    # -- what callers ask for --------------------------------------------------------------------------------------

    def apply(self, path: types.RelPath, what: job.Update | job.Point | job.Adopt | job.PutBack | job.Take) -> object:
        """Add what one caller asked for; return what they get when it is done.

        Raises:
            errors.NotFound: There is no such file, or no such entry in it.
        """
        if isinstance(what, job.PutBack):
            return self._put_back(what.entry)
        if isinstance(what, job.Take):
            return self._take(what)
        if self.parsed is None:
            message = f"there is no {path}"
            raise errors.NotFound(message)
        if isinstance(what, job.Update):
            return self._update(path, what)
        if isinstance(what, job.Point):
            return self._point(what)
        n_hand = sum(each.form in ("hand", "headed") for each in self.parsed.entries)
        self.is_adopting = self.is_adopting or n_hand > 0
        return n_hand

    def _put_back(self, made: entry.Entry) -> bool:
        if self._standing(made.id) is not None:
            return False
        self.removed = [each for each in self.removed if each != made.id]
        if made.id in self.entries:
            self.replaced[made.id] = made
        else:
            self.appended.append(made)
        return True

    def _take(self, what: job.Take) -> bool:
        each = self._standing(what.entry_id)
        if each is None or what.entry_id not in self.entries or not what.where(each):
            return False
        self.replaced.pop(what.entry_id, None)
        self.removed.append(what.entry_id)
        return True

    def _point(self, what: job.Point) -> tuple[str, ...]:
        pointed = tuple(key for key, successor in what.successors.items() if self._is_meant(key, successor, what.where))
        for key, successor in what.revived.items():
            if not successor or self.deprecated.get(key) == successor:
                self.deprecated.pop(key, None)
        self.deprecated.update((key, what.successors[key]) for key in pointed)
        return pointed

    def _is_meant(self, key: str, successor: str, where: job.Condition | None) -> bool:
        each = self._standing(key)
        return each is not None and (where is None or self.deprecated.get(key) == successor or where(each))

    def _standing(self, key: str) -> entry.Entry | None:
        """Return an entry as it will stand in the file, as far as is known by now."""
        for each in self.appended:
            if each.id == key:
                return each
        return None if key in self.removed else self.replaced.get(key) or self.entries.get(key)

    def _update(self, path: types.RelPath, what: job.Update) -> entry.Entry:
        for at, each in enumerate(self.appended):
            if each.id == what.entry_id:
                self.appended[at] = _changed(each, what.change)
                return self.appended[at]
        old = self.replaced.get(what.entry_id) or self.entries.get(what.entry_id)
        if old is None:
            message = f"{path} has no entry {what.entry_id}"
            raise errors.NotFound(message)
        new = _changed(old, what.change)
        if new is not old:
            self.replaced[what.entry_id] = new
        return new

    def heal(self, kind: str, merged: healing.Healing) -> None:
        """Add what puts a stale save right."""
        self.appended += [entry_text.read(kind, key, text) for key, text in merged.restored.items()]
        for key, text in merged.updated.items():
            self.replaced[key] = entry_text.read(kind, key, text, form=self.entries[key].form)
        self.removed += merged.removed
        self.deprecated |= merged.deprecated
        for key in merged.undeprecated:
            self.deprecated.pop(key, None)

    def expunge(self, change: job.Expunging) -> tuple[str, ...]:
        """Change or take out rows; return the ids of those taken out. What healing puts back is looked at as well."""
        entries = (*(self.parsed.entries if self.parsed is not None else ()), *self.appended)
        changed = change(entries)
        gone = tuple(key for key, new in changed.items() if new is None)
        self.appended = [each for each in self.appended if each.id not in gone]
        self.removed += [key for key in gone if key in self.entries]
        for key in gone:
            self.replaced.pop(key, None)
        for key, new in changed.items():
            if new is not None and key in self.entries:
                self.replaced[key] = msgspec.structs.replace(new, raw="", digest=b"")
        self.expunged.update(changed)
        return gone

    # -- what becomes of it ----------------------------------------------------------------------------------------

    def write(self, stamp: str) -> healing.Write:
        """Describe it for the journal."""
        if self.is_late:
            return self._late_write(stamp)
        return healing.Write(
            stamp=stamp,
            base_stamp="" if self.parsed is None else self.parsed.stamp,
            added={each.id: raw(each) for each in self.appended},
            updated={
                key: healing.Update(before=self.entries[key].raw, after=raw(each))
                for key, each in self.replaced.items()
                if key not in self.expunged
            },
            removed={key: self.entries[key].raw for key in self.removed if key not in self.expunged},
            deprecated=self._pointers(),
        )

    def _late_write(self, stamp: str) -> healing.Write:
        """Describe what a late save does to the file, so that another editor's stale buffer cannot wipe it either."""
        if self.verbatim is not None:
            # What it wiped comes back when a person has mended it: nothing of that is to be on record as removed.
            return healing.Write(stamp=stamp, base_stamp=stamp)
        before: healing.Version = ((), {}) if self.before is None else (self.before.entries, self.before.deprecated)
        kept = [self.replaced.get(key, each) for key, each in self.entries.items() if key not in self.removed]
        after = [msgspec.structs.replace(each, raw=raw(each)) for each in (*kept, *self.appended)]
        return msgspec.structs.replace(
            healing.difference(before, (after, self.deprecated)),
            stamp=stamp,
            base_stamp="" if self.before is None else self.before.stamp,
        )

    def render(self, place: layout.Place, stamp: str) -> bytes:
        """Return the bytes of the new version.

        Raises:
            ValueError: An entry cannot be written: see `blame`.
        """
        if self.verbatim is not None:
            return self.verbatim
        if self.parsed is None:
            return render.new_file(place, self.appended, stamp=stamp)
        pointers = self._pointers()
        return surgery.rewritten(
            self.parsed,
            appended=self.appended,
            replaced=self.replaced,
            deprecated={key: each.after for key, each in pointers.items() if each.after},
            undeprecated=[key for key, each in pointers.items() if not each.after],
            removed=self.removed,
            stamp=stamp,
        )

    def _deprecated_before(self) -> dict[str, str]:
        return {} if self.parsed is None else self.parsed.deprecated

    def _pointers(self) -> dict[str, healing.Pointer]:
        before = self._deprecated_before()
        keys = dict.fromkeys((*before, *self.deprecated))
        return {
            key: healing.Pointer(before=before.get(key, ""), after=self.deprecated.get(key, ""))
            for key in keys
            if before.get(key, "") != self.deprecated.get(key, "")
        }


def _changed(old: entry.Entry, change: job.Change) -> entry.Entry:
    new = change(old)
    parts = (new.fields, new.preamble, new.heading, new.sections)
    if parts == (old.fields, old.preamble, old.heading, old.sections):
        return old
    return msgspec.structs.replace(new, id=old.id, kind=old.kind, form=old.form, nth=old.nth, raw="", digest=b"")


def raw(each: entry.Entry) -> str:
    """Return an entry's own text as it will stand in the file.

    Raises:
        ValueError: It cannot be written.
    """
    return render.whole_text(each) if each.form == "whole" else render.inner_text(each)
