"""The commands that read a database, each with the options that change what it reads."""

from __future__ import annotations

import math
import random
import re

from scripts.hostile_input.beside import NAME
from scripts.hostile_input.databases import CHANGES
from scripts.hostile_input.runner import Command

STATEMENTS = (
    "SELECT * FROM trials",
    "SELECT * FROM runs",
    "SELECT * FROM winners w JOIN trials t ON t.id = w.trial_id",
    "SELECT status, count(*) FROM trials GROUP BY status",
    "SELECT text FROM sources",
    "SELECT * FROM sqlite_master",
    "SELECT * FROM pragma_table_info('trials')",
    "SELECT instr(zeroblob(15000000) || x'01', zeroblob(7000000) || x'01')",
    "SELECT * FROM trials, trials, trials, trials, trials, trials",
    "SELECT hex(zeroblob(15000000))",
    "WITH RECURSIVE c(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM c) SELECT n FROM c",
    "SELECT char(27) || ']0;x' || char(7) || char(8238), '=1+1', x'1b5b'",
    "DELETE FROM trials",
    "ATTACH 'made.db' AS m",
    "SELECT replace(hex(zeroblob(2000000)), '0', 'aaaaaaaaaaaa')",
    "SELECT printf('%.*c', 16000000, 'x') LIKE '%a%a%a%a%a%a%'",
    "SELECT json_extract(configuration, '$') FROM trials",
    "",
    "SELECT 1; SELECT 2",
    "PRAGMA user_version = 5",
    "SELECT load_extension('victim')",
)
PARTS = {
    "FILTER": "[||--kernel gemm|--kernel vector_add|--gpu h200|--dtype float16|--size m=4096|--variant tiled"
    "|--since 30d|--mode cold|--regime rested|--run a]",
    "FILTERS": "FILTER FILTER",
    "QUERY": "query FILTERS [|--sort SORT] [||--status ok] [||--replayed|--measured] --limit [0|5|50]",
    "SORT": "[time|-time|number|id|created|kernel|variant|status|tflops|speed|registers]",
    "TRIAL": "[" + "|".join(map(str, [*range(1, 24), 10_000])) + "]",
    "HEADER": "[|--replayed|--replayed --kernel vector_add|--kernel gemm]",
    "EXPORT": "export -o [out|-] [--kernel gemm|--kernel vector_add|] [--replayed|] --format",
    "RUN": "--kernel vector_add --trials [4|8] --device replay --sampler random",
    "A32": "a" * 32,
}
"""What stands for a part of a command; one of what is in brackets is drawn."""
COMMANDS = tuple(
    tuple(map(str.strip, line.split(":")))
    for line in """
    best: best FILTERS --replayed
    best: best FILTERS
    best --json: best --json --replayed
    best --csv: best --csv --replayed
    table: table FILTERS [|--json|--csv|--full] --replayed
    query --columns: QUERY --columns trial,problem,configuration,time,interval
    query: QUERY
    query --json: QUERY --json
    query --csv: QUERY --csv
    query --sql: query --sql STATEMENT: sql
    query --sql: query --sql STATEMENT [--csv|--json]: sql
    trial: trial TRIAL
    trial --json: trial TRIAL --json
    trial --source: trial TRIAL [--source|--log]
    trial --again: trial TRIAL --again
    table --json: table --json --replayed --full
    bundle: bundle --kernel gemm --replayed -o out: out compiles
    bundle --few: bundle --kernel gemm --few -o out: out compiles
    db check: db check
    db backup: db backup out: out
    db merge: db merge tuning.db --db out: out
    db delete: db delete [aaaa|A32] --yes: tuning.db
    export header: export HEADER -o out.hpp: out.hpp
    export header: export HEADER -o out.hpp: out.hpp
    export header -: export HEADER -o -
    export t4: EXPORT t4: out
    export kernel-tuner-cache: EXPORT kernel-tuner-cache: out
    export optuna: export -o out [--kernel gemm|--kernel vector_add|] [--replayed|] --format optuna: out
    bench --history: bench --history [--kernel gemm|--json|]
    bench: bench --kernel gemm
    report: report -o out [|--all|--kernel gemm|--run A32]: out
    explain --trial: explain --trial TRIAL: compiles
    explain: explain vector_add [--json|]: compiles
    run --resume: RUN --seed 1 --resume --json: tuning.db
    run: RUN -q --json: tuning.db
    """.strip().splitlines()
)
"""A name, the words, and what it makes or is allowed."""


def drawn(words: str, rng: random.Random) -> str:
    """Return words with their parts, one of each choice."""
    while re.search("|".join(rf"\b{part}\b" for part in PARTS), words):
        words = re.sub(r"\b[A-Z0-9]+\b", lambda part: PARTS.get(part[0], part[0]), words)
        words = re.sub(r"\[([^][]*)\]", lambda choices: rng.choice(choices[1].split("|")), words)
    return re.sub(r"\[([^][]*)\]", lambda choices: rng.choice(choices[1].split("|")), words)


def commands(seed: str, number: int, count: int) -> list[Command]:
    """Return the commands for a case: the list is gone through in turn, so that each comes as often."""
    rng = random.Random(f"{seed} commands {number}")
    found = []
    for i in range(count):
        # One more after each round of both lists: all pairs come in time, whatever their lengths.
        turn = number + number // math.lcm(len(COMMANDS), len(CHANGES)) + 11 * i
        kind, words, *notes = COMMANDS[turn % len(COMMANDS)]
        arguments = drawn(words, rng).split()
        statement = rng.choice(STATEMENTS)
        arguments = [statement if word == "STATEMENT" else word for word in arguments]
        database = [] if "--db" in arguments else ["--db", NAME]
        found.append(Command.noted(kind, (*arguments, *database), " ".join(notes)))
    return found
