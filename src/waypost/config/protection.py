"""What a reload would lose although no file says so: settings, authentication, policies."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from waypost.config.findings import finding, quoted
from waypost.config.includes import absolute_pattern
from waypost.config.snapshots import FileState

if TYPE_CHECKING:
    from collections.abc import Iterator

    from waypost.config.findings import Finding
    from waypost.config.loading import Loaded
    from waypost.config.nodes import Node
    from waypost.settings import Auth

MAX_NAMES = 5
_UNFINISHED = (
    "the file no longer ends as it did, as if it were half written; if it is complete, end it with a line `...`"
)


def find_losses(before: Loaded, after: Loaded) -> list[Finding]:
    """Find what keeps a configuration from taking the place of the running one; both are free of errors.

    - A file that held something is empty, has become a directory, or was the last one that an include pattern matched.
    - Callers without a key would be accepted, or every key and the authorization server would be gone, and no file
      that changed says so.
    - A policy is gone with the section, or the file, in which it stood.
    - The rights of callers or a policy changed in a file that may be half written.
    """
    lost_files = list(_find_lost_files(before, after))
    return lost_files or [*_find_lost_auth(before, after), *_find_lost_policies(before, after)]


def _find_lost_files(before: Loaded, after: Loaded) -> Iterator[Finding]:
    for path, state in after.snapshot.files.items():
        known = before.snapshot.files.get(path)
        if state.is_blank and known is not None and not known.is_blank:
            way = "write `{}` into it" if path in after.files else "remove its name from the configuration"
            message = f"the file is empty and was not before; if you mean it, {way}"
            yield finding(str(path), 1, (), message, "CFG034")
    for path in before.files:
        if path not in after.files and path.is_dir():
            yield finding(str(path), 1, (), "the file has become a directory; restore the file", "CFG002")
    for asked in before.snapshot.matches:
        if _has_match(before, asked) and asked in after.snapshot.matches and not _has_match(after, asked):
            message = f"the pattern {quoted(asked[0])} no longer matches a file with settings; restore one or remove it"
            yield _pattern(after, asked).finding(("include",), message, "CFG034")


def _has_match(loaded: Loaded, asked: tuple[str, str]) -> bool:
    """Whether a pattern matches a file that is not empty."""
    paths = (Path(os.path.abspath(os.path.join(asked[1], name))) for name in loaded.snapshot.matches[asked])
    return any(not loaded.snapshot.files[path].is_blank for path in paths if path in loaded.snapshot.files)


def _pattern(loaded: Loaded, asked: tuple[str, str]) -> Node:
    include = loaded.root.at("include")
    patterns = include.value if include is not None and isinstance(include.value, list) else []
    return next((node for node in patterns if node.value == absolute_pattern(*asked)), loaded.root)


def _find_lost_auth(before: Loaded, after: Loaded) -> Iterator[Finding]:
    old, new = before.config.auth, after.config.auth
    if old is None or _is_unprotected(old):
        return
    if new is None:
        message = "the section is gone, and callers would need no key; if you mean it, write `auth: {anonymous: true}`"
        written = before.root.at("auth")
        assert written is not None
        yield finding(written.file, 1, ("auth",), message, "CFG069")
        return
    place = after.root.at("auth") or after.root
    opens = _accepts_anonymous(new) and (_is_unprotected(new) or not _accepts_anonymous(old))
    says_so = new.anonymous not in (None, False) and _is_stated(before, after, "anonymous")
    if opens and not says_so:
        message = "callers without a key would be accepted; if you mean it, write `anonymous: true` in the changed file"
        yield place.finding(("auth",), message, "CFG069")
    elif (old.keys or old.oauth) and not (new.keys or new.oauth or says_so or _is_stated(before, after, "keys")):
        message = "all keys and the authorization server are gone; if you mean it, write `keys: []`"
        yield place.finding(("auth",), message, "CFG069")
    elif _alters_rights(old, new):
        for source in before.sources.values():
            written, path = _section(before, source.path, "auth"), source.path
            if written and path in after.files and _is_cut(before, after, written, _section(after, path, "auth")):
                message = f"the rights of callers would change, but {_UNFINISHED}"
                yield finding(str(path), 1, ("auth",), message, "CFG069")


def _accepts_anonymous(auth: Auth) -> bool:
    return not (auth.keys or auth.oauth) if auth.anonymous is None else auth.anonymous is not False


def _is_unprotected(auth: Auth) -> bool:
    """Whether it does the same as no section at all."""
    return not (auth.keys or auth.oauth) and auth.anonymous in (None, True)


def _alters_rights(old: Auth, new: Auth) -> bool:
    """Whether callers that are still accepted get other roles, permissions or scopes, which policies go by."""
    rights = {key.id: (key.roles, key.permissions, key.scopes) for key in old.keys}
    return (_accepts_anonymous(new) and new.anonymous != old.anonymous) or any(
        rights.get(key.id, given) != given for key in new.keys for given in [(key.roles, key.permissions, key.scopes)]
    )


def _is_stated(before: Loaded, after: Loaded, key: str) -> bool:
    """Whether a key of `auth` has a value in a file that is not as it was."""
    node = after.root.at("auth", key)
    if node is None or node.is_implied:
        return False
    path = after.sources[node.file].path
    known = before.snapshot.files.get(path, FileState())
    return after.snapshot.files[path].content != known.content


def _find_lost_policies(before: Loaded, after: Loaded) -> Iterator[Finding]:
    lost: dict[Path, list[str]] = {}
    for index, policy in enumerate(before.config.policies):
        node = before.root.at("policies", index)
        assert node is not None
        if policy.enabled and policy not in after.config.policies and not _may_go(policy.name, node, before, after):
            lost.setdefault(before.sources[node.file].path, []).append(policy.name)
    for path, names in lost.items():
        more = f" and {len(names) - MAX_NAMES} more" if len(names) > MAX_NAMES else ""
        which = f"{', '.join(map(quoted, names[:MAX_NAMES]))}{more}"
        if path not in after.files:
            message = f"{which} would be gone with this file; if you mean it, write `policies: []` in it first"
        elif _section(after, path, "policies") is None:
            message = f"the section is gone, and with it {which}; if you mean it, write `policies: []`"
        else:
            message = f"{which} would be gone or changed, but {_UNFINISHED}"
        yield finding(str(path), 1, ("policies",), message, "CFG069")


def _may_go(name: str, node: Node, before: Loaded, after: Loaded) -> bool:
    """Whether the file that a policy stands in says that it is gone or another one."""
    written = _section(after, before.sources[node.file].path, "policies")
    if written is None:
        return False
    named = [index for index, policy in enumerate(after.config.policies) if policy.name == name]
    if named:
        return not _is_cut(before, after, node, after.root.at("policies", named[0]))
    # A policy that is gone was edited away, and not cut off, where the section holds something new.
    whole = _section(before, before.sources[node.file].path, "policies") or node
    return written.value == [] or not _is_cut(before, after, whole, written)


def _section(loaded: Loaded, path: Path, name: str) -> Node | None:
    """A section that a file itself has a value for."""
    roots = (source.root for source in loaded.sources.values() if source.path == path)
    node = next((root.at(name) for root in roots), None)
    return None if node is None or node.is_implied else node


def _is_cut(before: Loaded, after: Loaded, old: Node, new: Node | None) -> bool:
    """Whether a value of a file that is still read may have changed because the file is half written."""
    path = before.sources[old.file].path
    state, known = after.snapshot.files[path], before.snapshot.files[path]
    # Without its old end, a file is edited rather than cut where the value has something new in it.
    return state.is_beginning_of(known) or (not state.ends_like(known) and (new is None or _is_part(new, old)))


def _is_part(node: Node, whole: Node) -> bool:
    """Whether a node holds nothing that the whole does not hold too."""
    value, known = node.value, whole.value
    if isinstance(value, dict) and isinstance(known, dict):
        return all(key in known and _is_part(child, known[key]) for key, child in value.items())
    if isinstance(value, list) and isinstance(known, list):
        return len(value) <= len(known) and all(map(_is_part, value, known))
    return value == known
