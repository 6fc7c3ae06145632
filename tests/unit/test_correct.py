"""What contradicts what, told by words alone."""

from __future__ import annotations

import pytest

from everosd.intake import contradiction, correct

CONTRADICTIONS = [
    ("Mara: I moved to Berlin last month (2023-04).", "Mara: I live in Munich."),
    ("Mara lives in Berlin now.", "Mara: I live in Munich with my sister."),
    ("Mara: Big news! The boxes are packed. We have moved from Munich to Berlin.", "Mara: Hi. I live in Munich."),
    ("Mara: Big news: I moved to Berlin last week.", "Mara: I live in Munich, right by the river."),
    ("Mara: You know what? Good news, everyone! Last week I finally moved to Berlin.", "Mara: I live in Munich."),
    ("Last week Mara moved to Berlin.", "Mara lives in Munich."),
    ("Mara: I no longer live in Munich.", "Mara lives in Munich."),
    ("Mara moved from Munich to Berlin and no longer lives in Munich.", "Mara lives in Munich."),
    ("Mara: My sister lives in Berlin.", "Mara's sister lives in Munich."),
    ("Mara: I hate coffee.", "Mara: I love coffee."),
    ("I hate mushrooms", "I love mushrooms"),
    ("Mara: I don't drink coffee anymore.", "Mara: I love coffee, I drink it each morning."),
    ("Mara: I gave up coffee.", "Mara: I love coffee."),
    ("Mara: I don't like coffee anymore.", "Mara: I like coffee."),
    ("Mara: My favourite colour is green now.", "Mara: My favourite colour is blue."),
    ("Mara: The deadline is 19 May.", "Mara: The deadline is 12 May."),
    ("Mara: Actually, the meeting with Ben is at 5.", "Mara: The meeting with Ben is at 3."),
    ("Mara: I work for Siemens now.", "Mara: I work at Bosch."),
    ("Mara: I'm married now!", "Mara: I am single."),
    ("Mara: I quit smoking cigarettes.", "Mara: I smoke cigarettes."),
    ("Mara: I have three kids.", "Mara: I have two kids."),
    ("Mara: Hello again. (My profile: I have three kids.)", "Mara: I have two kids."),
    ("Mara: My dog is called Bilbo.", "Mara: My dog is called Frodo."),
    ("Mara: I am not allergic to peanuts.", "Mara: I am allergic to peanuts."),
    ("Mara: I'm not vegetarian anymore, I eat meat.", "Mara: I'm a strict vegetarian."),
    ("Mara: My phone number is 555-1234.", "Mara: My phone number is 555-9876."),
    ("Mara: Ich wohne jetzt in Berlin.", "Mara: Ich wohne in München."),
    ("Mara: Ich bin nach Berlin gezogen.", "Mara: Ich lebe in München."),
    ("Mara: Ich mag keinen Kaffee.", "Mara: Ich mag Kaffee."),
    ("Mara: J'habite maintenant à Paris.", "Mara: J'habite à Lyon."),
    ("Mara: Je déteste le café.", "Mara: J'aime le café."),
    ("Mara: Ahora vivo en Madrid.", "Mara: Vivo en Sevilla."),
    ("Mara: Adesso abito a Roma.", "Mara: Abito a Milano."),
    ("Mara: Agora moro em Lisboa.", "Mara: Moro no Porto."),
    ("Mara: Actually, I no longer work in Leipzig, I work in Halle now.", "Mara: I work as a nurse in Leipzig."),
    ("Actually, I no longer work in Leipzig, I work in Halle now.", "I work as a nurse in Leipzig."),
    ("Mara: Actually, I work in Halle.", "Mara: I work as a nurse in Leipzig."),
    ("Mara: I work in Halle as a nurse.", "Mara: I work in Leipzig as a nurse."),
    ("Mara: I no longer work as a nurse.", "Mara: I work as a nurse in Leipzig."),
    ("Mara: I no longer work as a nurse.", "Mara: I'm a nurse in Leipzig."),
    ("Mara: I don't work as a nurse any more.", "Mara: I work as a nurse in Leipzig."),
    ("Mara: I no longer study in Heidelberg.", "Mara: I study medicine at the University of Heidelberg."),
    (
        "Mara: Actually, the train to Bergen leaves from the south station.",
        "Mara: The train to Bergen leaves at the north station.",
    ),
    ("Mara: Eigentlich, ich arbeite jetzt in Halle.", "Mara: Ich arbeite als Krankenpflegerin in Leipzig."),
    ("Mara: Ich arbeite nicht mehr in Leipzig.", "Mara: Ich arbeite als Krankenpflegerin in Leipzig."),
    ("Mara: Ich bin keine Vegetarierin mehr.", "Mara: Ich bin Vegetarierin."),
    ("Mara: En fait, je ne travaille plus à Lyon.", "Mara: Je travaille comme infirmière à Lyon."),
    ("Mara: En realidad, ya no trabajo en Sevilla.", "Mara: Trabajo en Sevilla."),
    ("Mara: En realidad ahora trabajo en Madrid.", "Mara: Trabajo en Sevilla."),
    ("其实我不再在银行工作了。", "我在银行当程序员。"),
    ("小明: 其实，我不再在银行工作了。", "小明: 我在银行当程序员。"),
    ("小明: 我不再当程序员了。", "小明: 我在银行当程序员。"),
    ("小明: 我不再吃素了。", "小明: 我吃素。"),
    ("小明: 我最喜欢的颜色是绿色。", "小明: 我最喜欢的颜色是蓝色。"),
    ("Mara: I don't smoke any more.", "Mara: I smoke."),
    ("Mara: Actually, I'm allergic to almonds, not peanuts.", "Mara: I'm allergic to peanuts."),
    ("Mara: I am vegan now, not vegetarian.", "Mara: I am vegetarian."),
    ("Mara: I quit my job as a nurse.", "Mara: I work as a nurse."),
    ("Mara: Eigentlich arbeite ich jetzt in Halle.", "Mara: Ich arbeite in Leipzig."),
    ("Mara: Je n'habite plus à Lyon.", "Mara: J'habite à Lyon."),
    ("Mara: In realtà non lavoro più a Milano.", "Mara: Lavoro a Milano come medico."),
    ("Mara: Na verdade, já não trabalho em Lisboa.", "Mara: Trabalho como médica em Lisboa."),
    ("小明: 我搬到上海了。", "小明: 我住在北京。"),
    ("小明：我不喜欢咖啡了。", "小明：我喜欢咖啡。"),
    ("太郎: 今は大阪に住んでいます。", "太郎: 東京に住んでいます。"),
]

