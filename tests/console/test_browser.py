"""Every page and every action in a real Chromium: nothing fails, nothing leaves the hub, and pages are accessible.

The pages are those of the table; one with a variable needs a line in `NAMES`. Screenshots are in
`tests/console/screenshots`, which git ignores.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal, NamedTuple

import pytest
from playwright.sync_api import Browser, Page, Response, sync_playwright

from tests.console.markup import ACTIVE, EVIL, HOSTILE
from tests.interop import npm
from waypost.cli.client import HubClient, RunningHub, read_hub_file, sign_in_url
from waypost.console.pages import PAGES as TABLE

ROOT = Path(__file__).parents[2]
SHOTS = Path(__file__).with_name("screenshots")
NAMES = {"approvals/{id}": "{approval}", "instances/{id}": "{run}", "workflows/{id}": "waits", "catalog/{id}": "echo"}
"""What stands for the variable of a page."""
MORE = (
    "instances/{hostile}",
    "instances?q=alert",
    "catalog?q=script+alert",
    "documents?id=courier",
    "skills?name=greet",
)
"""What pages of the table show only when they are asked."""
PLACES = tuple(
    page.path if "{" not in page.path else f"{page.path.partition('{')[0]}{NAMES[page.path]}" for page in TABLE
)
THEMES: tuple[Literal["light", "dark"], ...] = ("light", "dark")
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


class Desk(NamedTuple):
    """A hub in a process of its own, and a browser."""

    hub: RunningHub
    browser: Browser
    folder: Path
    runs: dict[str, str]

    def open(self, page: Page, path: str) -> Response:
        """Load a page; `{run}` and `{hostile}` are instances that wait for a person, always the same.

        `{approval}` is what the first one waits for.
        """
        if ("{run}" in path or "{approval}" in path) and "run" not in self.runs:
            run = self.runs["run"] = self.ask_for_approval()
            waiting = self.api.get("approvals")["approvals"]
            (self.runs["approval"],) = [one["id"] for one in waiting if one["workflowId"] == run]
        if "{hostile}" in path and "hostile" not in self.runs:
            self.runs["hostile"] = self.ask_with_hostile_strings()
        answer = page.goto(f"{self.hub.url}/console/{path.format(**self.runs)}")
        assert answer is not None
        return answer

    @property
    def api(self) -> HubClient:
        """The API as the hub's own key."""
        return HubClient(self.hub.url, self.hub.key)

    def call(self, tool: str, **arguments: Any) -> Any:
        """Call a tool as the hub's own key."""
        return self.api.post(f"tools/{tool}/call", {"arguments": arguments})["structured"]

    def start(self, definition: str = "release", **given: Any) -> str:
        """The id of a new instance."""
        return str(self.call("workflow.start", definitionId=definition, input=given)["workflowId"])

    def submit(self, run: str, transition: str, **arguments: Any) -> None:
        """Take a transition from where an instance is."""
        version = self.call("workflow.get", workflowId=run)["version"]
        given = {"workflowId": run, "expectedVersion": version, "transition": transition, "arguments": arguments}
        self.call("workflow.submit", **given)

    def ask_for_approval(self) -> str:
        """The id of an instance that waits for a person."""
        run = self.start(service=EVIL)
        self.submit(run, "build", tests=True)
        self.submit(run, "ship")
        return run

    def ask_with_hostile_strings(self) -> str:
        """The id of an instance whose every string tries to be markup, and that waits for a person."""
        run = self.start("waits", **{EVIL: HOSTILE})
        self.submit(run, "note", **{EVIL: HOSTILE})
        self.submit(run, "fail", **{EVIL: HOSTILE})
        self.submit(run, EVIL)
        return run

    def lose_outcome(self, service: str) -> str:
        """The id of an instance with a transition of unknown outcome."""
        run = self.start(service=service)
        self.call("lose", run=run)
        return run


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Desk]:
    executable = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if executable is None:
        pytest.skip("there is no Chromium; `python .ci/chromium.py` installs one")
    data = tmp_path_factory.mktemp("data")
    command = [
        sys.executable,
        "-m",
        "waypost",
        "serve",
        "tests/console/demo.py:hub",
        "--port",
        "0",
        "--data",
        str(data),
    ]
    folder = tmp_path_factory.mktemp("demo")
    environment = {**os.environ, "WAYPOST_DEMO_FOLDER": str(folder)}
    process = subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, text=True, env=environment)
    assert process.stderr is not None
    worker: subprocess.Popen[bytes] | None = None
    try:
        while " is ready at " not in process.stderr.readline():
            assert process.poll() is None, "the hub did not start"
        with sync_playwright() as playwright:
            hub = read_hub_file(data / "hub.json")
            worker = subprocess.Popen(
                [sys.executable, "-m", "tests.console.hostile_worker", str(hub.workers)], cwd=ROOT
            )
            browser = playwright.chromium.launch(executable_path=executable, args=FLAGS)
            desk = Desk(hub, browser, folder, {})
            until = time.monotonic() + 60
            while not any(one["id"] == "courier" for one in desk.api.get("documents")["documents"]):
                assert time.monotonic() < until, "the worker did not connect"
                time.sleep(0.05)
            yield desk
            browser.close()
    finally:
        if worker is not None:
            worker.terminate()
            worker.wait(timeout=60)
        process.send_signal(signal.SIGTERM)
        _, said = process.communicate(timeout=60)
    assert "Traceback" not in said, said


