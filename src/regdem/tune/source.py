"""Where launches come from: a launch file, or a Python function that is recorded.

Both are a `LaunchSource`: a hash, and a `Problem` for every seed. A source is named by a short
text (`launch.json`, `launch.py:function`), and that text is all a measuring process needs to make
the same problem again.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import re
import shutil
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, Protocol

from regdem.binary.atomic import write_atomically
from regdem.errors import InputError, RegdemError, UsageError
from regdem.tune.problem import Problem, Recorder
from regdem.tune.reading import load_launch_file
from regdem.tune.spec import LaunchFile, portable

_PYTHON = re.compile(r"(?P<file>.+\.py):(?P<function>[^\W\d]\w*)\Z")
LAUNCH_FOLDER = "launch"


class LaunchSource(Protocol):
    """What is launched, whoever says so."""

    @property
    def text(self) -> str:
        """The name under which `open_launch` opens it again."""
        ...

    @property
    def varies(self) -> bool:
        """Whether seeds give different inputs."""
        ...

    def sha256(self, seeds: int) -> str:
        """Hash of all that decides the inputs of the first `seeds` seeds."""
        ...

    def problem(self, seed: int) -> Problem:
        """The launches and inputs of a seed. Raises InputError."""
        ...

    def export(self, folder: Path, seeds: int) -> str:
        """Copies it into `folder` for use on another machine; its text there."""
        ...


@dataclass(frozen=True)
class FileSource:
    """A launch file."""

    launch: LaunchFile

    @property
    def text(self) -> str:
        return self.launch.path

    @property
    def varies(self) -> bool:
        return self.launch.varies

    def sha256(self, seeds: int) -> str:
        return self.launch.sha256(seeds)

    def problem(self, seed: int) -> Problem:
        return self.launch.problem(seed)

    def export(self, folder: Path, seeds: int) -> str:
        value, files = portable(self.launch, seeds)
        for name, path in files.items():
            if (folder / name).resolve() != path.resolve():
                shutil.copyfile(path, folder / name)
        text = json.dumps(value, indent=2) + "\n"
        write_atomically(folder / "launch.json", text.encode())
        return "launch.json"


@dataclass(frozen=True)
class PythonSource:
    """A function of a Python file, called with a `Recorder` once per seed."""

    path: Path
    name: str
    function: Callable[[Recorder], Any]

    @property
    def text(self) -> str:
        return f"{self.path}:{self.name}"

    @property
    def varies(self) -> bool:
        return True

    def sha256(self, seeds: int) -> str:
        """Of the file and the function's name: what the file imports or reads is not in it."""
        digest = hashlib.sha256(self.path.read_bytes())
        digest.update(self.name.encode())
        return digest.hexdigest()

    def problem(self, seed: int) -> Problem:
        recorder = Recorder(seed)
        try:
            self.function(recorder)
            return recorder.problem()
        except RegdemError as error:
            if error.file is None:
                error.file = self.text
            raise
        except (Exception, SystemExit) as error:
            raise InputError(
                f"the launch function fails for seed {seed}: {type(error).__name__}: {error}",
                file=self.text,
                code="bad_launch",
            ) from error

    def export(self, folder: Path, seeds: int) -> str:
        target = folder / "launch.py"
        if target.resolve() != self.path.resolve():
            shutil.copyfile(self.path, target)
        return f"launch.py:{self.name}"


def open_launch(text: str) -> LaunchSource:
    """A launch file (JSON or TOML) or `module.py:function`.

    Raises InputError for what can't be read, UsageError where it is neither.
    """
    match = _PYTHON.match(text)
    if match is not None and not Path(text).exists():
        return _python(Path(match["file"]), match["function"])
    if text.endswith(".py"):
        raise UsageError(f"{text} names no function", hint=f"write {text}:FUNCTION")
    return FileSource(load_launch_file(text))


def _python(path: Path, name: str) -> PythonSource:
    if not path.is_file():
        raise InputError("can't be read: no such file", file=str(path))
    module = _import(path.resolve())
    function = getattr(module, name, None)
    if not callable(function):
        defined = [key for key, value in vars(module).items() if callable(value)]
        known = ", ".join(key for key in defined if not key.startswith("_")) or "none"
        raise UsageError(f"no function {name!r}", file=str(path), hint=f"functions: {known}")
    return PythonSource(path.resolve(), name, function)


def _import(path: Path) -> ModuleType:
    """Runs a Python file as a module; files beside it can be imported by it."""
    spec = importlib.util.spec_from_file_location(f"regdem_launch_{path.stem}", path)
    if spec is None or spec.loader is None:
        raise InputError("is no Python file", file=str(path))
    module = importlib.util.module_from_spec(spec)
    folder = str(path.parent)
    sys.path.insert(0, folder)
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        raise InputError(
            f"can't be imported: {type(error).__name__}: {error}",
            file=str(path),
            code="bad_launch",
        ) from error
    finally:
        sys.path.remove(folder)
    return module
