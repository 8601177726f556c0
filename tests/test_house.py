"""The rules of the house, checked with the tests: lint, format, types, layers, documentation."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


def run(*command: str) -> str:
    """Run a module of this environment in the root; the test fails with its output."""
    done = subprocess.run(
        [sys.executable, "-m", *command], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, f"{' '.join(command)}\n{done.stdout}{done.stderr}"
    return done.stdout


def test_ruff_rules() -> None:
    run("ruff", "check", ".")


def test_ruff_format() -> None:
    run("ruff", "format", "--check", ".")


def test_types_are_strict() -> None:
    # Not the Python on the PATH: the one whose packages the tests use.
    run("pyright", "--pythonpath", sys.executable)


def test_import_layers() -> None:
    program = "from importlinter.cli import lint_imports_command; lint_imports_command()"
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_documentation_builds(tmp_path: Path) -> None:
    run("mkdocs", "build", "--strict", "--quiet", "--site-dir", str(tmp_path / "site"))
    assert (tmp_path / "site" / "index.html").exists()


def modules() -> list[Path]:
    return sorted((ROOT / "src" / "regdem").rglob("*.py"))


@pytest.mark.parametrize("path", modules(), ids=lambda path: str(path.relative_to(ROOT / "src")))
def test_modules_open_with_a_docstring(path: Path) -> None:
    text = path.read_text()
    if text.strip():
        assert ast.get_docstring(ast.parse(text)), "say what the module is for"


def test_only_the_command_line_prints() -> None:
    """A `print` below cli/ would end up among somebody's results."""
    printing = [
        str(path.relative_to(ROOT))
        for path in modules()
        if "cli" not in path.parts
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id == "print"
    ]
    assert printing == []


def test_readme_has_two_commands() -> None:
    """The set-up is two commands, and the second is what the CI runs."""
    setup = (ROOT / "README.md").read_text().split("## Set-up", 1)[1].split("\n## ", 1)[0]
    commands = re.findall(r"^    (python3 .*)$", setup, flags=re.MULTILINE)
    assert len(commands) == 2
    assert commands[1].split("#")[0].strip() in (ROOT / ".ci" / "run").read_text()