COMPATIBLE = [
    (
        "Mara: Look how cute! (shows a picture: a photo of two cats sitting on a wall in a yard)",
        "Mara: This calms me down. (shows a picture: a photo of three cats sitting on walls in a yard)",
    ),
    ("Mara: Look! [Image: two cats are sitting on a wall]", "Mara: Nice. [Image: three cats are sitting on a wall]"),
    ("Mara: I love coffee.", "Mara: I love tea."),
    ("Mara: I bought a red bike.", "Mara: I bought a red car."),
    ("Ben: I live in Berlin.", "Mara: I live in Munich."),
    ("Ben: I hate coffee.", "Mara: I love coffee."),
    ("Mara: My sister lives in Berlin.", "Mara: I live in Munich."),
    ("Mara: He lives in Berlin.", "Mara: I live in Munich."),
    ("Mara: Do you live in Berlin?", "Mara: I live in Munich."),
    ("Mara: I ran 10 km on Tuesday.", "Mara: I ran 5 km on Monday."),
    ("Mara: I saw Ben yesterday (2023-05-07).", "Mara: I saw Ben yesterday (2023-04-02)."),
    ("Mara: My dog is sick.", "Mara: My dog is cute."),
    ("Mara: I live in Munich.", "Mara: I live in Munich with Ben."),
    ("Mara: Thanks, I really love it!", "Mara: I don't know, really."),
    ("Mara: I can't wait to see you!", "Mara: I wait to see you."),
    ("Mara: My brother has two dogs.", "Mara: My sister has three dogs."),
    ("Mara: I work in marketing.", "Mara: I work in Leipzig."),
    ("Mara: I work in Leipzig.", "Mara: I work as a nurse."),
    ("Mara: I work as a nurse in Leipzig.", "Mara: I work in Leipzig."),
    ("Mara: I'm working as a team player.", "Mara: I work as a nurse."),
    ("Mara: Actually, I love tea.", "Mara: I love coffee."),
    ("Mara: Actually, I saw Ben at the market.", "Mara: I met Ben in the park."),
    ("Mara: In fact, I really love hiking in the Alps.", "Mara: I really love hiking in Norway."),
    ("Mara: Actually I think the new coach is great.", "Mara: I think the new teacher is great."),
    ("Mara: I work as a nurse for five years.", "Mara: I work for Charité."),
    ("Mara: I like tea, not too strong.", "Mara: I like strong coffee."),
    ("Mara: My mom works as a teacher.", "Mara: I work as a nurse."),
    ("Mara: Ich habe keine Zeit mehr für das Kino.", "Mara: Ich war mit Ben im Kino und hatte viel Zeit."),
    ("Mara: J'aime plus le thé que le café.", "Mara: J'aime le café."),
    ("小明: 我在家当然开心。", "小明: 我在银行工作。"),
    ("Mara: Ich arbeite in der Pflege.", "Mara: Ich arbeite in Leipzig."),
    ("小明: 其实我当时在银行。", "小明: 我在学校当老师。"),
    ("小明: 我喜欢咖啡。", "小明: 我喜欢茶。"),
    ("", "Mara: I live in Munich."),
    ("...", "!?"),
]


