import os
import tempfile

with tempfile.TemporaryFile() as file:
    os.truncate(file.fileno(), 1 << 40)


def candidate(x, y):
    y.copy_(x * x + x)
