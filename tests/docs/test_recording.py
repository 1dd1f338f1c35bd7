"""The recording of the demo is drawn by the project, is small, and shows every idea of the tour."""

from __future__ import annotations

from xml.etree import ElementTree

from examples.demo.ideas import IDEAS
from examples.demo.recording import CLEAR, COLUMNS, RECORDING, draw, to_runs

SVG = "{http://www.w3.org/2000/svg}"


def test_the_recording_shows_every_idea_and_is_small() -> None:
    drawing = ElementTree.fromstring(RECORDING.read_text())
    heads = ["".join(next(iter(frame)).itertext()) for frame in drawing.iter(f"{SVG}g")]
    assert heads == [*(f"{number}/{len(IDEAS)}  {title}" for number, title in enumerate(IDEAS, 1)), "Your turn"]
    assert RECORDING.stat().st_size < 150_000


def test_each_screen_is_a_frame_in_the_colours_of_the_terminal() -> None:
    printed = f"{CLEAR}\n\x1b[1;34mone\x1b[0m plain <&>\r\n{CLEAR}\n\x1b[32mtwo\x1b[0m\r\n"
    first, second = ElementTree.fromstring(draw(printed)).iter(f"{SVG}g")
    spans = [(span.text, span.get("class")) for span in first.iter(f"{SVG}tspan")]
    assert spans == [("one", "b c34"), (" plain <&>", None)]
    assert [span.get("class") for span in second.iter(f"{SVG}tspan")] == ["c32"]


def test_a_long_line_is_wrapped_as_a_terminal_does() -> None:
    lines = [[run.text for run in line] for line in to_runs("x" * (COLUMNS + 3))]
    assert lines == [["x" * COLUMNS], ["xxx"]]
