"""The messages between the tuner's processes."""
