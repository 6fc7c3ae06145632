"""Sentences of our own for made-up memory: varied enough that an index of them behaves like one of real talk."""

from __future__ import annotations

import random

NAMES = ("Mara", "Tomas", "Ines", "Kofi", "Yuki", "Björn", "Leila", "Oskar", "Priya", "Anselm", "Ruth", "Dario")
PLACES = (
    "the harbour", "the old mill", "Lisbon", "the allotment", "Rotterdam", "the lake house", "Kraków", "the workshop",
    "the tram depot", "Bergen", "the roof terrace", "the night market", "Aarhus", "the botanical garden", "Porto",
)  # fmt: skip
THINGS = (
    "a cedar canoe", "the sourdough starter", "a second-hand cello", "the greenhouse heater", "the tax letter",
    "a bicycle with a bent fork", "the beehive", "the kiln", "a chess clock", "the rain barrel", "a brass telescope",
    "the staging database", "the tomato seedlings", "a borrowed tent", "the guest room", "the pottery course",
    "the invoice parser", "a grey cat called Pistachio", "the ferry tickets", "the choir rehearsal",
)  # fmt: skip
DEEDS = (
    "repaired", "lent out", "painted", "forgot about", "measured twice", "sold", "photographed", "insured",
    "described at length", "carried up four floors", "postponed", "cleaned", "traded for a lamp", "finally finished",
    "promised to bring along", "looked for all morning",
)  # fmt: skip
REASONS = (
    "because the rain would not stop", "after the dentist had called", "although nobody had asked", "before breakfast",
    "while the neighbours were away", "as a present for the twins", "since the insurance runs out in spring",
    "with the money from the flea market", "so that the weekend stays free", "in spite of the strike",
    "on the advice of a carpenter", "as soon as the paint had dried",
)  # fmt: skip
FEELINGS = (
    "was relieved", "laughed about it", "slept badly", "wants to try again", "was proud", "is still undecided",
    "called it a small miracle", "would rather not repeat it", "asked for a second opinion", "made a list",
)  # fmt: skip
TIMES = ("on Monday", "last week", "in the spring", "at noon", "every other day", "in 2019", "since March", "tonight")


def sentence(dice: random.Random) -> str:
    """Return one sentence."""
    who, deed, thing = dice.choice(NAMES), dice.choice(DEEDS), dice.choice(THINGS)
    match dice.randrange(4):
        case 0:
            return f"{who} {deed} {thing} near {dice.choice(PLACES)} {dice.choice(REASONS)}."
        case 1:
            return f"{dice.choice(TIMES).capitalize()} {who} {deed} {thing} and {dice.choice(FEELINGS)}."
        case 2:
            return f"{who} met {dice.choice(NAMES)} at {dice.choice(PLACES)}, where they {deed} {thing}."
        case _:
            price = dice.randrange(5, 900)
            return (
                f"It took {price} euros and {dice.choice(TIMES)} {who} {dice.choice(FEELINGS)} {dice.choice(REASONS)}."
            )


def paragraph(dice: random.Random, n_bytes: int) -> str:
    """Return sentences of about `n_bytes` together."""
    parts: list[str] = []
    size = 0
    while size < n_bytes:
        parts.append(sentence(dice))
        size += len(parts[-1]) + 1
    return " ".join(parts)


def word(number: int) -> str:
    """Return a word that no other number gives and no sentence holds: how one entry is found among all."""
    letters = "bcdfghjklmnpqrstvwxz"
    digits: list[str] = []
    rest = number
    for _ in range(6):
        rest, digit = divmod(rest, len(letters))
        digits.append(letters[digit])
    return "q" + "u".join(digits)
