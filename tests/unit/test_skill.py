"""Skills: one for each cluster of cases, whatever it is called, and with whatever a person writes into it."""

from __future__ import annotations

import asyncio
import datetime as dt
from collections.abc import AsyncIterator
from pathlib import Path

import hypothesis
import msgspec
import pytest
from hypothesis import strategies

from everosd import clock, config, types
from everosd.api import item
from everosd.engine import strategy
from everosd.intake import skill
from everosd.log import entry, frontmatter, layout
from everosd.models import chat, prompt
from tests import open_root
from tests.chat_stub import ChatStub

HELPER = types.Owner(app="default", project="default", type="agent", id="helper")
SKILLS = "default_app/default_project/agents/helper/skills"
CLUSTER = "cl_00112233aabb"
PROMPTS = Path(skill.__file__).parent / "prompts"


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("../../evil", "evil"),
        ("a/b", "a-b"),
        ("..", ""),
        ("", ""),
        ("  Fix Django  ", "fix-django"),
        ("fix_django", "fix_django"),
        ("C:\\Windows\\system32", "c-windows-system32"),
        ("deploy\n\0now", "deploy-now"),
        ("部署 服务", "部署-服务"),
        ("नमस्ते", "नमस्ते"),
        (".hidden", "hidden"),
        ("CON", "con"),
        ("🚀", ""),
    ],
)
def test_Z02_a_name_from_a_model_is_one_harmless_folder(name: str, expected: str) -> None:
    """No separators, no dots, no control characters; letters and marks of every script."""
    assert expected == skill.slug(name)


def test_I02_names_that_differ_have_folders_that_differ() -> None:
    """Long names equal in their beginning, words that differ by a mark, a blank or an underscore."""
    long = "a" * 50
    pairs = [("fix django", "fix_django"), (f"{long}bcdefghijkl", f"{long}bcdefghijkm"), ("कि", "की")]
    for one, other in pairs:
        assert skill.slug(one) != skill.slug(other)
    assert len(skill.slug("x" * 500)) <= skill.MAX_NAME_CHARS


@hypothesis.given(name=strategies.text(max_size=80))
@hypothesis.settings(max_examples=40)
def test_Z02_no_name_leads_anywhere_else(name: str) -> None:
    """Whatever it is, the path is that of a skill of this agent, and reads back as this name."""
    called = skill.slug(name) or "fallback"
    path = layout.Layout(Path("/root")).path_for(HELPER, "agent_skill", None, name=called)
    assert path.startswith(f"{SKILLS}/skill_")
    assert 7 == len(path.split("/"))
    place = layout.place(path)
    assert place is not None
    assert (HELPER, "agent_skill") == (place.owner, place.kind)


@pytest.mark.parametrize("folder", ["skill_%2E%2E%2Fevil", "skill_..", "skill_", "skill_a%5Cb", "skill_a%00b"])
def test_Z02_a_folder_made_by_hand_whose_name_is_a_path_is_no_skill(folder: str) -> None:
    """Whoever asked for its name would get one that leads elsewhere."""
    assert None is layout.place(types.RelPath(f"{SKILLS}/{folder}/SKILL.md"))
    assert None is not layout.place(types.RelPath(f"{SKILLS}/skill_a%20b/SKILL.md"))


async def test_Z02_a_name_written_by_hand_that_is_a_path_is_not_shown(root: open_root.Root) -> None:
    """The folder's name is, and the file is reported."""
    await root.save(f"{SKILLS}/skill_deploy/SKILL.md", "---\nname: ../../evil\n---\nDo it.\n")
    (row,) = await root.all(HELPER, "agent_skill")
    assert "deploy" == item.Maker(zone=dt.UTC, now_us=0).got_agent_skill(row).name
    (problem,) = root.node.cascade.problems.listing()
    assert "is a path" in problem.reason


# -- the strategy ------------------------------------------------------------------------------------------------------


@pytest.fixture
async def root(tmp_path: Path) -> AsyncIterator[open_root.Root]:
    """An open root."""
    async with open_root.opened(tmp_path) as made:
        yield made


def llm(**values: object) -> config.Llm:
    """Return settings of a model."""
    given = {
        "model": "", "api_key": config.Secret(""), "base_url": "", "timeout_seconds": 10.0, "max_retries": 0,
        "max_concurrent": 4, "max_input_tokens": 4000, "max_output_tokens": 1000, "language": "", "prompts": "",
    }  # fmt: skip
    return msgspec.convert({**given, **values}, config.Llm)


