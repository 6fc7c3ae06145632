"""A notes folder as people really have them: hand-written headings, broken files, leftovers, odd names, many scripts.

Each file brings what must be true of it afterwards: probes (a query and how many entries it must find) and problems
(paths that status must name).
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from bench import text

OWNER = "mara"
OTHER = "tomas@example.org"
USERS = "default_app/default_project/users"
EPISODES = f"{USERS}/{OWNER}/episodes"


class Probe(msgspec.Struct, frozen=True, kw_only=True):
    """A query and what it must find."""

    query: str
    user: str = OWNER
    n_hits: int = 1
    """How many entries hold the query's text: 0 where it must not be found at all."""
    why: str
    """What the file is, for the message of a failing test."""


class Problem(msgspec.Struct, frozen=True, kw_only=True):
    """A path that status must list, and as what."""

    path: str
    kinds: tuple[str, ...]
    """The kinds of problem that are right for it (`cascade.status.FileProblem.kind`)."""


class Notes(msgspec.Struct, frozen=True, kw_only=True):
    """What was written."""

    probes: tuple[Probe, ...]
    problems: tuple[Problem, ...]
    outside: str
    """A folder beside the root that a link in it leads to."""


class _Folder:
    """Collects files, probes and problems while the folder is described."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.probes: list[Probe] = []
        self.problems: list[Problem] = []

    def add(self, path: str, content: str | bytes, *probes: Probe, problem: tuple[str, ...] = ()) -> None:
        self.files[path] = content if isinstance(content, bytes) else content.encode()
        self.probes += probes
        if problem:
            self.problems.append(Problem(path=path, kinds=problem))


def write(root: Path) -> Notes:
    """Write the folder below `root`, whole files one after the other, as a copy of it would arrive."""
    folder = _Folder()
    for part in (_by_hand, _daily_logs, _frontmatters, _bytes, _leftovers, _names, _scripts, _other_places):
        part(folder)
    for path, data in folder.files.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_bytes(data)
    outside = root.parent / f"{root.name}-outside"
    outside.mkdir(exist_ok=True)
    (outside / "2026-08-01.md").write_text("## Elsewhere\nA word from outside: quoakwort.\n", encoding="utf-8")
    (root / EPISODES / "linked").symlink_to(outside, target_is_directory=True)
    folder.problems.append(Problem(path=f"{EPISODES}/linked", kinds=("link",)))
    folder.probes.append(Probe(query="quoakwort", n_hits=0, why="a link that leaves the root"))
    return Notes(probes=tuple(folder.probes), problems=tuple(folder.problems), outside=str(outside))


def expectations(notes: Notes) -> tuple[tuple[str, str, int, str], ...]:
    """Return (user, query, hits, why) of all probes, in the order of writing."""
    return tuple((probe.user, probe.query, probe.n_hits, probe.why) for probe in notes.probes)


def _entry(entry_id: str, body: str, *, subject: str = "A day", is_closed: bool = True) -> str:
    close = f"<!-- /entry:{entry_id} -->\n" if is_closed else ""
    return (
        f"<!-- entry:{entry_id} -->\n## {entry_id}\n\n**owner_id**: {OWNER}\n**session_id**: s_1\n"
        f"**timestamp**: 2026-03-02T08:00:00+00:00\n\n### Subject\n{subject}\n\n### Content\n{body}\n{close}"
    )


def _head(date: str, *more: str) -> str:
    lines = "".join(f"{line}\n" for line in more)
    return (
        f"---\nid: episode_log_{OWNER}_{date}\ntype: episode_daily\nschema_version: 1\nuser_id: {OWNER}\n"
        f"track: user\ndate: '{date}'\n{lines}---\n"
    )


def _by_hand(folder: _Folder) -> None:
    """Headings and paragraphs without any marker."""
    folder.add(
        f"{EPISODES}/2026-03-05.md",
        "# Thursday\n\nWoke before the alarm, wrote the quallmond letter.\n\n## Morning\nBread, then the quimbrel bus.\n"
        "\n- [ ] call the plumber\n- [x] feed Pistachio\n\n## Evening\n\n| what | cost |\n|---|---|\n| quostel lamp | 12 |\n",
        Probe(query="quallmond", why="a paragraph under a lone title"),
        Probe(query="quimbrel", why="a block under a heading"),
        Probe(query="quostel", why="a table under a heading"),
    )
    folder.add(
        f"{EPISODES}/2026-03-06.md",
        "## Notes\nfirst quarnfold\n\n## Notes\nsecond quarnfold\n\n## Notes\nthird quarnfold\n",
        Probe(query="quarnfold", n_hits=3, why="three blocks under the same heading"),
    )
    folder.add(
        f"{EPISODES}/Trip to Lisbon.md",
        "## Packing\nThe quendal hat, two shirts.\n",
        Probe(query="quendal", why="a file without any date"),
    )
    folder.add(
        f"{EPISODES}/2026/04/2026-04-11 garden.md",
        "Planted the quizzelberry by the fence.\n",
        Probe(query="quizzelberry", why="a plain paragraph two folders down"),
    )
    folder.add(
        f"{EPISODES}/2026-04-14.md",
        "## How the log looks\nFor the record:\n\n````markdown\n---\ndate: none\n---\n<!-- entry:ep_20260414_00000001 -->\n"
        "## ep_20260414_00000001\nquothfence inside\n<!-- /entry:ep_20260414_00000001 -->\n````\n\nand quafter the fence.\n",
        Probe(query="quothfence", why="a fenced example of the grammar is text of its block"),
        Probe(query="quafter", why="what follows a fence"),
    )


def _daily_logs(folder: _Folder) -> None:
    """Files in EverOS's shape that somebody has been at."""
    logged = "".join(_entry(f"ep_20260302_{n:08d}", f"Number {n} of the quennel day.") for n in range(1, 4))
    folder.add(
        f"{EPISODES}/episode-2026-03-02.md",
        _head("2026-03-02") + logged.replace("<!-- entry:ep_20260302_00000002 -->", "Quinterlude, by hand.\n\n<!-- entry:ep_20260302_00000002 -->", 1),
        Probe(query="quennel", n_hits=3, why="a daily log of three"),
        Probe(query="quinterlude", why="a paragraph between two entries"),
    )  # fmt: skip
    open_one = "".join(_entry(f"ep_20260303_{n:08d}", f"Quopen number {n}.", is_closed=n != 3) for n in range(1, 6))
    folder.add(
        f"{EPISODES}/episode-2026-03-03.md",
        _head("2026-03-03") + open_one,
        Probe(query="quopen", n_hits=5, why="five entries, one closing marker lost"),
        problem=("warning",),
    )
    twice = _entry("ep_20260307_00000001", "The quouble entry.")
    folder.add(f"{EPISODES}/episode-2026-03-07.md", _head("2026-03-07") + twice)
    folder.add(
        f"{EPISODES}/old copy of 2026-03-07.md",
        _head("2026-03-07") + twice,
        Probe(query="quouble", why="a copied file with the same ids"),
        problem=("duplicate",),
    )
    folder.add(
        f"{EPISODES}/episode-2026-10-11.md",
        f"---\nid: ep_20261011_0042\nowner_id: {OWNER}\ntimestamp: 2026-10-11T02:00:00+00:00\nparent_type: cluster\n"
        "parent_id: cl_a1b2c3d4e5f6\n---\n## Subject\nThe ferry saga\n\n## Content\nShe missed the querry twice.\n",
        Probe(query="querry", why="the single-entry form"),
    )