@pytest.fixture
def page(desk: Desk) -> Iterator[Page]:
    """A page of a signed-in person; any error in it fails the test."""
    context = desk.browser.new_context(viewport={"width": 1280, "height": 860})
    page = context.new_page()
    problems: list[str] = []
    page.on("console", lambda said: problems.append(said.text) if said.type in ("error", "warning") else None)
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.on("dialog", lambda dialog: problems.append(f"a dialog: {dialog.message}"))
    page.on("request", lambda sent: None if sent.url.startswith(desk.hub.url) else problems.append(sent.url))
    page.goto(sign_in_url(desk.hub.url, desk.hub.key))
    assert page.url == f"{desk.hub.url}/console/"
    yield page
    context.close()
    # The browser itself reports each answer to bad input.
    assert [
        one for one in problems if not re.search(r"status of (400 \(Bad Request|404 \(Not Found|409 \(Conflict)\)", one)
    ] == []


@pytest.mark.parametrize("path", [*PLACES, *MORE])
def test_a_page_is_whole_inert_and_accessible_in_both_themes(desk: Desk, page: Page, path: str) -> None:
    answer = desk.open(page, path)
    assert (answer.status, len(answer.body()) <= 50_000) == (200, True)
    assert (page.locator("h1").count(), page.locator("main").count()) == (1, 1)
    assert page.title().endswith(" - Waypost")
    assert page.locator("script:not([src]), style, [style]:not(.u-wrap *, .uplot, .uplot *)").count() == 0
    assert page.locator(ACTIVE).count() == 0
    if page.locator("[data-live]").count():
        page.locator("[data-connection=open]").wait_for()
    name = re.sub(r"[^a-z]+", "-", path.partition("?")[0] + ("-one" if "?" in path else "")).strip("-") or "overview"
    check_accessibility(page, name)
    page.set_viewport_size({"width": 390, "height": 800})
    page.screenshot(path=SHOTS / f"{name}-phone.png", full_page=True, caret="initial")
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), "it is wider than a phone"
    cut = "[...document.querySelectorAll('.card.table')].filter(one => one.scrollWidth > one.clientWidth).length"
    assert page.evaluate(cut) == 0, "a table is cut off"


def check_accessibility(page: Page, name: str) -> None:
    """Keep a picture of a page in both themes, and have axe-core find nothing serious in it."""
    npm.install()
    SHOTS.mkdir(exist_ok=True)
    # `evaluate` runs outside of the policy that forbids scripts of others.
    page.evaluate((npm.MODULES / "axe-core" / "axe.min.js").read_text())
    for theme in THEMES:
        page.emulate_media(color_scheme=theme)
        page.screenshot(path=SHOTS / f"{name}-{theme}.png", full_page=True, caret="initial")
        found = page.evaluate("() => axe.run()")["violations"]
        serious = [(one["id"], one["nodes"][0]["html"]) for one in found if one["impact"] in ("serious", "critical")]
        assert serious == [], theme


