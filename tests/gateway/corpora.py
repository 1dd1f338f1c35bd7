"""Catalogs of documents made from a few words, so that queries match many of them in many ways."""

from __future__ import annotations

from random import Random

from waypost.search.documents import Document

VERBS = [
    "list",
    "get",
    "create",
    "update",
    "delete",
    "search",
    "deploy",
    "build",
    "run",
    "send",
    "approve",
    "cancel",
    "merge",
    "close",
    "upload",
    "convert",
]
NOUNS = [
    "issue",
    "issues",
    "repository",
    "request",
    "branch",
    "commit",
    "file",
    "document",
    "message",
    "channel",
    "user",
    "invoice",
    "payment",
    "order",
    "customer",
    "pipeline",
    "release",
    "deployment",
    "environment",
    "secret",
    "token",
    "account",
    "project",
    "label",
    "milestone",
    "review",
]
SERVERS = ["github", "gitlab", "slack", "jira", "stripe", "notion", "postgres", "redis", "docker", "grafana", "sentry"]
FILLING = [
    "the",
    "of",
    "a",
    "from",
    "in",
    "to",
    "with",
    "for",
    "given",
    "all",
    "new",
    "existing",
    "by",
    "name",
    "and",
    "returns",
    "optional",
    "details",
    "status",
]


def documents(count: int, seed: int = 0) -> list[Document]:
    """A number of documents, the same on every call."""
    chance = Random(seed)
    return [_document(chance, number) for number in range(count)]


def _document(chance: Random, number: int) -> Document:
    verb, noun, other, server = (chance.choice(words) for words in (VERBS, NOUNS, NOUNS, SERVERS))
    filling = " ".join(chance.choices(FILLING, k=8))
    id = f"{server}.{verb}_{noun}_{number}" if number % 4 else f"{server}{verb.title()}{number}"
    return Document(
        id=id,
        kind=chance.choice(["capability", "capability", "workflow", "skill"]),
        title=chance.choice(["", f"{verb.title()} {noun}", f"{verb.title()} {server} {other}s"]),
        description=f"{verb.title()}s {noun} {filling} {other}-{server}, {chance.choice(NOUNS)}{number % 99}.",
        tags=tuple(chance.sample([server, noun, verb, other], chance.randint(0, 3))),
        aliases=(f"{chance.choice(VERBS)} {other}",) if chance.random() < 0.3 else (),
        text=id if chance.random() < 0.7 else f"{verb} {other} {filling}",
        parameters=(f"{noun}_id", "page"),
    )


def query(chance: Random) -> str:
    """One to four terms: whole words, misspelt words, parts of words."""
    return " ".join(_term(chance) for _ in range(chance.randint(1, 4)))


def _term(chance: Random) -> str:
    word = chance.choice(chance.choice([VERBS, NOUNS, SERVERS]))
    at = chance.randrange(len(word) - 1)
    return chance.choice(
        [word, word, word.upper(), word + "s", word[:-1], word[1:], word[at:], word[:at] + word[at + 1] + word[at:]]
    )
