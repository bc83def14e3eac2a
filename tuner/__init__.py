"""Auto-tuning of generated CUDA kernels: every result is verified, repeatable and kept."""

__version__ = "0.1.0"


def __getattr__(name: str) -> object:
    """Return ``load``, which is imported when it is asked for: commands must not wait for CUDA's bindings."""
    if name == "load":
        from tuner.winners.load import load

        return load
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
