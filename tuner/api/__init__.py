"""Tuning from Python: what ``tuner.tune``, ``tuner.Kernel`` and ``tuner.open`` are made of."""

import warnings

# Of tqdm, which Optuna imports, in a notebook without ipywidgets.
warnings.filterwarnings("ignore", message="IProgress not found")
