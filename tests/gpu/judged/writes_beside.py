from pathlib import Path

Path(__file__).with_suffix(".txt").write_text("x")


def candidate(x, y):
    y.copy_(x * x + x)