def keeper(root: open_root.Root, model: chat.Chat | None = None) -> skill.Skills:
    """Return the strategy over a root, as after a start."""
    return skill.Skills(
        reader=root.reader,
        pen=root.pen,
        model=model or chat.Chat(llm(), clock.SystemClock()),
        prompts=lambda name: prompt.load(name, (PROMPTS,)),
        time=clock.SystemClock(),
        settled=root.is_settled,
    )


async def work(
    root: open_root.Root, kept: skill.Skills, intent: str, approach: str = "1. build() → ok", quality: float = 0.9,
    cluster_id: str = CLUSTER,
) -> str:  # fmt: skip
    """Have a case join a cluster, and run for it."""
    fields = {
        "owner_id": "helper",
        "session_id": "s_1",
        "timestamp": dt.datetime(2026, 3, 2, tzinfo=dt.UTC).isoformat(),
        "quality_score": str(quality),
    }
    sections = (("TaskIntent", intent), ("Approach", approach))
    (case_id,) = await root.pen.append(HELPER, "agent_case", [entry.Draft(fields=fields, sections=sections)])
    await root.join(HELPER, case_id, cluster_id, "agent_case")
    await root.settled()
    return await kept.run(strategy.Event(topic="case_clustered", owner=HELPER, subject=case_id))


def names(root: open_root.Root) -> list[str]:
    """Return the folders of skills."""
    return sorted(each.name for each in (root.path / SKILLS).glob("*"))


async def test_two_cases_make_a_skill_and_one_does_not(root: open_root.Root) -> None:
    """It has what they share, the best way and every field; memory/get shows it; a third updates it, by the next process."""
    kept = keeper(root)
    assert "1 of the 2 cases" in await work(root, kept, "Deploy billing to staging", "1. push() → failed: no", 0.2)
    assert [] == await asyncio.to_thread(names, root)
    await work(root, kept, "Deploy search to staging", "1. build() → ok\n2. push() → ok", 1.0)
    assert ["skill_deploy-staging"] == await asyncio.to_thread(names, root)
    (row,) = await root.all(HELPER, "agent_skill")
    shown = item.Maker(zone=dt.UTC, now_us=0).got_agent_skill(row)
    assert ("helper", "deploy-staging", "Deploy search to staging") == (shown.agent_id, shown.name, shown.description)
    assert (0.6, 0.4) == (shown.confidence, shown.maturity_score)
    assert 2 == len(shown.source_case_ids)
    assert "1. build() → ok\n2. push() → ok" in shown.content
    keys = list(frontmatter.read(row.raw).values)
    assert [
        "id", "type", "schema_version", "agent_id", "track", "name", "description", "confidence", "maturity_score",
        "source_case_ids", "cluster_id", "created_at", "updated_at",
    ] == keys  # fmt: skip
    assert "skill_00112233aabb" == row.entry_id
    path, before = row.path, await root.text(row.path)
    again = strategy.Event(topic="case_clustered", owner=HELPER, subject=shown.source_case_ids[0])
    assert "already" in await keeper(root).run(again)
    assert before == await root.text(path)
    await work(root, keeper(root), "Deploy mail to staging", "1. new way", 1.0)
    assert ["skill_deploy-staging"] == await asyncio.to_thread(names, root)
    after = await root.text(path)
    assert "1. new way" in after
    assert frontmatter.read(before).values["created_at"] == frontmatter.read(after).values["created_at"]


async def test_skills_of_one_name_have_folders_of_their_own(root: open_root.Root) -> None:
    """Another cluster, or a person, has the name: nobody's skill is overwritten."""
    await root.save(f"{SKILLS}/skill_Deploy-Staging/SKILL.md", "---\nname: mine\n---\nBy hand.\n")
    kept = keeper(root)
    for cluster_id in (CLUSTER, "cl_ffffffffffff"):
        await work(root, kept, "Deploy billing to staging", cluster_id=cluster_id)
        await work(root, kept, "Deploy search to staging", cluster_id=cluster_id)
    assert {"skill_Deploy-Staging", "skill_deploy-staging-2", "skill_deploy-staging-3"} == set(
        await asyncio.to_thread(names, root)
    )
    assert "By hand." in await root.text(f"{SKILLS}/skill_Deploy-Staging/SKILL.md")


