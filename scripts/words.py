"""List private words where the field has one, and two rules of structure that no linter checks.

    scripts/run python scripts/words.py                  # everything; exits 1 if anything is left
    scripts/run python scripts/words.py tuner/studies/ladder docs/searching.md
    scripts/run python scripts/words.py --count          # a line for each word and room

A word is looked for in names (whole, or split at underscores and capitals), in text (comments, docstrings, messages,
pages), or in both: :data:`WORDS` says which. What keeps its name on purpose is in :data:`EXCEPTIONS`, each with its
reason: TOML keys, JSON keys, columns, texts stored in databases or evidence, ordinary English.
"""

from __future__ import annotations

import ast
import io
import re
import sys
import tokenize
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from fnmatch import fnmatch
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SEARCHED = ("tuner", "tests", "scripts", "docs", "README.md", "CONTRIBUTING.md")
SUFFIXES = {".py", ".md", ".sh", ".html", ".js", ""}


@dataclass(frozen=True)
class Word:
    """A word that should not be used, and what to say instead."""

    pattern: str
    """A regular expression for one whole word."""
    better: str
    names: bool = True
    """Whether to look in names, split at underscores and capitals."""
    text: bool = True
    """Whether to look in comments, strings and pages."""
    whole: bool = False
    """Whether only a whole name counts: ``found``, not ``found_at``."""


@dataclass(frozen=True)
class Allowed:
    """Where a word may stand, and why."""

    words: str
    """The words, as a regular expression."""
    line: str = ""
    """What the line contains, as a regular expression."""
    files: str = "*"
    """Which files, as a glob."""
    why: str = ""


NAME = {"text": False}
WHOLE = {"text": False, "whole": True}
TEXT = {"names": False}

WORDS = (
    Word("kriging", "gp-ei, Gaussian process"),
    Word("outlooks?", "posterior"),
    Word("believe[ds]?", "fantasize", **NAME),
    Word("promise[ds]?", "expected_improvement", **NAME),
    Word("hints?", "transfer", **NAME),
    Word("trust", "transfer, task correlation", **NAME),
    Word("kinship|kin", "task correlation"),
    Word("enough", "stopping criterion", **NAME),
    Word("seeds|seeded", "initial configurations"),
    Word("rungs?", "step, optimisation step"),
    Word("climb(s|ed|ing)?", "ladder run"),
    Word("stands?", "problem session", **NAME),
    Word("judges?|judged|judging", "candidate measurement, measure, compare"),
    Word("contests?", "interleaved comparison"),
    Word("entrants?", "contestant"),
    Word("rivals?", "baseline, library"),
    Word("lost", "failed", **NAME),
    Word("doubts?", "drift re-measurement"),
    Word("looks?", "probe", **NAME),
    Word("edges", "edge_sizes, edge cases", **NAME),
    Word("awkward", "edge-case"),
    Word("worthwhile", "pruning rule"),
    Word("least", "minimize", **WHOLE),
    Word("terms", "definitions", **WHOLE),
    Word("gathered", "gpc_locality", **NAME),
    Word("places?", "the noun that is meant: index, position, location, row", **NAME),
    Word("found", "what it holds", **WHOLE),
    Word("known", "what it holds", **WHOLE),
    Word("asked", "what it holds", **WHOLE),
    Word("untidy", "scratch_not_zeroed"),
    Word("insist(s|ed|ing)?", "require"),
    Word("allow_s", "deadline_s"),
    Word("whoever|whomever|who|whom", "the thing: a contestant that ..., the process that ..."),
    Word("nobody|somebody|everybody", "no process, no caller, nothing"),
    Word('"""Gives?', "Return ...", **TEXT),
)

