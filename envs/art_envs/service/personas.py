"""Sentences around customers' wishes: long openings and changes of mind."""

from __future__ import annotations

import random

GREETINGS = (
    "Hello.",
    "Hi there,",
    "Good morning!",
    "Hey,",
    "Good evening.",
    "Hello, is anybody there?",
)
WHO = (
    "I am a nurse on night shifts and write this in my break, so I may be slow to answer.",
    "I have been your customer for six years, and my whole family orders and travels with you.",
    "I am not good with computers; my granddaughter showed me where to find this chat.",
    "I am quite busy today and would like to have this done within a few minutes.",
    "I run a small office with four people, and everything of this kind lands on my desk.",
    "I have just moved with two children and a dog, and everything here is still in boxes.",
    "I tried to call you twice, waited for half an hour, and then the line went dead.",
    "I am writing from a train with a bad connection, so please keep it short.",
    "I teach at a school and can only look at my phone between two lessons.",
    "I am rather careful with money this year and check every bill that I get.",
    "My partner usually does these things for us, but this week it is my turn.",
    "I am in a good mood, the sun is out, and I hope that you are well too.",
)
WHY = (
    "I have thought about it since the weekend and talked it over with a friend, who said that I "
    "should simply ask you.",
    "I looked at your help pages first, but there are so many of them that I gave up after the "
    "third.",
    "It is not the end of the world, but it has bothered me for some days, and I would like to "
    "have it off my mind.",
    "I wrote everything down beforehand, so that I do not forget anything, because the last time "
    "I did.",
    "Please do not take it as a complaint; these things happen, and I know that it is not your "
    "fault.",
    "I had meant to write earlier, but then one thing came after the other, as it always does.",
)
ENDINGS = (
    "Please do nothing that I have not asked for.",
    "I would be glad if that could be done today.",
    "Let me know what you need from me.",
    "Thank you in advance for your help.",
    "There may be more later, but one thing at a time.",
    "I hope that this is the right place for it.",
)

# Precedes the wish that replaces a change to be confirmed.
NOT_SO = (  # the same change with a different detail
    "No, wait, I have changed my mind.",
    "No, actually, not like that.",
    "Hold on, not yet.",
)
NOT_THAT = (  # a different change
    "No, on second thought leave that as it is.",
    "No, I have changed my mind, I do not want that.",
    "Hold on, I do not want that any more.",
)
BACK = "No, sorry, what I wanted first is better after all."
KEEP = "No, on second thought do not change anything there. That is settled for me."


def reconsidered(rng: random.Random, wish: str, *, is_alike: bool) -> str:
    """Return the message of a customer who replaces the wish that they are asked to confirm."""
    return f"{rng.choice(NOT_SO if is_alike else NOT_THAT)} {wish}"


def told_at_length(rng: random.Random, wish: str) -> str:
    """Return an opening in which small talk surrounds a wish."""
    parts = [rng.choice(GREETINGS), rng.choice(WHO), rng.choice(WHY), wish, rng.choice(ENDINGS)]
    return " ".join(parts)