async def test_a_persons_edits_are_kept(root: open_root.Root) -> None:
    """What they wrote stays, over restarts; the rest goes on."""
    await work(root, keeper(root), "Deploy billing to staging")
    await work(root, keeper(root), "Deploy search to staging")
    path = f"{SKILLS}/skill_deploy-staging/SKILL.md"
    await root.edit(path, "## Steps", "Ask Mara first!\n\n## Steps")
    await root.edit(path, "confidence:", "owner: mara   # her own\nconfidence:")
    for text in ("Deploy mail to staging", "Deploy wiki to staging"):
        await work(root, keeper(root), text, "1. other way", 1.0)
    after = await root.text(path)
    assert "Ask Mara first!" in after
    assert "other way" not in after
    assert "owner: mara   # her own\n" in after
    assert "description: Deploy wiki to staging" in after
    assert 4 == len(frontmatter.read(after).values["source_case_ids"])  # type: ignore[arg-type]


async def test_a_skill_that_does_not_parse_or_was_deleted_is_left_alone(root: open_root.Root) -> None:
    """Byte for byte, with no second one beside it; and what a person did not want is not made again."""
    await work(root, keeper(root), "Deploy billing to staging")
    await work(root, keeper(root), "Deploy search to staging")
    path = f"{SKILLS}/skill_deploy-staging/SKILL.md"
    await root.edit(path, "name:", "name: [")
    before = await root.text(path)
    assert f"{path}:" in await work(root, keeper(root), "Deploy mail to staging")
    assert before == await root.text(path)
    await asyncio.to_thread((root.path / path).unlink)
    assert "deleted" in await work(root, keeper(root), "Deploy wiki to staging")
    assert ["skill_deploy-staging"] == await asyncio.to_thread(names, root)


# -- with a model ------------------------------------------------------------------------------------------------------


async def test_I06_a_model_renames_a_skill(root: open_root.Root) -> None:
    """The old path is gone, the id is kept, nothing is doubled, and a name that a person gave stays."""
    with ChatStub() as stub:
        model = chat.Chat(llm(model="stub", base_url=stub.url), clock.SystemClock())
        stub.script(skill.PROMPT, {"name": "Staging deploy", "description": "", "content": "1. build"})
        await work(root, keeper(root, model), "Deploy billing to staging")
        await work(root, keeper(root, model), "Deploy search to staging")
        assert ["skill_staging-deploy"] == await asyncio.to_thread(names, root)
        await root.save(f"{SKILLS}/skill_staging-deploy/notes.txt", "mine")
        stub.script(skill.PROMPT, {"name": "../../Release", "description": "", "content": "1. build\n2. deploy"})
        await work(root, keeper(root, model), "Deploy mail to staging")
        assert ["skill_release"] == await asyncio.to_thread(names, root)
        assert "mine" == await root.text(f"{SKILLS}/skill_release/notes.txt")
        (row,) = await root.all(HELPER, "agent_skill")
        assert ("skill_00112233aabb", "release") == (row.entry_id, frontmatter.read(row.raw).values["name"])
        await root.edit(f"{SKILLS}/skill_release/SKILL.md", "name: release", "name: rollout")
        stub.script(skill.PROMPT, {"name": "third", "description": "", "content": "1. build"})
        await work(root, keeper(root, model), "Deploy blog to staging")
        assert ["skill_release"] == await asyncio.to_thread(names, root)
        assert "name: rollout" in await root.text(f"{SKILLS}/skill_release/SKILL.md")
        (again,) = await root.all(HELPER, "agent_skill")
        assert "skill_00112233aabb" == again.entry_id
        await model.close()


async def test_what_the_model_makes_up_is_not_stored(root: open_root.Root) -> None:
    """A procedure with a name and a number out of nowhere gives way to that of the cases."""
    with ChatStub() as stub:
        model = chat.Chat(llm(model="stub", base_url=stub.url), clock.SystemClock())
        stub.script(
            skill.PROMPT, {"name": "", "description": "For Contoso.", "content": "1. Call 555-0199 at Contoso."}
        )
        await work(root, keeper(root, model), "Deploy billing to staging")
        await work(root, keeper(root, model), "Deploy search to staging")
        text = await root.text(f"{SKILLS}/skill_deploy-staging/SKILL.md")
        assert "Contoso" not in text
        assert "## Steps\n1. build() → ok" in text
        await model.close()