def _frontmatters(folder: _Folder) -> None:
    """YAML as note programs and people leave it."""
    folder.add(
        f"{EPISODES}/garden ideas.md",
        "---\ntags: [garden, wishes]\naliases:\n  - beds\ndate: 2026-04-12\ncssclass: wide\n---\n\n## Beds\nA quorange trellis.\n",
        Probe(query="quorange", why="frontmatter of a note program"),
    )
    folder.add(
        f"{EPISODES}/2026-04-13 broken.md",
        "---\ntitle: *x*\npath: `C:\\new`\n- [[a]]b\n---\n" + _entry("ep_20260413_00000001", "Quroken but marked."),
        Probe(query="quroken", why="a marked entry under YAML that does not parse"),
        problem=("error",),
    )
    folder.add(
        f"{EPISODES}/2026-04-15 rule.md",
        "---\nA rule as first line, and no second one: who would have thought\n\n- [[link]]s: and `C:\\more`\n",
        problem=("error", "warning"),
    )
    folder.add(f"{EPISODES}/2026-04-16.md", "")
    folder.add(f"{EPISODES}/2026-04-17.md", "---\ndate: 2026-04-17\n---\n")
    folder.add(f"{EPISODES}/2026-04-18.md", "\n \n\t\n")


def _bytes(folder: _Folder) -> None:
    """Encodings and bytes that are not what they should be."""
    folder.add(
        f"{EPISODES}/2026-05-01.md",
        b"\xef\xbb\xbf---\r\ndate: 2026-05-01\r\n---\r\n## Caf\xc3\xa9\r\nThe quombom table.\r\n\r\nBy the window.\r\n",
        Probe(query="quombom", why="a byte order mark and CRLF"),
    )
    folder.add(
        f"{EPISODES}/2026-05-02.md",
        "## Wide\nquixteen bits\n".encode("utf-16"),
        Probe(query="quixteen", n_hits=0, why="UTF-16 is refused, not guessed"),
        problem=("error",),
    )
    bad = _entry("ep_20260503_00000001", "Quealthy one.") + _entry("ep_20260503_00000002", "Quealthy too.")
    folder.add(
        f"{EPISODES}/episode-2026-05-03.md",
        (_head("2026-05-03") + bad + _entry("ep_20260503_00000003", "bad @@ byte"))
        .encode()
        .replace(b"@@", b"\xff\xfe"),
        Probe(query="quealthy", n_hits=2, why="entries beside one with a byte that is not UTF-8"),
        problem=("error", "warning"),
    )
    long_line = "山" * 70_000 + "末尾仍可檢索" + "."
    folder.add(
        f"{EPISODES}/2026-05-04.md",
        f"## A long line\n{long_line}\n",
        Probe(query="末尾仍可檢索", why="the tail of 200 KB in one line"),
    )


