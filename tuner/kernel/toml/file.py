"""A kernel's TOML file as data, with the file beside it that has its initial configurations, and with variants that
take over what another has, ``like = "wgmma"``, as a whole file may: ``like = "gemm.toml"``."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tuner.core import paths
from tuner.core.errors import KernelError
from tuner.core.reading import read_at_most
from tuner.kernel.headers import first_file
from tuner.kernel.toml.table import Table, as_table

MAX_FILE_BYTES = 1 << 20
MAX_KEY_PARTS = 20
"""Of a dotted key, of which ``tomllib`` keeps every beginning: 20,000 parts took 1.6 GB. Ours have at most 5."""
_PART = r"""(?:[\w-]+|"(?:\\.|[^"\\\n])*+"?|'[^'\n]*+'?)"""
_WORDS = re.compile(
    r'''"""(?:\\.|[^\\])*?(?:"""|\Z)|'''
    + r"""'''.*?(?:'''|\Z)|\#[^\n]*+|(?P<number>0[box]\w{1000})|"""
    + _PART
    + rf"(?P<key>(?:[ \t]*\.[ \t]*{_PART}){{{MAX_KEY_PARTS}}})?",
    re.DOTALL,
)
"""A text, a comment, a word, or the beginning of an integer too long to be printed, or of a key of too many parts."""


@dataclass(frozen=True)
class KernelFile:
    """What a kernel's file holds."""

    path: Path
    data: dict[str, Any]
    initial: KernelFile | None = None
    """The file that has the initial configurations, if it names one."""


def read_file(path: Path) -> KernelFile:
    """Return what a kernel's file holds, and what the one with its initial configurations does.

    Raises:
        KernelError: one cannot be read, or is no TOML.
    """
    data = _read_whole(path)
    if not isinstance(name := data.get("initial"), str):
        return KernelFile(path, data)
    beside = _beside(path, name, "initial", '[[initial]], or "NAME.initial.toml"')
    return KernelFile(path, data, KernelFile(beside, read_toml(beside)))


MAX_LIKE = 4
"""Files of which each is like the next."""
ADDED = "added by like"
"""Key of the parameters that an initial configuration gets where its variant has them."""


def _read_whole(path: Path, depth: int = 0) -> dict[str, Any]:
    """Return what a kernel's file holds, with what it takes over from the one that it is like.

    Of each table, and of a variant's, the entries that it does not give are the other's, and ``false`` drops one.
    ``like = { file = "gemm.toml", arguments.c = ["bias"] }`` gives each launch that takes ``c`` further ones, behind
    its others, and ``initial.unroll = 2`` each initial configuration a parameter, where its variant has it.
    """
    own = read_toml(path)
    if "like" not in own:
        return own
    top = Table(own, path.name)
    like = {"file": given} if isinstance(given := top.get("like", (str, dict)), str) else given
    table = Table(like, f"{path.name}: like")
    file, more, first = (
        table.get("file", str),
        table.get("arguments", dict, {}),
        table.get("initial", dict, {}),
    )
    table.only("file", "arguments", "initial")
    if depth == MAX_LIKE:
        top.fail(f"like = {file!r} goes on too long", f"have at most {MAX_LIKE} files")
    base = _read_whole(_beside(path, file, "like", '"NAME.toml"'), depth + 1)
    whole = {**base, **{key: value for key, value in own.items() if key != "like"}}
    for key, taken in base.items():
        given = own.get(key, {})
        for name in [name for name, value in as_table(given).items() if value is False]:
            top.require(name, taken, f"{key}: {name!r} = false drops what is not taken over")
        if key == "variants" and isinstance(given, dict):
            both = Table({**taken, **given}, f"{path.name}: variants")
            whole[key] = {
                name: _merged(taken[name], both.table(name)) if name in taken and name in given else table
                for name, table in both.data.items()
                if table is not False
            }
        elif isinstance(taken, dict) and isinstance(given, dict):
            whole[key] = {name: value for name, value in {**taken, **given}.items() if value is not False}
    if False in as_table(own.get("variants")).values() and not isinstance(whole.get("initial"), str):
        _drop_unused(whole, own)
    for name, further in more.items():
        if not isinstance(further, list):
            table.fail(f"arguments.{name} = {further!r}", 'list arguments, such as ["bias"]')
        for launch in _launches(whole):
            if name in (one.get("name") if isinstance(one, dict) else one for one in launch["arguments"]):
                launch["arguments"] = [*launch["arguments"], *further]
    if first:
        rules = whole.get("initial")
        if "initial" in own or not isinstance(rules, list):
            table.fail("initial adds to what is taken over, which is none", "write parameters in [[initial]]")
        whole["initial"] = [{**one, ADDED: first} if isinstance(one, dict) else one for one in rules]
    return whole


