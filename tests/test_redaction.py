"""Texts are shown without the secrets in them."""

from __future__ import annotations

import time

import pytest

from waypost.redaction import is_secret_name, is_secret_variable, looks_random, redacted, secrets_of, without


def test_configured_values_of_six_characters_are_secrets_and_shorter_ones_words() -> None:
    assert secrets_of({"A": "sixsix", "B": "five5", "C": ""}) == ("sixsix",)


def test_the_credentials_after_an_authorization_scheme_are_a_secret_by_themselves() -> None:
    assert secrets_of({"Authorization": "Bearer abcdef"}) == ("Bearer abcdef", "abcdef")


def test_a_secret_inside_another_leaves_nothing_of_the_longer_one() -> None:
    assert without("it is secret-longer", secrets_of({"a": "secret", "b": "secret-longer"})) == "it is [REDACTED]"


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("Authorization: Basic dXNlcjpwYXNz\nnext", "Authorization: [REDACTED]\nnext"),
        ("sent Bearer abc.def-123", "sent Bearer [REDACTED]"),
        ('{"api_key": "abcdef123"}', '{"api_key": "[REDACTED]"}'),
        ("DB_PASSWORD=hunter22 x", "DB_PASSWORD=[REDACTED] x"),
        ("?access_token=abcdef123&x=1", "?access_token=[REDACTED]&x=1"),
        ("postgres://me:pass@host/db", "postgres://[REDACTED]@host/db"),
        ("key ghp_0123456789abcdefghij0123", "key [REDACTED]"),
        ("key AKIAABCDEFGHIJKLMNOP.", "key [REDACTED]."),
        ("jwt eyJhbGciOiJI.eyJzdWIiOiIx.c2ln", "jwt [REDACTED]"),
        ("-----BEGIN RSA PRIVATE KEY-----\nMII\n-----END RSA PRIVATE KEY-----\nrest", "[REDACTED]\nrest"),
        ("-----BEGIN PRIVATE KEY-----\nMII and no end", "[REDACTED]"),
    ],
)
def test_text_that_looks_like_a_secret_is_redacted(text: str, answer: str) -> None:
    assert redacted(text) == answer


@pytest.mark.parametrize(
    "text",
    [
        "",
        "no such file: /etc/hosts",
        "unexpected token: }",
        "http://host:8080/path",
        "the password was wrong",
        "task-list",
    ],
)
def test_ordinary_words_stay(text: str) -> None:
    assert redacted(text) == text


@pytest.mark.parametrize(
    "unit",
    ["a-", "eyJ-", "eyJaaaaaaaaa.", "token", "://a:", "-----BEGIN PRIVATE KEY-----", "bearer ", "password-", "sk-"],
)
def test_the_time_it_takes_grows_with_the_text_and_not_faster(unit: str) -> None:
    def seconds(size: int) -> float:
        text = unit * (size // len(unit))
        return min(_timed(text) for _ in range(3))

    assert seconds(400_000) < 10 * seconds(100_000) + 0.5


def _timed(text: str) -> float:
    began = time.thread_time()
    redacted(text)
    return time.thread_time() - began


@pytest.mark.parametrize("name", ["password", "API_TOKEN", "sshKey", "credentials", "Set-Cookie", "passwd", "keys"])
def test_a_name_that_stands_for_a_secret_is_recognised(name: str) -> None:
    assert is_secret_name(name)


@pytest.mark.parametrize("name", ["API_TOKEN", "DB_PASS", "GITHUB_PAT", "X-Auth", "SENTRY_DSN", "pwd"])
def test_a_variable_may_be_called_like_a_secret_in_one_short_word(name: str) -> None:
    assert is_secret_variable(name)


@pytest.mark.parametrize("name", ["", "AUTHOR", "COMPASS", "PATH", "passed", "pattern"])
def test_a_short_word_counts_as_a_whole_only(name: str) -> None:
    assert not is_secret_variable(name)


@pytest.mark.parametrize("name", ["", "user", "path", "sha256"])
def test_other_names_are_not_recognised_as_secrets(name: str) -> None:
    assert not is_secret_name(name)


@pytest.mark.parametrize(
    "value",
    [
        *("production", "true", "8420", "1048576", "30000ms", "INFO", "en_US.UTF-8", "Europe/Berlin", "us-east-1"),
        *("127.0.0.1:8420", "db.internal.example.com", "ip-10-0-3-17.eu-west-1.compute.internal", "10.0.0.0/8,::1"),
        *("https://api.example.com/v1/items?limit=100", "postgresql://db.example/waypost", "http://localhost:8420/mcp"),
        *("/var/lib/waypost/data", "/tmp/tmp8x2k1a9z/file", "./data", "~/.config/waypost", "C:\\Users\\ada\\work"),
        *("claude-sonnet-4-20250514", "gpt-4o-mini", "openai/gpt-oss-120b", "python3.11", "v1.2.3rc1", "PostgreSQL16"),
        *("ada@example.com", "WaypostDeskName", "my-tool_name.v2", "20250514T103000Z", "2026-11-18T01:02:03+00:00"),
        *(
            "arn:aws:iam::123456789012:role/Deploy",
            "application/json; charset=utf-8",
            "Say hello to everyone!",
            "a1b2c3d",
        ),
    ],
)
def test_words_numbers_addresses_and_paths_do_not_look_like_tokens(value: str) -> None:
    assert not looks_random(value)


@pytest.mark.parametrize(
    "value",
    [
        *("7f3a9c2d51e04b68", "550e8400-e29b-41d4-a716-446655440000", "dXNlcjpwYXNzd29yZA==", "q8Zr2LxVtB0nYk5W"),
        *("wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY", "hunter2!wins", "live_4f9a8b7c6d5e", "x7Kp-9Qz2-Lm4V-t8Rw"),
        *("https://hooks.example.com/services/T0/B0/Zx81kPq0Lm5tYw2R", "qzxjvkwpqlmnbvcxzasdfghj"),
    ],
)
def test_tokens_and_generated_passwords_are_recognised_by_their_form(value: str) -> None:
    assert looks_random(value)
