"""The measuring process with less time allowed for a launch, so that fifty hangs take minutes."""

from __future__ import annotations

LAUNCH_S = 1.0
"""Of a launch of a candidate; ten seconds otherwise. The kernel takes 0.05 ms."""


def main() -> None:
    from tuner.gpu import problem, worker

    problem.KNOWN_LAUNCH_S = LAUNCH_S
    worker.main()


if __name__ == "__main__":
    main()
