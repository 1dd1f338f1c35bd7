"""Capability tokens can be narrowed but not widened, and are refused after any other change."""

from __future__ import annotations

import base64
import hmac
import json
import string
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.policy.issuer import NOW, Clock
from waypost.errors import WaypostError
from waypost.policy.capability_tokens import CapabilityTokens, Rights, TokenRefused

SECRET = b"s" * 32
TOKENS = CapabilityTokens(SECRET, clock=Clock())
PERMISSIONS = st.sets(st.sampled_from(["web_read", "llm", "skill_invoke", "state_read", "state_write"]))
ALPHABET = string.ascii_letters + string.digits + "-_"


def rights(token: str, *, depth: int = 0, audience: str = "here", tokens: CapabilityTokens = TOKENS) -> Rights:
    return tokens.check(token, depth=depth, audience=audience)


def refusal(token: str, **options: Any) -> str:
    with pytest.raises(TokenRefused) as refused:
        rights(token, **options)
    return refused.value.message


def opened(token: str) -> tuple[list[Any], str]:
    """The parts of a token as JSON, and its signature as text."""
    body, _, signature = token.partition(".")
    return json.loads(base64.urlsafe_b64decode(body + "=" * (-len(body) % 4))), signature


def written(parts: Any, signature: str) -> str:
    body = base64.urlsafe_b64encode(json.dumps(parts, separators=(",", ":")).encode()).rstrip(b"=").decode()
    return f"{body}.{signature}"


def sealed(*parts: list[Any]) -> str:
    """A correctly signed token with parts that `mint` would not produce."""
    return TOKENS._sealed(["nonce", *parts])


def test_a_token_grants_the_permissions_it_was_minted_for() -> None:
    token = TOKENS.mint(["llm", "web_read"], depth=3, expires_at=NOW + 60, audience="here", run="r1")

    assert rights(token, depth=3) == Rights(frozenset({"llm", "web_read"}), "r1")


def test_a_token_without_permissions_grants_nothing() -> None:
    assert rights(TOKENS.mint([])).permissions == frozenset()
    assert rights(sealed(["depth", 3])).permissions == frozenset()


def test_a_permission_that_is_not_granted_is_named_in_the_refusal() -> None:
    granted = rights(TOKENS.mint(["llm"]))

    granted.require("llm")
    with pytest.raises(TokenRefused, match=r"^token does not grant web_read$"):
        granted.require("web_read")


def test_every_token_is_unique() -> None:
    assert len({TOKENS.mint(["llm"]) for _ in range(50)}) == 50


def test_a_token_consists_of_url_safe_characters() -> None:
    assert set(TOKENS.mint(["äöü", "llm"], run="lauf/1")) <= set(ALPHABET + ".")


@given(PERMISSIONS, st.lists(st.none() | PERMISSIONS, max_size=8))
def test_no_sequence_of_narrowings_grants_more(minted: set[str], narrowings: list[set[str] | None]) -> None:
    token, expected = TOKENS.mint(minted), minted
    for narrowing in narrowings:
        token = TOKENS.narrow(token, narrowing)
        expected = expected if narrowing is None else expected & narrowing

        assert rights(token).permissions == expected


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 20)), min_size=1, max_size=5), st.integers(0, 5))
def test_the_tightest_of_all_caveats_counts(caveats: list[tuple[int, int]], depth: int) -> None:
    clock = Clock()
    tokens = CapabilityTokens(SECRET, clock=clock)
    token = tokens.mint(["llm"])
    for deepest, seconds in caveats:
        token = tokens.narrow(token, depth=deepest, expires_at=NOW + seconds)
    clock.now = NOW + 10

    if depth <= min(deepest for deepest, _ in caveats) and min(seconds for _, seconds in caveats) > 10:
        assert rights(token, depth=depth, tokens=tokens).permissions == {"llm"}
    else:
        assert refusal(token, depth=depth, tokens=tokens) in ("capability token expired", "token max depth exceeded")


def test_a_token_expires_at_its_second() -> None:
    clock = Clock()
    tokens = CapabilityTokens(SECRET, clock=clock)
    token = tokens.mint(["llm"], expires_at=NOW + 10)

    clock.now = NOW + 9.999
    assert rights(token, tokens=tokens)
    clock.now = NOW + 10
    assert refusal(token, tokens=tokens) == "capability token expired"


def test_narrowing_cannot_extend_an_expiry() -> None:
    assert refusal(TOKENS.narrow(TOKENS.mint(["llm"], expires_at=NOW), expires_at=NOW + 99)) == (
        "capability token expired"
    )


def test_a_depth_limit_is_inclusive() -> None:
    token = TOKENS.mint(["llm"], depth=3)

    assert rights(token, depth=3)
    assert refusal(token, depth=4) == "token max depth exceeded"
    assert refusal(TOKENS.narrow(token, depth=9), depth=4) == "token max depth exceeded"


def test_a_token_for_another_audience_is_refused() -> None:
    assert refusal(TOKENS.mint(["llm"], audience="there")) == "token is for another audience"
    assert refusal(TOKENS.narrow(TOKENS.mint(["llm"], audience="here"), audience="there")) == (
        "token is for another audience"
    )


def test_a_token_belongs_to_one_run() -> None:
    token = TOKENS.mint(["llm"], run="r1")

    assert rights(TOKENS.narrow(token, run="r1")).run == "r1"
    assert refusal(TOKENS.narrow(token, run="r2")) == "token belongs to another run"


@given(st.text().filter(lambda kind: kind not in ("permissions", "expires_at", "depth", "audience", "run")))
def test_an_unknown_caveat_is_refused(kind: str) -> None:
    assert refusal(sealed(["permissions", ["llm"]], [kind, True])) == f"unknown caveat {kind}"