@pytest.mark.parametrize(
    ("path", "status"),
    [("nothing", 404), ("instances/wf_nothing", 404), ("catalog/nothing", 404), ("audit?after=x", 400)],
)
def test_an_error_is_a_page_with_a_heading_and_its_reason(desk: Desk, page: Page, path: str, status: int) -> None:
    assert desk.open(page, path).status == status
    assert (page.locator("h1").count(), page.locator("main [role=alert]").count()) == (1, 1)
    assert page.title().endswith(" - Waypost")
    check_accessibility(page, f"error-{status}")


def test_the_form_to_sign_in_is_accessible(desk: Desk) -> None:
    context = desk.browser.new_context()
    page = context.new_page()
    page.goto(f"{desk.hub.url}/console/keys")
    assert "/console/sign-in" in page.url
    check_accessibility(page, "sign-in-form")
    context.close()


def test_every_action_of_the_table_is_clicked_in_these_tests() -> None:
    source = "".join(Path(__file__).with_name(name).read_text() for name in ("test_browser.py", "test_browser_hub.py"))
    actions = {action for page in TABLE for action in page.actions} | {"sign-out"}
    assert [action for action in sorted(actions) if f"[data-action={action}]" not in source] == []


def test_an_approval_arrives_live_keeps_typed_text_and_is_approved(desk: Desk, page: Page) -> None:
    page.goto(f"{desk.hub.url}/console/approvals")
    page.locator("[data-connection=open]").wait_for()
    run = desk.ask_for_approval()
    card = page.locator("[data-row]", has=page.locator(f"a[href$='{run}']"))
    card.wait_for()
    assert EVIL in card.inner_text()
    card.locator("[name=reason]").fill("looks good")
    other = desk.ask_for_approval()
    page.locator(f"a[href$='{other}']").wait_for()
    assert card.locator("[name=reason]").input_value() == "looks good"
    page.set_viewport_size({"width": 390, "height": 800})
    page.screenshot(path=SHOTS / "approvals-phone.png", full_page=True, caret="initial")
    card.locator("[data-action=approve]").click()
    assert "Approved." in page.locator("[role=status]").inner_text()
    card.wait_for(state="detached")
    page.locator(f"[data-row]:has(a[href$='{other}']) [data-action=reject]").click()
    page.locator("[role=status]", has_text="Rejected.").wait_for()


def test_an_instance_is_moved_by_a_form_of_its_transition_and_cancelled(desk: Desk, page: Page) -> None:
    run = desk.start(service="shop")
    page.goto(f"{desk.hub.url}/console/instances?q=shop")
    page.click(f"[data-row][data-id='{run}'] a")
    page.locator("summary", has_text="build").click()
    form = page.locator("form", has=page.locator("[name=transition][value=build]"))
    form.locator("textarea").fill("{no json")
    form.locator("[data-action=submit]").click()
    page.locator("[role=alert]", has_text="is not JSON").wait_for()
    assert form.locator("textarea").input_value() == "{no json"
    form.locator("textarea").fill('{"tests": true}')
    form.locator("[data-action=submit]").click()
    page.locator("[role=status]", has_text="now in review").wait_for()
    assert page.locator(".timeline li").first.inner_text().startswith("hub took build and went from draft to review")
    assert page.locator(".graph .taken").count() == 1
    page.locator("summary", has_text="Cancel").click()
    page.fill("[name=reason]", "not needed")
    page.click("[data-action=cancel]")
    page.locator("[role=status]", has_text="Cancelled").wait_for()
    page.set_viewport_size({"width": 390, "height": 800})
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_the_boxes_of_a_graph_hold_the_names_of_the_states(desk: Desk, page: Page) -> None:
    for path in ("workflows/release", "instances/{run}"):
        desk.open(page, path)
        assert page.title() == "release - Waypost" if "{run}" in path else "Release - Waypost"
        held = page.locator(".graph").evaluate(
            """graph => [...graph.querySelectorAll("text.name")].map(name => {
                const inner = name.getBoundingClientRect()
                return [...graph.querySelectorAll("rect.box")].some(box => {
                    const outer = box.getBoundingClientRect()
                    return outer.left < inner.left && inner.right < outer.right
                })
            })"""
        )
        assert held
        assert all(held), held