STORED = "JSON key, column, TOML key or stored text: keeps its name"
EXCEPTIONS = (
    Allowed(".*", files="scripts/words.py", why="this list"),
    # Names that are kept on purpose.
    Allowed(
        "rungs?|rivals?|seeds?|seeded|places?|known|worthwhile|least|terms|lost|edges|promise|contests?|asked",
        r"""["'](?:rungs?:?|rivals?|rival_ns|seeds?|seeded|places?|known|worthwhile|least|terms|lost|edges|contests?"""
        r"""|asked)["']""",
        why=STORED,
    ),
    Allowed("rungs?", r"""["'`]rung:""", why=f"contestants of a stored ladder; {STORED}"),
    Allowed("seeds|least|terms|worthwhile|places", files="tuner/kernel/toml/old_keys.py", why="old keys"),
    Allowed("seeds|least|terms|worthwhile|places", r"`[^`]*`", files="docs/kernel-files.md", why="old keys"),
    Allowed("seeds|least|terms|worthwhile|places", files="tests/kernel/test_old_keys.py", why="old keys"),
    Allowed("seeds", files="tests/search/test_initial_file.py", why="old keys"),
    Allowed("rung|seeds", r"--rung|--seeds", why="old spellings of options, kept for a release"),
    Allowed("kriging", r"alias|kriging.*gp-ei|gp-ei.*kriging", why="an alias of gp-ei for a release"),
    Allowed("kriging", r"\bsampler\W+kriging", why="the former name of gp-ei, which stored runs have"),
    Allowed("kriging", files="scripts/page_figures/search.py", why="the name in the evidence"),
    Allowed(
        "kriging",
        r"Ginsbourger|believer|well-suited to parallelize",
        why="titles and terms of the literature",
    ),
    Allowed("rungs?", files="scripts/page_figures/ladders.py", why="the word in the evidence"),
    Allowed("seeds|seeded", r"search-seed(?:s|ed)", why="evidence of that name"),
    Allowed("rivals?", r"scripts[/.]rivals|rivals/build|cccl-rivals", why="a folder and its libraries"),
    Allowed("rivals?|rivalerror", files="scripts/rivals/*", why="what that folder holds: others' kernels"),
    Allowed("rivals?|rivalerror", files="tests/scripts/test_*rival*.py", why="tests of that folder"),
    # Other meanings of a word.
    Allowed("found|known|asked|places?|least|terms", files="tests/*", why="a local name of a few lines"),
    Allowed("found|known|asked|places?|least|terms", files="scripts/*", why="a local name of a few lines"),
    Allowed(
        "least",
        files="tuner/gpu/*",
        why="the smallest number of samples, or the shortest time: ordinary English",
    ),
    Allowed("least", files="tuner/inspect/tools/*", why="the smallest problem: ordinary English"),
    Allowed("enough", files="tuner/gpu/open_baseline.py", why="seconds that are enough: ordinary English"),
    Allowed(
        "place|places", r"\b(?:in_place|out_of_place|place_?holder)", why="in place: a term of the field"
    ),
    Allowed("edges|judged", r"edges_verified|--edges", why=f"an option; {STORED}"),
    Allowed("looks?", r"look_up|look_ahead|lookup", why="look up: ordinary English"),
    Allowed("hints?", r"get_type_hints|load_hint|store_hint|hint_", why="type hints; hints to the cache"),
    Allowed(
        "seeds|seeded",
        r"random seeds|equal seeds|same seeds|other seeds|\d+ seeds|seeds?\b.*--seed|--seed\b|first_seed",
        why="numbers that start random generators",
    ),
    Allowed(
        "seeds|search_seeds",
        r"\bfor seed in (?:given\.search_)?seeds\b|search_seeds\)",
        files="scripts/*",
        why="numbers that start random generators",
    ),
    Allowed("gathered", files="tests/runtime/test_cluster_order.py", why="a parameter of the templates"),
    Allowed("edges", files="tests/inspect/explain/test_hot_path.py", why="edges of a control-flow graph"),
    Allowed("rungs?", r"successive halving|Hyperband", why="the field's own meaning"),
    Allowed(
        "who|whom|nobody|somebody|everybody|whoever", r"other processes|[Pp]eople|\busers?\b", why="people"
    ),
)

LAZY = {
    "tuner/__init__.py": "tuner.__getattr__: a program that imports tuner pays only for what it uses",
    "tuner/cli/loader.py": "the loader of command bodies",
}
"""Modules that may import inside functions, and why."""
OPTIONAL = {"matplotlib", "nvMatmulHeuristics", "torch", "cuda", "distributed", "cryptography"}
"""Packages that may be missing; cuda: its bindings load the driver, which only the measuring process may do."""


@dataclass(frozen=True)
class Hit:
    """One occurrence."""

    file: str
    line: int
    word: str
    better: str
    text: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.word} -> {self.better} | {self.text.strip()[:110]}"


@cache
def in_name(name: str) -> tuple[str, str] | None:
    """Return the word that a name holds, and what is better; None if it holds none."""
    whole = name.strip("_").lower()
    split = [piece.lower() for piece in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z0-9]+", name)]
    for word in WORDS:
        for one in [whole] if word.whole or not word.names else [whole, *split]:
            if word.names and re.fullmatch(word.pattern, one):
                return one, word.better
    return None