@pytest.mark.parametrize(
    "part",
    [
        ["permissions", "llm"],
        ["permissions", {"llm": 1}],
        ["permissions", [1]],
        ["depth", "3"],
        ["depth", None],
        ["depth", True],
        ["expires_at", "never"],
        ["expires_at"],
        [],
        "permissions",
        [["permissions"], ["llm"]],
    ],
)
def test_a_malformed_part_is_refused_even_when_signed(part: Any) -> None:
    assert refusal(sealed(["permissions", ["llm"]], part)) == "invalid capability token"


def test_a_token_changed_in_any_byte_is_refused() -> None:
    token = TOKENS.mint(["llm"], depth=3, expires_at=NOW + 60, audience="here", run="r1")

    accepted = []
    for place, was in enumerate(token):
        for other in (ALPHABET[(ALPHABET.find(was) + 1) % 64], "A", "_", "=", "!", ".", ""):
            if other != was:
                changed = token[:place] + other + token[place + 1 :]
                try:
                    rights(changed)
                except TokenRefused:
                    continue
                accepted.append((place, other))
    assert accepted == []


@pytest.mark.parametrize("addition", ["=", "==", "A", "!", "!!!!", "\n", " ", "."])
def test_a_token_with_added_text_is_refused(addition: str) -> None:
    token = TOKENS.mint(["llm"])

    assert refusal(token + addition) == "invalid capability token"
    assert refusal(addition + token) == "invalid capability token"


@given(st.data())
def test_caveats_cannot_be_dropped_reordered_or_replaced(data: st.DataObject) -> None:
    token = TOKENS.narrow(TOKENS.mint(["llm", "web_read"], depth=0, audience="here"), ["llm"], expires_at=NOW + 1)
    parts, signature = opened(token)
    other = data.draw(
        st.permutations(parts)
        | st.lists(st.sampled_from(parts), max_size=7)
        | st.integers(1, len(parts) - 1).map(lambda place: [*parts[:place], ["depth", 99], *parts[place + 1 :]])
        | st.integers(1, len(parts)).map(lambda place: [*parts[:place], ["permissions", ["llm"]], *parts[place:]])
    )
    if other == parts:
        return

    assert refusal(written(other, signature)) == "invalid capability token"


def test_the_signature_of_a_narrowed_token_does_not_validate_the_wider_one() -> None:
    wide = TOKENS.mint(["llm", "web_read"])
    parts, _ = opened(wide)

    for narrow in (TOKENS.narrow(wide, ["llm"]), TOKENS.narrow(wide, [])):
        assert refusal(written(parts, opened(narrow)[1])) == "invalid capability token"


def test_a_token_of_another_secret_is_refused() -> None:
    token = CapabilityTokens(b"t" * 32, clock=Clock()).mint(["llm"])

    assert refusal(token) == "invalid capability token"
    with pytest.raises(TokenRefused):
        TOKENS.narrow(token, ["llm"])


def test_without_a_secret_every_instance_generates_its_own() -> None:
    assert refusal(CapabilityTokens().mint(["llm"]), tokens=CapabilityTokens()) == "invalid capability token"


def test_tokens_are_signed_with_a_derived_key() -> None:
    parts, _ = opened(TOKENS.mint(["llm"]))
    signature = SECRET
    for part in parts:
        signature = hmac.digest(signature, json.dumps(part, separators=(",", ":")).encode(), "sha256")

    forged = written(parts, base64.urlsafe_b64encode(signature).rstrip(b"=").decode())
    assert refusal(forged) == "invalid capability token"


def test_a_token_that_is_too_long_is_refused() -> None:
    token = TOKENS.mint(["llm"])
    while len(token) <= 8192:
        rights(token)
        token = TOKENS.narrow(token, audience="here")

    assert refusal(token) == "invalid capability token"


GARBAGE = (
    st.text()
    | st.text(alphabet=ALPHABET + ".=")
    | st.binary().map(lambda raw: raw.decode("latin-1"))
    | st.binary().map(lambda raw: f"{base64.urlsafe_b64encode(raw).decode()}.AAAA")
    | st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
        lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=3),
        max_leaves=10,
    ).map(lambda parts: written(parts, "AAAA"))
    | st.lists(st.tuples(st.sampled_from(["permissions", "depth", "x"]), st.integers() | st.text())).map(
        lambda parts: written(["n", *parts], "AAAA")
    )
)


@given(GARBAGE)
def test_garbage_is_refused(garbage: str) -> None:
    assert refusal(garbage) == "invalid capability token"
    with pytest.raises(TokenRefused):
        TOKENS.narrow(garbage, [])


def test_too_deeply_nested_json_is_refused() -> None:
    body = base64.urlsafe_b64encode(b"[" * 6000).decode()

    assert refusal(f"{body}.AAAA") == "invalid capability token"


def test_signatures_are_compared_in_constant_time(monkeypatch: pytest.MonkeyPatch) -> None:
    token = TOKENS.mint(["llm"])
    compared: list[tuple[bytes, bytes]] = []

    def compare(right: bytes, given: bytes) -> bool:
        compared.append((right, given))
        return False

    monkeypatch.setattr(hmac, "compare_digest", compare)
    assert refusal(token) == "invalid capability token"
    [(right, given)] = compared
    assert right == given


def test_a_refusal_is_a_waypost_error_that_does_not_contain_the_token() -> None:
    token = TOKENS.mint(["llm"])

    assert issubclass(TokenRefused, WaypostError)
    assert token[:10] not in refusal(token + "x")