def test_all_instances_of_a_view_are_shown_before_they_are_cancelled(desk: Desk, page: Page) -> None:
    runs = [desk.start(service="batch") for _ in range(2)]
    page.goto(f"{desk.hub.url}/console/instances?q=batch")
    page.locator("summary", has_text="Act on all").click()
    page.locator("details [data-action=cancel]").click()
    page.locator("[role=status]", has_text="2 instances would be cancelled").wait_for()
    assert all(run in page.locator("#batch").inner_text() for run in runs)
    page.click("#batch [data-action=cancel]")
    page.locator("[role=status]", has_text="2 instances cancelled").wait_for()
    page.click(".chips a >> text=Failed >> nth=0")
    assert "status=failed" in page.url


def test_what_came_of_an_action_is_in_sight_and_has_the_focus(desk: Desk, page: Page) -> None:
    in_sight = (
        "one => { const { top, bottom } = one.getBoundingClientRect(); return top >= 0 && bottom <= innerHeight }"
    )
    for _ in range(20):
        desk.start(service="in-sight")
    page.goto(f"{desk.hub.url}/console/instances?q=in-sight")
    page.locator("summary", has_text="Act on all").click()
    page.locator("details [data-action=cancel]").click()
    message = page.locator("#messages [role=status]", has_text="20 instances would be cancelled")
    message.wait_for()
    assert (message.evaluate("one => one === document.activeElement"), message.evaluate(in_sight)) == (True, True)
    desk.open(page, "catalog/echo")
    page.set_viewport_size({"width": 390, "height": 600})
    page.click("[data-action=call]")
    result = page.locator("#result section", has_text="Result")
    result.wait_for()
    assert result.evaluate("one => one === document.activeElement")
    assert result.locator("h2").evaluate(in_sight)
    # A change that arrives later leaves the focus where the person put it.
    page.set_viewport_size({"width": 1280, "height": 860})
    page.goto(f"{desk.hub.url}/console/keys")
    page.locator("[data-connection=open]").wait_for()
    page.locator("summary", has_text="Create a key").click()
    page.fill("[name=id]", "focus-1")
    page.click("[data-action=create]")
    page.locator("#messages [role=status]", has_text="focus-1").wait_for()
    page.focus("#search")
    desk.api.post("keys", {"id": "focus-2"})
    page.locator("[data-row][data-id=focus-2]").wait_for()
    assert page.evaluate("document.activeElement.id") == "search"


def test_a_time_is_never_said_in_sixty_of_a_unit(desk: Desk, page: Page) -> None:
    page.goto(f"{desk.hub.url}/console/policies")
    said = page.evaluate(
        """() => [59.7, 3599, 86399, 100, -604790].map(age => {
            const time = document.createElement("time")
            time.dateTime = new Date(Date.now() - age * 1000).toISOString()
            document.querySelector("main").append(time)
            showTimes(document)
            return time.textContent
        })"""
    )
    assert said == ["1 minute ago", "1 hour ago", "yesterday", "2 minutes ago", "in 7 days"]


def test_a_key_is_created_shown_until_the_page_is_left_and_revoked(desk: Desk, page: Page) -> None:
    page.goto(f"{desk.hub.url}/console/keys")
    page.locator("[data-connection=open]").wait_for()
    page.locator("summary").click()
    page.fill("[name=id]", "not an id")
    page.click("[data-action=create]")
    page.locator("[role=alert]").wait_for()
    assert page.input_value("[name=id]") == "not an id"
    page.fill("[name=id]", "ci")
    page.click("[data-action=create]")
    page.locator("[data-row][data-id=ci]").wait_for()
    key = page.locator("#new-key").inner_text()
    desk.api.post("keys", {"id": "other"})
    page.locator("[data-row][data-id=other]").wait_for()
    assert page.locator("#new-key").inner_text() == key
    page.click("[data-id=ci] [data-action=revoke]")
    page.locator("[role=status]", has_text="revoked").wait_for()
    page.goto(f"{desk.hub.url}/console/keys")
    assert key not in page.content()