def _drop_unused(whole: dict[str, Any], own: Mapping[str, Any]) -> None:
    """Leave out definitions that were taken over and are of variants that were not."""
    definitions = whole.get("definitions", {})
    texts = [*_texts({key: value for key, value in whole.items() if key != "definitions"})]
    texts += _texts(own.get("definitions", {}))
    used: set[str] = set(own.get("definitions", {}))
    while texts:
        new = set(re.findall(r"\w+", texts.pop())) & definitions.keys() - used
        used |= new
        texts += (str(definitions[name]) for name in new)
    whole["definitions"] = {name: text for name, text in definitions.items() if name in used}


def _texts(data: Any) -> Iterator[str]:
    """Yield the texts of a file's data but names, reasons and documentation."""
    if isinstance(data, str):
        yield data
    for item in data if isinstance(data, list) else ():
        yield from _texts(item)
    for key, item in data.items() if isinstance(data, dict) else ():
        if key not in ("doc", "summary"):
            yield from _texts(item)


def _launches(data: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the launches of a file's variants and of its reference, as far as they are tables."""
    tables = [as_table(data.get("reference")).get("cuda")]
    for variant in as_table(data.get("variants")).values():
        launches = as_table(variant).get("launches")
        tables += launches if isinstance(launches, list) else ()
    yield from (table for table in map(as_table, tables) if isinstance(table.get("arguments"), list))


def _beside(path: Path, name: str, key: str, example: str) -> Path:
    """Return the file that a kernel's file names, beside it or among the tuner's own."""
    if not name.endswith(".toml"):
        raise KernelError(f"{path.name}: {key} = {name!r} is no TOML file", f"write {example}")
    if (file := first_file(folder / name for folder in (path.parent, paths.search_spaces()))) is None:
        remedy = f"put it beside {path.name}, or correct the name"
        raise KernelError(f"{path.name}: {key} = {name!r}: no such file", remedy)
    return file


def read_toml(path: Path) -> dict[str, Any]:
    """Return what a TOML file holds.

    Raises:
        KernelError: it cannot be read, or is no TOML.
    """
    if any("\ud800" <= letter <= "\udfff" for letter in str(path.absolute())):  # no compiler takes such names
        raise KernelError(
            f"{path}: its path is no UTF-8", "rename or move it, or set a locale such as C.UTF-8"
        )
    try:
        text = read_at_most(path, MAX_FILE_BYTES).decode("utf-8-sig")
        if long := next((found for found in _WORDS.finditer(text) if found.lastgroup), None):
            what = {
                "key": f"a key has more than {MAX_KEY_PARTS} parts",
                "number": "an integer has more than 64 bits",
            }
            line = text.count("\n", 0, long.start()) + 1
            raise KernelError(f"{path}: line {line}: {what[str(long.lastgroup)]}", "shorten it")
        return _parsed(text, path)
    except OSError as error:
        raise KernelError(f"cannot read {path}: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise KernelError(f"{path}: byte {error.start} is not UTF-8", "save the file as UTF-8") from None
    except RecursionError:
        raise KernelError(f"{path}: arrays or inline tables are nested too deeply", "flatten them") from None


def _parsed(text: str, path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except ValueError as error:  # not TOML, or a number of thousands of digits
        lines = text.split("\n")
        said = str(error).partition("; use sys.")[0]
        said = said.replace("at end of document", f"at line {text.rstrip().count(chr(10)) + 1}, the end")
        place = re.search(r"line (\d+)", said)
        line = lines[int(place[1]) - 1] if place else ""
        remedy = ""
        if re.search(r"[\u2018-\u201f]", line):
            remedy = 'write plain quotes, "'
        elif re.search(r"=\s*(True|False)\b", line):
            remedy = "write true or false"
        elif re.search(r"\{\s*(#.*)?\Z|,\s*\}", line):
            remedy = "a table in { } stands on one line, without a comma behind its last entry"
        raise KernelError(f"{path}: not valid TOML: {said}", remedy) from None


BY_NAME = ("parameters", "scratch", "constraints", "pruning")
"""Tables of a variant that are taken over entry by entry; any other key is taken over, or given, as a whole."""
MAX_ENTRIES = 50_000
"""Of all variants together: chains of variants would make a small file large. Those of gemm have 200."""


def complete_variants(data: Mapping[str, Any], file: str) -> Mapping[str, Any]:
    """Return a file's data in which variants have what they take over, and no ``like``.

    Args:
        data: what the file holds.
        file: its name, for errors.

    Raises:
        KernelError: a variant is like one that there is not, or in the end like itself; or it drops what it does not
            take over.
    """
    bases = bases_of(data)
    if not bases:
        return data
    variants = Table(data, file).table("variants").children()
    complete: dict[str, Mapping[str, Any]] = {}
    entries = 0
    for name in variants:
        for one in reversed(_chain(name, variants, complete)):
            table = variants[one]
            complete[one] = _merged(complete[bases[one]], table) if one in bases else table.data
            entries += _entries(complete[one])
            if entries > MAX_ENTRIES:
                table.fail(
                    "variants take over too many parameters and conditions", f"have at most {MAX_ENTRIES}"
                )
    return {**data, "variants": {name: complete[name] for name in variants}}


def bases_of(data: Mapping[str, Any]) -> dict[str, str]:
    """Return the variants that are like another, with the other's name as it is written."""
    tables = {name: as_table(variant) for name, variant in as_table(data.get("variants")).items()}
    return {name: str(table["like"]) for name, table in tables.items() if "like" in table}


def _chain(name: str, variants: Mapping[str, Table], complete: Mapping[str, Any]) -> list[str]:
    """Return a variant, the one that it is like, and so on, up to one that is like none or complete."""
    chain: list[str] = []
    while name not in complete:
        chain.append(name)
        table = variants[name]
        if not table.has("like"):
            break
        name = table.get("like", str)
        table.require(name, [other for other in variants if other != chain[-1]], f"like = {name!r}")
        if name in chain:
            table.fail(f"like = {name!r} leads back to {chain[-1]}", "say of one of them what it has itself")
    return chain


def _merged(base: Mapping[str, Any], own: Table) -> dict[str, Any]:
    """Return a variant with what it takes over."""
    whole = {**base, **{key: value for key, value in own.data.items() if key != "like"}}
    if whole.get("requires") is False:
        own.require("requires", base, "requires = false drops what is not taken over")
        del whole["requires"]
    for key in BY_NAME:
        taken, given = base.get(key, {}), own.data.get(key, {})
        if isinstance(taken, dict) and isinstance(given, dict) and (taken or given):
            whole[key] = _by_name(taken, Table(given, f"{own.where}: {key}"))
    return whole


def _by_name(taken: Mapping[str, Any], given: Table) -> dict[str, Any]:
    """Return the entries taken over, changed or dropped, and then the others; tables in them are merged key by key."""
    entries = dict(taken)
    for name, value in given.data.items():
        if value is False:
            given.require(name, taken, f"{name!r} = false drops what is not taken over")
            del entries[name]
        elif isinstance(value, dict) and isinstance(entries.get(name), dict):
            entries[name] = {**entries[name], **value}
        else:
            entries[name] = value
    return entries


def _entries(variant: Mapping[str, Any]) -> int:
    return sum(len(table) for table in variant.values() if isinstance(table, dict))
