"""JSON Web Tokens: valid ones identify their principal, hostile ones are refused."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import json
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import padding, rsa
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from tests.policy.issuer import (
    ISSUER,
    NOW,
    RESOURCE,
    Clock,
    authentication,
    bearer,
    claims,
    encoded_number,
    jwk,
    key_set,
    private_key,
    refused,
    signed,
    token,
)
from waypost.errors import DefinitionError
from waypost.identity import Grants
from waypost.identity.claims import InsufficientScope, InvalidToken, Terms, audiences
from waypost.identity.oauth import JwtVerifier


def terms(issuer: str = ISSUER, audience: str | list[str] = RESOURCE, required_scopes: tuple[str, ...] = ()) -> Terms:
    return Terms(issuer=issuer, audiences=audiences(audience), required_scopes=required_scopes)


def part(value: Any) -> str:
    text = value if isinstance(value, bytes) else json.dumps(value).encode()
    return base64.urlsafe_b64encode(text).rstrip(b"=").decode()


def unsigned(alg: str, signature: str = "") -> str:
    return f"{part({'alg': alg, 'kid': 'rsa'})}.{part(claims())}.{signature}"


def signed_with_the_public_key(form: str) -> str:
    """A token signed by HS256 with the public key as the secret."""
    public = private_key("rsa").public_key()
    secret = {
        "pem": public.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo),
        "pkcs1": public.public_bytes(Encoding.PEM, PublicFormat.PKCS1),
        "der": public.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo),
        "jwk": json.dumps(jwk("rsa")).encode(),
        "modulus": jwk("rsa")["n"].encode(),
    }[form]
    text = f"{part({'alg': 'HS256', 'kid': 'rsa', 'typ': 'JWT'})}.{part(claims())}"
    return f"{text}.{part(hmac.digest(secret, text.encode(), hashlib.sha256))}"


def with_another_payload() -> str:
    header, _, signature = token().split(".")
    return f"{header}.{part(claims(sub='root'))}.{signature}"


def signed_by_hand(header: dict[str, Any]) -> str:
    """A token signed by hand, since no library would write it."""
    key = private_key("rsa")
    assert isinstance(key, rsa.RSAPrivateKey)
    text = f"{part({'alg': 'RS256', 'kid': 'rsa', **header})}.{part(claims())}"
    return f"{text}.{part(key.sign(text.encode(), padding.PKCS1v15(), SHA256()))}"


def a_payload_of(text: bytes) -> str:
    return signed("rsa", {"alg": "RS256", "kid": "rsa"}, text)


HOSTILE: dict[str, Callable[[], str]] = {
    "another audience": lambda: token(aud="https://other.example.com/mcp"),
    "an audience that only begins like ours": lambda: token(aud=RESOURCE + ".evil.com"),
    "our audience as a parent": lambda: token(aud="https://hub.example.com"),
    "no audience": lambda: token(aud=None),
    "an empty list of audiences": lambda: token(aud=[]),
    "a list of other audiences": lambda: token(aud=["a", "b"]),
    "a list that holds our audience deeper": lambda: token(aud=[[RESOURCE]]),
    "an audience object": lambda: token(aud={RESOURCE: True}),
    "audiences in one string": lambda: token(aud=f"{RESOURCE} other"),
    "another issuer": lambda: token(iss="https://evil.example.com/"),
    "the issuer without its slash": lambda: token(iss=ISSUER.rstrip("/")),
    "the issuer in capitals": lambda: token(iss=ISSUER.upper()),
    "no issuer": lambda: token(iss=None),
    "a list of issuers": lambda: token(iss=[ISSUER]),
    "expired": lambda: token(exp=NOW - 31),
    "expired just beyond the leeway": lambda: token(exp=NOW - 30),
    "no expiry": lambda: token(exp=None),
    "an expiry in words": lambda: token(exp=str(NOW + 300)),
    "true as expiry": lambda: token(exp=True),
    "an expiry beyond all time": lambda: token(exp=10**400),
    "not valid yet": lambda: token(nbf=NOW + 31),
    "issued in the future": lambda: token(iat=NOW + 31),
    "a nbf in words": lambda: token(nbf="now"),
    "no subject": lambda: token(sub=None),
    "an empty subject": lambda: token(sub=""),
    "a subject that is no string": lambda: token(sub=7),
    "an endless subject": lambda: token(sub="a" * 256),
    "alg none": lambda: unsigned("none"),
    "alg None": lambda: unsigned("None", "AA"),
    "alg NONE with a signature": lambda: unsigned("NONE", part(b"x")),
    "alg none with the signature of another": lambda: unsigned("none", token().rpartition(".")[2]),
    "no alg": lambda: f"{part({'kid': 'rsa'})}.{part(claims())}.AA",
    "a list of algs": lambda: f"{part({'alg': ['RS256'], 'kid': 'rsa'})}.{part(claims())}.AA",
    "HS256 with the public key as PEM": lambda: signed_with_the_public_key("pem"),
    "HS256 with the public key as PKCS1": lambda: signed_with_the_public_key("pkcs1"),
    "HS256 with the public key as DER": lambda: signed_with_the_public_key("der"),
    "HS256 with the public key as JWK": lambda: signed_with_the_public_key("jwk"),
    "HS256 with the modulus": lambda: signed_with_the_public_key("modulus"),
    "another key of the same name": lambda: token("rsa-other", header={"kid": "rsa"}),
    "another kind of key of the same name": lambda: token("ec-other", header={"kid": "rsa"}),
    "the algorithm of another curve": lambda: token("ed448", header={"alg": "Ed25519"}),
    "the algorithm of another kind of key": lambda: token("ed", header={"alg": "RS256", "kid": "rsa"}),
    "an unknown key": lambda: token("rsa-other"),
    "kid traversal": lambda: token(header={"kid": "../../../../dev/null"}),
    "kid injection": lambda: token(header={"kid": "x' UNION SELECT 'key"}),
    "a kid that is a URL": lambda: token(header={"kid": "https://evil.example.com/key"}),
    "a kid that is no string": lambda: f"{part({'alg': 'RS256', 'kid': ['rsa']})}.{part(claims())}.AA",
    "its own key in the header": lambda: token("rsa-other", header={"kid": "x", "jwk": jwk("rsa-other", kid=None)}),
    "a URL of keys in the header": lambda: token("rsa-other", header={"kid": "x", "jku": "http://127.0.0.1:1/"}),
    "a critical extension": lambda: token(header={"crit": ["exp"], "exp": 1}),
    "a critical extension that changes nothing": lambda: signed_by_hand({"crit": ["b64"], "b64": True}),
    "an ID token's or another's type": lambda: token(header={"typ": "dpop+jwt"}),
    "a logout token": lambda: token(header={"typ": "logout+jwt"}),
    "huge": lambda: token(padding="a" * 20_000),
    "truncated in the signature": lambda: token()[:-10],
    "without its signature": lambda: token().rpartition(".")[0],
    "with an empty signature": lambda: token().rpartition(".")[0] + ".",
    "another payload": with_another_payload,
    "four parts": lambda: token() + ".AA",
    "five parts, encrypted": lambda: token() + ".AA.AA",
    "padding": lambda: token() + "==",
    "not base64": lambda: "!!!.???.***",
    "only dots": lambda: "..",
    "a header that is a list": lambda: f"{part(['RS256'])}.{part(claims())}.AA",
    "a header that is not JSON": lambda: f"{part(b'RS256')}.{part(claims())}.AA",
    "a header without end": lambda: f"{part(b'[' * 5_000)}.{part(claims())}.AA",
    "claims that are a list": lambda: a_payload_of(b"[1]"),
    "claims that are not JSON": lambda: a_payload_of(b"ada"),
    "claims that are not UTF-8": lambda: a_payload_of(b'{"sub": "\xff"}'),
    "claims without end": lambda: a_payload_of(b'{"a":' * 2_000),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_token_is_refused(name: str) -> None:
    hostile = HOSTILE[name]()

    async def scenario() -> None:
        refusal = await refused(authentication(jwks=key_set("rsa", "ed", "ed448")), bearer(hostile))

        assert (refusal.status, refusal.body) == (401, {"error": "Invalid API key"})
        assert refusal.challenge is not None
        assert 'error="invalid_token"' in refusal.challenge
        assert hostile not in refusal.challenge + str(refusal) + repr(refusal)

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("name", "header"),
    [
        ("rsa", {}),
        ("ec", {}),
        ("ed", {}),
        ("ed", {"alg": "Ed25519"}),
        ("ed448", {}),
        ("ed448", {"alg": "Ed448"}),
        ("rsa", {"typ": "JWT"}),
        ("rsa", {"x5c": ["MIIB" * 200]}),
        ("rsa", {"typ": "application/at+JWT"}),
        ("rsa", {"x": 1}),
    ],
)
def test_a_valid_token_identifies_its_principal(name: str, header: dict[str, Any]) -> None:
    async def scenario() -> None:
        auth = authentication(jwks=key_set("rsa", "ec", "ed", "ed448"))

        principal = await auth.authenticate(bearer(token(name, header=header)))

        assert principal.id == f"{ISSUER}|ada"
        assert principal.scopes == ("read", "write")
        assert principal.claims is not None
        assert (principal.claims["sub"], principal.claims["client_id"]) == ("ada", "cli")

    asyncio.run(scenario())


@pytest.mark.parametrize(
    "changed",
    [
        {"aud": [RESOURCE]},
        {"aud": ["https://other.example.com", RESOURCE]},
        {"aud": [7, RESOURCE]},
        {"exp": NOW - 29},
        {"nbf": NOW + 29},
        {"iat": NOW + 29},
        {"iat": None},
        {"exp": NOW + 0.5},
        {"sub": "a|b"},
    ],
    ids=str,
)
def test_a_token_within_the_rules_is_accepted(changed: dict[str, Any]) -> None:
    asyncio.run(authentication().authenticate(bearer(token(**changed))))


@pytest.mark.parametrize(
    ("changed", "scopes"),
    [
        ({"scope": "a  b "}, ("a", "b")),
        ({"scope": None, "scp": ["a", "b"]}, ("a", "b")),
        ({"scope": None, "scp": "a b"}, ("a", "b")),
        ({"scope": "a b", "scp": ["b", "c"]}, ("a", "b", "c")),
        ({"scope": None}, ()),
        ({"scope": 7, "scp": {"a": 1}}, ()),
        ({"scope": ["a", 1]}, ("a",)),
    ],
    ids=str,
)
def test_scopes_are_read_from_either_claim(changed: dict[str, Any], scopes: tuple[str, ...]) -> None:
    principal = asyncio.run(authentication().authenticate(bearer(token(**changed))))

    assert principal.scopes == scopes


def test_a_broad_scope_includes_the_narrower_ones() -> None:
    grants = Grants(implied={"admin": ["write"], "write": ["read", "admin"]})
    auth = authentication(grants=grants, required_scopes=("read",))

    principal = asyncio.run(auth.authenticate(bearer(token(scope="admin"))))

    assert principal.scopes == ("admin", "write", "read")


def test_roles_and_permissions_are_read_only_from_the_configured_claims() -> None:
    said: dict[str, Any] = {
        "roles": ["admin"],
        "realm_access": {"roles": ["lead", 7]},
        "https://x.example/perms": "deploy drop",
    }

    def principal(grants: Grants) -> tuple[tuple[str, ...], tuple[str, ...]]:
        found = asyncio.run(authentication(grants=grants).authenticate(bearer(token(**said))))
        return found.roles, found.permissions

    assert principal(Grants()) == ((), ())
    assert principal(Grants(roles=("agent",), permissions=("look",))) == (("agent",), ("look",))
    assert principal(Grants(roles_claim="realm_access.roles")) == (("lead",), ())
    assert principal(Grants(permissions_claim="https://x.example/perms")) == ((), ("deploy", "drop"))
    assert principal(Grants(roles_claim="roles.x.y", permissions_claim="nothing")) == ((), ())


@pytest.mark.parametrize("claim", ["client_id", "azp", "cid"])
def test_the_client_id_is_kept_in_the_claims(claim: str) -> None:
    said: dict[str, Any] = {"client_id": None, claim: "app"}

    principal = asyncio.run(authentication().authenticate(bearer(token(**said))))

    assert principal.claims is not None
    assert principal.claims["client_id"] == "app"


def test_a_missing_scope_raises_insufficient_scope() -> None:
    verifier = JwtVerifier(terms(required_scopes=("read", "admin")), key_set("rsa"), clock=Clock())

    with pytest.raises(InsufficientScope):
        asyncio.run(verifier.verify(token()))


def test_a_token_without_kid_is_checked_with_the_only_key_that_fits() -> None:
    nameless = signed("rsa", {"alg": "RS256"}, json.dumps(claims()).encode())
    clock = Clock()

    async def scenario() -> None:
        await JwtVerifier(terms(), key_set("rsa", "ec"), clock=clock).verify(nameless)
        with pytest.raises(InvalidToken):
            await JwtVerifier(terms(), key_set("rsa", "rsa-other"), clock=clock).verify(nameless)

    asyncio.run(scenario())


def test_only_the_allowed_algorithms_are_accepted() -> None:
    verifier = JwtVerifier(terms(), key_set("rsa", "ec"), algorithms=["ES256"], clock=Clock())

    async def scenario() -> None:
        await verifier.verify(token("ec"))
        with pytest.raises(InvalidToken, match="algorithm"):
            await verifier.verify(token("rsa"))

    asyncio.run(scenario())


@pytest.mark.parametrize("name", ["none", "HS256", "HS512", "RS1", ""])
def test_an_algorithm_without_a_public_key_cannot_be_allowed(name: str) -> None:
    with pytest.raises(DefinitionError):
        JwtVerifier(terms(), key_set("rsa"), algorithms=["RS256", name])


@pytest.mark.parametrize(("issuer", "audience"), [("", RESOURCE), (ISSUER, ""), (ISSUER, []), (ISSUER, [RESOURCE, ""])])
def test_issuer_and_audience_must_be_given(issuer: str, audience: str | list[str]) -> None:
    with pytest.raises(DefinitionError):
        terms(issuer, audience)


@pytest.mark.parametrize("resource", ["https://hub.example.com", "https://hub.example.com/"])
@pytest.mark.parametrize("audience", ["https://hub.example.com", "https://hub.example.com/"])
def test_a_host_with_and_without_a_trailing_slash_is_the_same_audience(resource: str, audience: str) -> None:
    asyncio.run(authentication(resource=resource).authenticate(bearer(token(aud=audience))))


def test_a_path_with_a_trailing_slash_is_another_audience() -> None:
    asyncio.run(refused(authentication(), bearer(token(aud=RESOURCE + "/"))))


def test_further_audiences_can_be_accepted() -> None:
    asyncio.run(authentication(audiences=("api://hub",)).authenticate(bearer(token(aud="api://hub"))))


@pytest.mark.parametrize(
    "key",
    [
        jwk("rsa", use="enc"),
        jwk("rsa", key_ops=["encrypt"]),
        jwk("rsa", alg="RS512"),
        jwk("rsa", alg="HS256"),
        jwk("rsa", n="AQAB"),
        jwk("rsa", n=7),
        {"kty": "oct", "k": "c2VjcmV0", "kid": "rsa", "alg": "RS256"},
        jwk("ec", kid="rsa"),
        jwk("ec", kid="rsa", crv="P-384"),
        jwk("ed", kid="rsa"),
    ],
    ids=["use", "key_ops", "alg", "hmac", "short", "number", "secret", "curve", "other curve", "edwards"],
)
def test_a_key_is_used_only_for_its_declared_purpose(key: dict[str, Any]) -> None:
    verifier = JwtVerifier(terms(), {"keys": [key, jwk("ed")]}, clock=Clock())

    with pytest.raises(InvalidToken):
        asyncio.run(verifier.verify(token("rsa")))


def test_a_private_key_that_was_published_is_not_used() -> None:
    key = private_key("rsa")
    assert isinstance(key, rsa.RSAPrivateKey)
    exponent = encoded_number(key.private_numbers().d)
    published = {**jwk("rsa"), "d": exponent, "key_ops": ["sign", "verify"]}
    verifier = JwtVerifier(terms(), {"keys": [published, jwk("ed")]}, clock=Clock())

    with pytest.raises(InvalidToken, match="unknown key"):
        asyncio.run(verifier.verify(token()))


def test_a_small_rsa_key_is_not_used() -> None:
    weak = token("small")

    with pytest.raises(InvalidToken):
        asyncio.run(JwtVerifier(terms(), key_set("small"), clock=Clock()).verify(weak))


@pytest.mark.parametrize(
    ("name", "published", "header", "is_good"),
    [
        ("ed", {"alg": "Ed25519"}, {"alg": "Ed25519"}, True),
        ("ed", {"alg": "EdDSA"}, {"alg": "EdDSA"}, True),
        ("ed448", {"alg": "Ed448"}, {"alg": "Ed448"}, True),
        ("ed", {"alg": "Ed25519"}, {"alg": "EdDSA"}, False),
        ("ed", {}, {"alg": "Ed448"}, False),
        ("ed448", {}, {"alg": "Ed25519"}, False),
        ("ed448", {"crv": "Ed25519"}, {"alg": "Ed25519"}, False),
        ("ed", {"crv": "X25519"}, {"alg": "Ed25519"}, False),
    ],
)
def test_edwards_keys_verify_under_the_names_of_rfc_9864(
    name: str, published: dict[str, Any], header: dict[str, Any], is_good: bool
) -> None:
    verifier = JwtVerifier(terms(), {"keys": [jwk(name, **published), jwk("rsa")]}, clock=Clock())

    if is_good:
        assert asyncio.run(verifier.verify(token(name, header=header))).principal.id == f"{ISSUER}|ada"
    else:
        with pytest.raises(InvalidToken):
            asyncio.run(verifier.verify(token(name, header=header)))


def test_the_token_library_is_not_imported_before_the_first_token() -> None:
    code = (
        "import sys; from waypost.identity import Authentication, OAuthSettings;"
        f"Authentication(oauth=OAuthSettings(issuer={ISSUER!r}, resource={RESOURCE!r}, jwks={key_set('rsa')!r}));"
        "sys.exit('joserfc' in sys.modules)"
    )

    assert subprocess.run([sys.executable, "-c", code], timeout=60, check=False).returncode == 0