def test_a_changed_definition_is_shown_beside_the_approved_one_and_approved(desk: Desk, page: Page) -> None:
    offers = desk.folder / "turncoat" / "tools.json"
    read, listed = json.loads(offers.read_text())
    offers.write_text(json.dumps([{**read, "description": f"Read a file {EVIL}"}, listed]))
    page.goto(f"{desk.hub.url}/console/upstreams")
    page.click("[data-id=turncoat] [data-action=restart]")
    page.locator("[role=status]", has_text="restarted").wait_for()
    held = page.locator("[data-held=read]")
    assert held.locator("tr.changed td").all_inner_texts() == [
        "Read a file.",
        f"Read a file {EVIL}",
    ]
    page.screenshot(path=SHOTS / "upstreams-held.png", full_page=True, caret="initial")
    held.locator("[data-action=approve]").click()
    page.locator("[role=status]", has_text="read of turncoat approved.").wait_for()
    assert page.locator("[data-held]").count() == 0
    page.locator("[data-id=lost] [data-action=restart]").click()
    page.locator("[role=status]", has_text="lost was restarted and is failed").wait_for()


def test_the_audit_is_filtered_verified_and_exported(desk: Desk, page: Page) -> None:
    page.goto(f"{desk.hub.url}/console/audit")
    page.keyboard.press("/")
    page.fill("[name=capability]", EVIL)
    page.click("text=Filter")
    assert page.input_value("[name=capability]") == EVIL
    page.locator(".empty", has_text="No entry fits this filter").wait_for()
    page.goto(f"{desk.hub.url}/console/audit?action=console.signed_in")
    assert page.locator("[data-row]").count() > 0
    page.click("[data-action=verify]")
    page.locator("[role=status]", has_text="The audit is intact").wait_for()
    with page.expect_download() as download:
        page.click("text=Export")
    lines = download.value.path().read_text().splitlines()
    assert {json.loads(line)["action"] for line in lines} == {"console.signed_in"}


def test_the_times_of_a_filter_are_in_the_zone_of_the_reader_and_in_utc_in_the_address(desk: Desk) -> None:
    context = desk.browser.new_context(timezone_id="Asia/Kolkata")
    page = context.new_page()
    page.goto(sign_in_url(desk.hub.url, desk.hub.key))
    page.goto(f"{desk.hub.url}/console/audit?after=2026-01-01T10:00")
    assert page.input_value("[name=after]") == "2026-01-01T15:30"
    assert "UTC" not in page.locator(".filters").inner_text()
    page.fill("[name=until]", "2026-01-02T00:15")
    page.locator(".filters button").click()
    page.wait_for_url("**after=2026-01-01T10%3A00&until=2026-01-01T18%3A45")
    assert page.input_value("[name=until]") == "2026-01-02T00:15"
    context.close()


def test_a_document_is_published_rendered_and_removed(desk: Desk, page: Page) -> None:
    page.goto(f"{desk.hub.url}/console/documents")
    page.locator("summary").click()
    page.fill("[name=id]", "Not An Id")
    text = f"# Guide {EVIL}\n\nUse **it** for `this`.\n\n- [a](javascript:alert(1))\n- {EVIL}\n\n```\n{EVIL}\n```\n"
    page.fill("[name=skill]", text)
    page.click("[data-action=create]")
    page.locator("[role=alert]").wait_for()
    page.fill("[name=id]", "guide/mail")
    page.click("[data-action=create]")
    page.locator("[role=status]", has_text="published").wait_for()
    page.click("[data-id='guide/mail'] a")
    page.locator(".prose h3", has_text=f"Guide {EVIL}").wait_for()
    assert page.locator(".prose img, .prose a, .prose script").count() == 0
    page.screenshot(path=SHOTS / "documents-one.png", full_page=True, caret="initial")
    page.click("[data-action=remove]")
    page.locator("[role=status]", has_text="removed").wait_for()


