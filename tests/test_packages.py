"""What is published: the wheel and the sdist, the image and the unit, tried as far as this machine allows."""

from __future__ import annotations

import configparser
import email
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tomllib
import zipfile
from fnmatch import fnmatch
from pathlib import Path
from typing import Final
from urllib.request import urlopen

import pytest

from tests.ports import free_port
from waypost.cli.main import build_parser
from waypost.version import __version__

pytestmark = pytest.mark.timeout(600)
ROOT: Final = Path(__file__).parents[1]
DOCKERFILE: Final = (ROOT / "Dockerfile").read_text()
UNIT: Final = ROOT / "deploy" / "waypost.service"
PATIENCE: Final = 240
"""Builds and installations, on a machine that does other work too."""
COPIED: Final = (
    "pyproject.toml",
    "constraints.txt",
    "README.md",
    "LICENSE",
    "CHANGELOG.md",
    ".gitignore",
    "src",
    "docs",
)


def copy_sources(folder: Path) -> Path:
    """The files of a fresh checkout that packages are made from."""
    ignored = shutil.ignore_patterns("__pycache__", ".waypost", "node_modules")
    for name in (*COPIED, "examples"):
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, folder / name, ignore=ignored)
        else:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, folder / name)
    return folder


def run(*command: str | Path, cwd: Path, **env: str) -> str:
    """The output of a command, which must succeed."""
    done = subprocess.run(
        list(map(str, command)), cwd=cwd, env={**os.environ, **env}, capture_output=True, text=True, timeout=PATIENCE
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the wheel, built out of the sdist, and the sdist."""
    folder = copy_sources(tmp_path_factory.mktemp("checkout"))
    run(sys.executable, "-m", "build", "--no-isolation", cwd=folder)
    return folder / "dist"


def test_the_wheel_and_the_sdist_pass_the_checks_of_the_index(packages: Path) -> None:
    files = sorted(packages.iterdir())
    assert [file.name for file in files] == [f"waypost-{__version__}-py3-none-any.whl", f"waypost-{__version__}.tar.gz"]

    said = run(sys.executable, "-m", "twine", "check", "--strict", *files, cwd=packages)

    assert said.count("PASSED") == 2


def test_the_wheel_has_the_package_its_types_and_nothing_else(packages: Path) -> None:
    with zipfile.ZipFile(next(packages.glob("*.whl"))) as wheel:
        names = {name for name in wheel.namelist() if not name.startswith(f"waypost-{__version__}.dist-info/")}
        metadata = email.message_from_bytes(wheel.read(f"waypost-{__version__}.dist-info/METADATA"))
    here = {
        str(file.relative_to(ROOT / "src"))
        for file in (ROOT / "src").rglob("*")
        if file.is_file() and "__pycache__" not in file.parts
    }

    assert "waypost/py.typed" in names
    assert names == here
    classifiers = metadata.get_all("Classifier") or []
    assert {f"Programming Language :: Python :: 3.{minor}" for minor in range(11, 15)} <= set(classifiers)
    assert (metadata["License-Expression"], metadata["Requires-Python"]) == ("Apache-2.0", ">=3.11")
    assert metadata["Description-Content-Type"] == "text/markdown"


def test_the_sdist_has_the_sources_of_the_wheel_and_the_docs(packages: Path) -> None:
    with tarfile.open(next(packages.glob("*.tar.gz"))) as sdist:
        top = {name.split("/")[1] for name in sdist.getnames()}

    assert {"src", "docs", "examples", "LICENSE", "README.md", "CHANGELOG.md", "pyproject.toml"} <= top
    assert "tests" not in top


def test_the_version_is_the_same_in_every_file() -> None:
    released = re.findall(
        r"^## \[(\d\S*)\](?: - (\d{4}-\d\d-\d\d))?$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE
    )
    version, date = released[0]
    assert (version, bool(date)) == (__version__, True)
    readme = re.search(r"^This is version (\S+)\. ", (ROOT / "README.md").read_text(), re.MULTILINE)
    assert readme is not None and __version__.startswith(f"{readme[1]}.")
    chart = (ROOT / "deploy" / "helm" / "waypost" / "Chart.yaml").read_text()
    assert re.findall(r"^(?:version|appVersion): \"?([^\"\n]+)\"?$", chart, re.MULTILINE) == [__version__, __version__]
    assert f"image: waypost:{__version__}\n" in (ROOT / "deploy" / "compose.yaml").read_text()
    shown = [page for page in (ROOT / "docs").glob("*.md") if '"db": "' in page.read_text()]
    for page in shown:
        assert set(re.findall(r'"version": "([^"]+)", "db"', page.read_text())) <= {__version__}, page.name


# The image


def instructions() -> list[tuple[str, str]]:
    """The instructions of the Dockerfile, in order, with lines that go on joined."""
    text = re.sub(r"^#.*\n", "", DOCKERFILE, flags=re.MULTILINE).replace("\\\n", " ")
    return [(line.split(maxsplit=1)[0], line.split(maxsplit=1)[1]) for line in text.splitlines() if line.strip()]


def arguments_of(instruction: str) -> list[str]:
    return [argument for name, argument in instructions() if name == instruction]


def is_ignored(name: str) -> bool:
    """Whether a file of the repository is kept from the build, by the last line that fits."""
    ignored = False
    for line in (ROOT / ".dockerignore").read_text().splitlines():
        if line and not line.startswith("#") and fnmatch(name.partition("/")[0], line.removeprefix("!")):
            ignored = not line.startswith("!")
    return ignored


def test_the_steps_of_the_image_make_a_hub_that_answers_its_health_check(tmp_path: Path) -> None:
    source, target = tmp_path / "src", tmp_path / "opt"
    source.mkdir()
    for words in (shlex.split(line) for line in arguments_of("COPY") if not line.startswith("--from")):
        for name in words[:-1]:
            assert not is_ignored(name), name
            copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
            copy(ROOT / name, source / name)
    [build, user] = arguments_of("RUN")
    # What is installed here already stands for the index, and its build tools for those in a build of its own.
    known = {"PYTHONPATH": sysconfig.get_path("purelib"), "PIP_NO_BUILD_ISOLATION": "0", "PIP_NO_INDEX": "1"}
    without_pins = build.replace("--constraint constraints.txt", "").replace("'.[postgres,nats,telemetry]'", ".")
    assert without_pins.count("constraint") == 0
    script = without_pins.replace("/opt/waypost", str(target)).replace("python -m venv", f"{sys.executable} -m venv")
    run("sh", "-e", "-c", script, cwd=source, **known)
    assert "useradd --system" in user

    config = tmp_path / "etc"
    config.mkdir()
    (config / "waypost.yaml").write_text("server: {surface: full}\n")
    port = str(free_port())
    command = [*json.loads(arguments_of("ENTRYPOINT")[0]), *json.loads(arguments_of("CMD")[0])]
    assert command[-2:] == ["--host", "0.0.0.0"]
    process = subprocess.Popen(
        [str(target / "bin" / command[0]), *command[1:-2], "--port", port],
        cwd=config,
        env={"PATH": os.environ["PATH"], "WAYPOST_DATA": str(tmp_path / "data"), **known},
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stderr is not None
        assert "is ready at" in process.stderr.readline()
        [check] = arguments_of("HEALTHCHECK")
        words = json.loads(check.partition("CMD ")[2].replace("8420", port))
        run(sys.executable, *words[1:], cwd=config)
        with urlopen(f"http://127.0.0.1:{port}/health", timeout=PATIENCE) as answer:
            assert json.load(answer)["version"] == __version__
        where = run(target / "bin" / "python", "-c", "import waypost; print(waypost.__file__)", cwd=config, **known)
        assert where.startswith(str(target))
    finally:
        process.terminate()
        process.communicate(timeout=PATIENCE)
    assert process.returncode == 0


def test_the_image_runs_without_root_and_keeps_data_in_a_volume() -> None:
    names = [name for name, _ in instructions()]

    assert arguments_of("USER") == ["waypost"]
    assert arguments_of("VOLUME") == ["/data"]
    assert names.index("USER") < names.index("ENTRYPOINT")
    assert "WAYPOST_DATA=/data" in arguments_of("ENV")[0]
    assert all("slim" in image for image in arguments_of("FROM"))
    command = [*json.loads(arguments_of("ENTRYPOINT")[0]), *json.loads(arguments_of("CMD")[0])][1:]
    assert build_parser("serve").parse_args(command).target == "waypost.yaml"


def test_the_extras_of_the_image_exist() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    named = re.findall(r"'\.\[([\w,]+)\]'", DOCKERFILE)[0].split(",")

    assert set(named) <= set(extras)


@pytest.mark.parametrize("name", [".git", ".venv", "tests", "docs", "dist", ".waypost"])
def test_the_build_gets_nothing_that_it_does_not_copy(name: str) -> None:
    assert is_ignored(name)


# The unit


def read_unit() -> configparser.ConfigParser:
    parser = configparser.ConfigParser(strict=False, interpolation=None, delimiters=("=",))
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    parser.read_string(UNIT.read_text())
    return parser


def test_the_unit_starts_a_hub_without_unneeded_privileges() -> None:
    service = read_unit()["Service"]

    for key in ("ExecStartPre", "ExecStart"):
        command, *words = shlex.split(service[key])
        assert command == "/opt/waypost/bin/waypost"
        assert build_parser(words[0]).parse_args(words).command == words[0]
    assert service["CapabilityBoundingSet"] == ""
    assert service["ProtectSystem"] == "strict"
    assert {service[key] for key in ("DynamicUser", "NoNewPrivileges", "PrivateTmp", "ProtectHome")} == {"yes"}


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="there is no systemd here")
def test_systemd_understands_the_unit_and_rates_it_well(tmp_path: Path) -> None:
    unit = tmp_path / "waypost.service"
    unit.write_text(UNIT.read_text().replace("/opt/waypost/bin/waypost", "/bin/true"))

    verified = subprocess.run(["systemd-analyze", "verify", unit], capture_output=True, text=True, timeout=PATIENCE)
    assert (verified.returncode, verified.stderr) == (0, "")
    rated = subprocess.run(
        ["systemd-analyze", "security", "--offline=true", "--threshold=20", unit],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    assert rated.returncode == 0, rated.stdout.splitlines()[-1]