def _leftovers(folder: _Folder) -> None:
    """What editors and synchronisers leave beside the real files."""
    for name, word in (
        ("2026-03-05.sync-conflict-20260310-101010-ABCDEF7.md", "quonflicta"),
        ("2026-03-05 (conflicted copy 2026-03-09).md", "quonflictb"),
    ):
        folder.add(
            f"{EPISODES}/{name}",
            f"## Morning\nBread, then the {word}.\n",
            Probe(query=word, n_hits=0, why="a conflict copy"),
            problem=("conflict",),
        )
    for name in (
        ".2026-03-05.md.swp", "2026-03-05.md~", ".#2026-03-05.md", "#2026-03-05.md#", "4913", ".2026-03-05.md.tmp.4f",
        "2026-03-05.md.tmp.1", ".trash/2026-03-05.md",
    ):  # fmt: skip
        folder.add(f"{EPISODES}/{name}", "## Morning\nquleftover\n")
    folder.probes.append(Probe(query="quleftover", n_hits=0, why="editor leftovers and trash"))
    folder.add(f"{USERS}/{OWNER}/.obsidian/workspace.json", '{"main": "quleftover"}')
    folder.add(f"{EPISODES}/attachments/cat.png", b"\x89PNG\r\n\x1a\n\x00quleftover")


def _names(folder: _Folder) -> None:
    """File names that people choose."""
    for number, name in enumerate(
        (
            "日記 2026-06-01.md", "note's \"quoted\" #1 [draft] 2026-06-02.md", "🐈 2026-06-03.md", "-dash 2026-06-04.md",
            "100%20 2026-06-05.md", "two\nlines 2026-06-06.md", "ÅÄÖ 2026-06-07.md", "x" * 230 + ".md", "Über.md",
            "semi;colon & $HOME `id` 2026-06-08.md",
        )
    ):  # fmt: skip
        word = text.word(900_000 + number)
        folder.add(
            f"{EPISODES}/{name}", f"## Named\nHere {word} is.\n", Probe(query=word, why=f"a file called {name[:40]!r}")
        )


def _scripts(folder: _Folder) -> None:
    """One block in each of several scripts."""
    blocks = {
        "把機器推論洗成權威事實": "權威事實",
        "昨日は京都で桜を見ました": "桜を見",
        "어제 한강에서 자전거를 탔다": "자전거",
        "เมื่อวานไปตลาดน้ำกับแม่": "ตลาดน้ำ",
        "कल हमने नदी के किनारे चाय पी": "किनारे",
        "زرنا المتحف الوطني صباحا": "المتحف",
        "Вчера мы чинили велосипед": "велосипед",
        "Χθες φύτεψα βασιλικό": "βασιλικό",
        "אתמול אפינו לחם שיפון": "שיפון",
        "Gestern Zwölfkämpfer gegrüßt": "zwölfkämpfer",
    }
    body = "".join(f"## Block {number}\n{line}\n\n" for number, line in enumerate(blocks))
    folder.add(
        f"{EPISODES}/2026-07-01.md",
        body,
        *(Probe(query=query, why=f"text like {query}") for query in blocks.values()),
    )
    folder.add(
        f"{EPISODES}/2026-07-02.md",
        "## Machine words\nVersion 1.5.1 of foo_barette, mail quill@example.org, see https://example.org/qa?b=1\n",
        Probe(query="foo_barette", why="a name with an underscore"),
        Probe(query="quill@example.org", why="a mail address"),
    )


def _other_places(folder: _Folder) -> None:
    """Other kinds, and another person with the same words."""
    folder.add(
        f"{USERS}/{OWNER}/memories/projects/atlas/semantic-2026-07-03.md",
        "## Decision\nThe quatlas project keeps its index in one file.\n",
        Probe(query="quatlas", why="a typed memory by hand"),
    )
    folder.add(
        f"{USERS}/{OTHER}/episodes/2026-03-05.md",
        "## Morning\nTomas took the quimbrel bus too, and the quotomas tram.\n",
        Probe(query="quotomas", user=OTHER, why="a person whose id is a mail address"),
        Probe(query="quotomas", n_hits=0, why="another person's words"),
    )
    folder.add(
        f"{USERS}/{OWNER}/user.md",
        f"---\nid: profile_{OWNER}\ntype: user_profile\nuser_id: {OWNER}\nsummary: Likes boats.\n---\nLikes boats.\n",
    )