def test_a_skill_is_seen_reloaded_rolled_back_and_unloaded(desk: Desk, page: Page) -> None:
    page.goto(f"{desk.hub.url}/console/skills")
    row = page.locator("[data-row][data-id=greet]")
    row.wait_for()
    row.locator("a").click()
    page.locator("pre.source", has_text="def run(args, ctx)").wait_for()
    page.screenshot(path=SHOTS / "skills-one.png", full_page=True, caret="initial")
    row.locator("[data-action=reload]").click()
    page.locator("[role=status]", has_text="greet is loaded again").wait_for()
    row.locator("[data-action=unload]").click()
    page.locator("[role=status]", has_text="greet is unloaded").wait_for()
    row.locator("[data-action=load]").click()
    page.locator("[role=status]", has_text="greet is loaded").wait_for()
    file = desk.folder / "skills" / "greet.py"
    file.write_text(file.read_text().replace("Hello", "Good morning"))
    row.locator("[data-action=reload]").click()
    page.locator("[role=status]", has_text="greet is loaded again").wait_for()
    row.locator("[data-action=rollback]").click()
    page.locator("[role=status]", has_text="greet is back at its previous version").wait_for()


def test_a_skill_is_written_from_a_template_and_loaded(desk: Desk, page: Page) -> None:
    desk.open(page, "skills")
    page.locator("summary", has_text="Load or write a skill").click()
    page.fill("[name=file]", "../secret.py")
    page.click("details [data-action=load]")
    page.locator("[role=alert]").wait_for()
    assert page.input_value("[name=file]") == "../secret.py"
    page.fill("[name=id]", "hello_there")
    page.click("details [data-action=create]")
    page.locator("[role=status]", has_text="is written").wait_for()
    page.locator("summary", has_text="Load or write a skill").click()
    page.fill("[name=file]", "hello_there.py")
    page.click("details [data-action=load]")
    page.locator("[role=status]", has_text="hello_there is loaded").wait_for()


def test_a_tool_is_called_and_its_answers_and_errors_are_text(desk: Desk, page: Page) -> None:
    desk.open(page, "catalog/echo")
    page.locator("[name='arg.text']").fill(HOSTILE)
    page.click("[data-action=call]")
    page.locator("[role=status]", has_text="echo answered").wait_for()
    assert EVIL in page.locator("#result").inner_text()
    assert page.locator(ACTIVE).count() == 0
    desk.open(page, "catalog/fail")
    page.click("[data-action=call]")
    page.locator("[role=alert]", has_text="fail answered with an error").wait_for()
    assert EVIL in page.locator("#result").inner_text()
    assert page.locator(ACTIVE).count() == 0


def test_an_open_circuit_leads_from_the_overview_to_its_tool_and_is_reset(desk: Desk, page: Page) -> None:
    for _ in range(3):
        desk.api.post("tools/stall/call", {})
    page.goto(f"{desk.hub.url}/console/")
    page.locator("[data-row][data-id=stall] a", has_text="Circuit open").click()
    assert page.url == f"{desk.hub.url}/console/catalog/stall"
    note = page.locator(".note", has_text="Its circuit is open for hub, after 3 failures")
    note.wait_for()
    page.screenshot(path=SHOTS / "catalog-circuit.png", full_page=True, caret="initial")
    page.click("[data-action=reset]")
    page.locator("[role=status]", has_text="The circuit of stall is closed").wait_for()
    assert note.count() == 0


def test_an_unknown_outcome_is_resolved_and_retried(desk: Desk, page: Page) -> None:
    done, undone, again = (desk.lose_outcome("unclear") for _ in range(3))
    desk.open(page, f"instances/{done}")
    page.fill("[name=output]", "{no json")
    page.locator("[data-action=resolve]", has_text="It was done").click()
    page.locator("[role=alert]", has_text="is not JSON").wait_for()
    assert page.input_value("[name=output]") == "{no json"
    page.fill("[name=output]", '{"built": true}')
    page.locator("[data-action=resolve]", has_text="It was done").click()
    page.locator("[role=status]", has_text="Resolved as done: now in review").wait_for()
    desk.open(page, f"instances/{undone}")
    page.locator("[data-action=resolve]", has_text="It was not done").click()
    page.locator("[role=status]", has_text="Resolved as not done: now in draft").wait_for()
    desk.open(page, f"instances/{again}")
    page.click("[data-action=retry]")
    page.locator("[role=status]", has_text="Retried: now in review").wait_for()