IN_TEXT = [word for word in WORDS if word.text]
TEXT_PATTERN = re.compile("|".join(rf"(?<![\w`])({word.pattern})(?!\w)" for word in IN_TEXT), re.IGNORECASE)


def in_text(line: str) -> Iterator[tuple[str, str]]:
    """Return the words that a line of text holds, and what is better."""
    for match in TEXT_PATTERN.finditer(line):
        said = match[0]
        better = next(word.better for word in IN_TEXT if re.fullmatch(word.pattern, said, re.IGNORECASE))
        yield said, better


def pieces(file: Path, source: str) -> Iterator[tuple[int, str, bool]]:
    """Return the names and texts of a file: line, what stands there, whether it is a name."""
    if file.suffix != ".py":
        for number, line in enumerate(source.splitlines(), 1):
            yield number, line, False
        return
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.NAME:
            yield token.start[0], token.string, True
        elif token.type in (tokenize.COMMENT, tokenize.STRING):
            for offset, line in enumerate(token.string.splitlines()):
                yield token.start[0] + offset, line, False


def occurrences(file: Path) -> Iterator[Hit]:
    """Return every occurrence of a word in one file."""
    source = file.read_text(encoding="utf-8")
    lines = source.splitlines()
    name = str(file.relative_to(ROOT))
    for number, piece, is_name in pieces(file, source):
        line = lines[number - 1]
        hit = in_name(piece) if is_name else None
        for word, better in [hit] if hit else [] if is_name else in_text(piece):
            if not allowed(name, line, word):
                yield Hit(name, number, piece if is_name else word, better, line)


def allowed(file: str, line: str, word: str) -> bool:
    """Say whether an exception covers an occurrence."""
    return any(
        re.fullmatch(one.words, word.lower()) and fnmatch(file, one.files) and re.search(one.line, line)
        for one in EXCEPTIONS
    )


def twice() -> Iterator[Hit]:
    """Return the classes of the package whose name another one has, too."""
    classes: dict[str, list[tuple[str, int]]] = defaultdict(list)
    for file in sorted((ROOT / "tuner").rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef):
                classes[node.name].append((str(file.relative_to(ROOT)), node.lineno))
    for name, where in classes.items():
        for file_, line in where if len(where) > 1 else ():
            others = ", ".join(f"{other}:{number}" for other, number in where if other != file_)
            yield Hit(file_, line, f"class {name}", "one name, one class", f"also in {others}")


def late_imports() -> Iterator[Hit]:
    """Return the package's imports inside functions that no reason covers."""
    for file in sorted((ROOT / "tuner").rglob("*.py")):
        name = str(file.relative_to(ROOT))
        if name in LAZY:
            continue
        source = file.read_text(encoding="utf-8")
        lines = source.splitlines()
        inside = {
            inner
            for node in ast.walk(ast.parse(source))
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
            for inner in ast.walk(node)
            if isinstance(inner, (ast.Import, ast.ImportFrom))
        }
        for node in sorted(inside, key=lambda one: one.lineno):
            module = (node.module or "") if isinstance(node, ast.ImportFrom) else node.names[0].name
            if module.split(".")[0] not in OPTIONAL:
                yield Hit(name, node.lineno, "late import", "at the module's top", lines[node.lineno - 1])


def files(arguments: list[str]) -> Iterator[Path]:
    """Return the files to read: those of the arguments, or all."""
    for argument in arguments or SEARCHED:
        start = (ROOT / argument).resolve()
        for file in sorted(start.rglob("*")) if start.is_dir() else [start]:
            if file.is_file() and file.suffix in SUFFIXES and "__pycache__" not in file.parts:
                yield file


def main(arguments: list[str]) -> int:
    """Print what is left; 1 if there is any."""
    count = "--count" in arguments
    paths = [one for one in arguments if not one.startswith("-")]
    hits = [hit for file in files(paths) for hit in occurrences(file)]
    wanted = {str(file.relative_to(ROOT)) for file in files(paths)}
    hits += [hit for hit in (*twice(), *late_imports()) if hit.file in wanted]
    if count:
        rooms = Counter(("/".join(hit.file.split("/")[:2]), hit.better) for hit in hits)
        for (room, better), number in sorted(rooms.items()):
            print(f"{number:6}  {room:24}  {better}")
    else:
        for hit in hits:
            print(hit)
    print(f"{len(hits)} left", file=sys.stderr)
    return 1 if hits else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
