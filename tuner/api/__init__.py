"""Tuning from Python: what ``tuner.tune``, ``tuner.Kernel`` and ``tuner.open`` are made of."""

import warnings

warnings.filterwarnings("ignore", message="IProgress not found")  # of tqdm, which Optuna imports, in a notebook