def test_a_step_that_failed_by_itself_continues(desk: Desk, page: Page) -> None:
    run = desk.start("chained")
    desk.submit(run, "begin")
    desk.open(page, f"instances/{run}")
    assert page.locator(ACTIVE).count() == 0
    page.click("[data-action=retry]")
    page.locator("[role=status]", has_text="Retried: now in worked, succeeded").wait_for()


@pytest.mark.parametrize("action", ["resolve", "retry"])
def test_unknown_outcomes_of_a_view_are_decided_together(desk: Desk, page: Page, action: str) -> None:
    runs = [desk.lose_outcome(f"lost-{action}") for _ in range(2)]
    desk.open(page, f"instances?q=lost-{action}")
    page.locator("summary", has_text="Act on all").click()
    page.click(f"details [data-action={action}]")
    page.locator("[role=status]", has_text="2 instances would be").wait_for()
    assert all(run in page.locator("#batch").inner_text() for run in runs)
    page.click(f"#batch [data-action={action}]")
    page.locator("[role=status]", has_text=re.compile("2 instances (resolved|retried)")).wait_for()


def test_a_workflow_is_simulated_disabled_and_enabled(desk: Desk, page: Page) -> None:
    steps = {"initialState": "a", "states": {"a": {"transitions": {"go": {"target": "b"}}}, "b": {"terminal": True}}}
    desk.api.post("workflows", {"name": "made", "workflow": {"title": HOSTILE, **steps}})
    desk.open(page, "workflows/made")
    page.fill("[name=walks]", "many")
    page.click("[data-action=simulate]")
    page.locator("[role=alert]", has_text="is not a whole number").wait_for()
    assert page.input_value("[name=walks]") == "many"
    page.fill("[name=walks]", "20")
    page.click("[data-action=simulate]")
    page.locator("[role=status]", has_text="20 walks: every state was reached").wait_for()
    page.click("[data-action=disable]")
    page.locator("[role=status]", has_text="made is disabled").wait_for()
    page.click("[data-action=enable]")
    page.locator("[role=status]", has_text="made is enabled").wait_for()
    assert page.locator(ACTIVE).count() == 0


def test_an_instance_with_a_long_history_is_read_part_by_part(desk: Desk, page: Page) -> None:
    run = desk.start("waits")
    for _ in range(21):
        desk.submit(run, "note")
    desk.open(page, f"instances/{run}")
    assert page.locator(".timeline li").count() == 20
    page.click("a[rel=next]")
    assert page.locator(".timeline li").last.inner_text().startswith("hub started it")
    assert page.locator("a[rel=next]").count() == 0
    page.click("text=Latest events")
    assert "before" not in page.url


def test_the_dry_run_names_the_decision_and_the_rule(desk: Desk, page: Page) -> None:
    page.goto(f"{desk.hub.url}/console/policies")
    page.fill("[name=principal]", "anonymous")
    page.fill("[name=capability]", "turncoat.list")
    page.fill("[name=arguments]", "{")
    page.click("[data-action=test]")
    page.locator("[role=alert]", has_text="is not JSON").wait_for()
    assert page.input_value("[name=capability]") == "turncoat.list"
    page.fill("[name=arguments]", "{}")
    page.click("[data-action=test]")
    page.locator("#decision .badge.bad", has_text="deny").wait_for()
    assert EVIL in page.locator("#decision").inner_text()
    page.screenshot(path=SHOTS / "policies-dry-run.png", full_page=True, caret="initial")


def test_pages_are_reached_by_keyboard_and_a_person_signs_out(desk: Desk, page: Page) -> None:
    page.keyboard.press("?")
    assert page.locator("dialog[open] h2").inner_text() == "Keyboard shortcuts"
    page.keyboard.press("Escape")
    page.keyboard.press("g")
    page.keyboard.press("k")
    page.wait_for_url("**/console/keys")
    page.keyboard.press("t")
    assert page.locator("html").get_attribute("data-theme") == "dark"
    page.click("[data-action=sign-out]")
    page.wait_for_url("**/console/sign-in")
    page.screenshot(path=SHOTS / "sign-in.png")
    page.goto(f"{desk.hub.url}/console/keys")
    assert "/console/sign-in?next=" in page.url
