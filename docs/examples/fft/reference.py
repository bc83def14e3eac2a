"""What a step of a Fourier transform computes."""

import numpy as np


def step(x):
    """Return the transforms along the first axis, turned by the powers of a root of unity, with the axis moved."""
    radix, count, _ = x.shape
    turns = np.outer(np.arange(radix), np.arange(count)) / (radix * count)
    return (np.fft.fft(x, axis=0) * np.exp(-2j * np.pi * turns)[:, :, None]).transpose(1, 0, 2)
