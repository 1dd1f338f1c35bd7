"""The values of a file that are redacted in all output."""

from __future__ import annotations

from pathlib import Path

import pytest

from waypost import config

FILE = """\
version: "1"
store: {url: "postgresql://hub:pass%20word1@db/waypost"}
bus: {url: "nats://hub:bus-password@bus:4222"}
workers: {token: workers-token, tokens: {mail: mail-token}, secrets: [HOOKS]}
auth:
  oauth:
    issuer: https://issuer.example
    resource: https://hub.example/mcp
    introspection: {endpoint: "https://issuer.example/i", clientId: hub, clientSecret: client-secret}
connections:
  api: {kind: rest, baseUrl: "https://x.example", headers: {Authorization: "Bearer ${API_TOKEN}", Accept: text/plain}}
  tool: {kind: mcp, command: tool,
    env: {TOOL_SECRET: tool-secret, STAGE: production, SHORT_KEY: abc, DB: "${DATABASE_URL}", P: "${DB_PASS}",
      AUTHOR: ada-lovelace}}
workflows:
  one:
    initialState: a
    states:
      a:
        transitions:
          go:
            target: b
            executor: {kind: cli, command: go, env: {DEPLOY_TOKEN: deploy-token, OTHER_TOKEN: $.context.token}}
      b: {terminal: true}
"""


def test_values_with_secret_names_are_secrets_in_every_section(tmp_path: Path) -> None:
    file = tmp_path / "waypost.yaml"
    file.write_text(FILE)

    outside = {"DATABASE_URL": "mysql://app:url-password@db", "DB_PASS": "pass-phrase", "HOOKS": "hook-value"}
    found = config.load(file, {"API_TOKEN": "from-outside", **outside}).secrets

    assert set(found) == {
        "Bearer from-outside",
        "from-outside",
        "tool-secret",
        "deploy-token",
        "workers-token",
        "pass%20word1",
        "pass word1",
        "bus-password",
        "mail-token",
        "client-secret",
        "url-password",
        "pass-phrase",
        "hook-value",
    }


def test_a_variable_with_an_ordinary_name_is_a_secret_if_its_value_is_a_token(tmp_path: Path) -> None:
    file = tmp_path / "waypost.yaml"
    file.write_text(
        'version: "1"\n'
        'connections: {tool: {kind: mcp, command: tool, env: {A: "${SUBSCRIPTION}", B: "${STAGE}", C: "${HOME}"}}}\n'
    )

    outside = {"SUBSCRIPTION": "7f3a9c2d51e04b68", "STAGE": "production", "HOME": "/var/lib/tool"}
    assert config.load(file, outside).secrets == ("7f3a9c2d51e04b68",)


@pytest.mark.parametrize("text", ["", "workers: {}\n", "store: {url: 'sqlite:///x.db'}\n"])
def test_a_file_without_secrets_has_none(tmp_path: Path, text: str) -> None:
    file = tmp_path / "waypost.yaml"
    file.write_text(f'version: "1"\n{text}')

    assert config.load(file).secrets == ()
