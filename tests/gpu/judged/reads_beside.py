from pathlib import Path

Path(__file__).with_name("plain.cu").read_text()


def candidate(x, y):
    y.copy_(x * x + x)