@pytest.mark.parametrize(("later", "earlier"), CONTRADICTIONS)
def test_what_cannot_both_hold_is_a_contradiction(later: str, earlier: str) -> None:
    """A denial, or another value of what has one at a time, said of the same by whoever says it."""
    assert correct.contradicts(later, earlier)


@pytest.mark.parametrize(("later", "earlier"), COMPATIBLE)
def test_what_can_both_hold_is_none(later: str, earlier: str) -> None:
    """Another thing, another person, another day, a question."""
    assert not correct.contradicts(later, earlier)


def test_a_statement_never_contradicts_itself() -> None:
    """Whatever it says."""
    statements = [one for pair in (*CONTRADICTIONS, *COMPATIBLE) for one in pair]
    assert [] == [one for one in statements if correct.contradicts(one, one)]


def test_queries_lead_to_what_is_said_in_other_words() -> None:
    """Somebody who moved has lived elsewhere, which shares no word with it."""
    (asked,) = correct.topics("Mara: I have moved to Bergen.")
    assert {"mara", "live", "wohne"} <= set(asked.split())
    assert () == correct.topics("Mara: What a day!")


def test_no_text_takes_long() -> None:
    """Text without end, without blanks, or of nothing but the words that patterns begin with."""
    for text in (
        "is " * 100_000,
        "name " * 50_000,
        "x" * 500_000,
        "我" * 100_000,
        "a, " * 100_000,
        "not n't " * 50_000,
    ):
        correct.contradicts(f"Mara: {text}", f"Mara: {text} lives in Oslo")


def test_somebody_who_corrects_themselves_is_understood() -> None:
    """Of the facts of one Episode the later one corrects the earlier, among hundreds of others."""
    others = [f"Mara: On day {number} we had soup number {number}." for number in range(300)]
    facts = ["Mara: I live in Munich near the river.", *others, "Mara: I no longer live in Munich near the river."]
    assert {301: (0,)} == contradiction.within(facts)
