"""An exported header, and a program that selects from it."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from tests.winners.exported_winners import make
from tuner.core.model import Configuration, Gpu, Problem, Value
from tuner.database.records import StoredWinner
from tuner.kernel.roofline import ARCHITECTURES
from tuner.kernel.spec import KernelSpec
from tuner.winners.header import render_header
from tuner.winners.header_needs import KernelFiles
from tuner.winners.header_structs import Structs
from tuner.winners.portfolios import Portfolio

FLAGS = ["-std=c++17", "-Wall", "-Wextra", "-Wpedantic", "-Wconversion", "-Wshadow", "-Werror"]


HOPPER = ARCHITECTURES[90]


def winner_of(problem: Problem, configuration: Configuration, gpu: Gpu = HOPPER) -> StoredWinner:
    stored = make(problem.sizes, 1, gpu, problem.dtypes, dict(problem.options), problem.kernel)
    return replace(stored, winner=replace(stored.winner, configuration=configuration))


def files_of(*kernels: KernelSpec) -> KernelFiles:
    named = {kernel.name: kernel for kernel in kernels}
    return KernelFiles(lambda run: named[run.problem.kernel])


class Header:
    """A header that a program selects from, one line of numbers for each question."""

    def __init__(
        self,
        folder: Path,
        kernel: KernelSpec,
        winners: Sequence[StoredWinner],
        portfolios: Sequence[Portfolio] = (),
    ) -> None:
        self.kernel, self.folder = kernel, folder
        self.slowdowns: list[float] = []
        """Expected of what was selected."""
        text = render_header(winners, files=files_of(kernel), portfolios=portfolios)
        (folder / "tuned.hpp").write_text(text)
        problems = [stored.run.problem for stored in winners]
        configurations = [stored.winner.configuration for stored in winners]
        configurations += [one for portfolio in portfolios for one, _ in portfolio.members]
        self.structs = Structs(kernel.name, kernel, problems, configurations)

    def select(
        self, asked: Sequence[tuple[int, Problem]], compiler: str = "g++"
    ) -> Iterator[tuple[str, Configuration, int, int]]:
        """Yield match, configuration, alignment and bytes of zeroed scratch for pairs of cc and problem."""
        rows = ",\n".join(f"{{{cc}, {{{self.structs.problem(problem)}}}}}" for cc, problem in asked)
        members = " ".join(
            f'std::printf(" %lld", static_cast<long long>(chosen.configuration.{field.name}));'
            for field in self.structs.parameters
        )
        (self.folder / "use.cpp").write_text(
            f"""#include "tuned.hpp"
#include <cstdio>
using namespace kernel_tune::{self.kernel.name};
struct Asked {{ int cc; Problem problem; }};
static const Asked all_asked[] = {{{rows}}};
int main() {{
    for (const Asked& asked : all_asked) {{
        const Selection chosen = select(asked.cc, asked.problem);
        std::printf("%.17g %d %d %lld %d", chosen.expected_slowdown, static_cast<int>(chosen.match),
                    chosen.alignment, chosen.zeroed_once_bytes,
                    static_cast<int>(chosen.configuration.variant));
        {members}
        std::printf("\\n");
    }}
}}
"""
        )
        command = [compiler, *FLAGS, "use.cpp", "-o", "use"]
        done = subprocess.run(command, cwd=self.folder, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr[:3000]
        said = subprocess.run([self.folder / "use"], capture_output=True, text=True, check=True).stdout
        for line in said.splitlines():
            slowdown, *numbers = line.split()
            self.slowdowns.append(float(slowdown))
            match, alignment, zeroed, variant, *values = map(int, numbers)
            matches = ("exact", "portfolio", "other_size", "other_device", "fallback", "none")
            yield matches[match], self._configuration(variant, values), alignment, zeroed

    def _configuration(self, number: int, values: Sequence[int]) -> Configuration:
        variant = self.kernel.variants[self.structs.variants[number]]
        found: dict[str, Value] = {}
        for field, value in zip(self.structs.parameters, values, strict=True):
            if field.name in variant.parameters:
                found[field.name] = field.enumerators[value] if field.enumerators else value
                if field.type == "bool":
                    found[field.name] = bool(value)
        return Configuration.of(variant.name, {name: found[name] for name in variant.parameters})
