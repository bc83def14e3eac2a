"""The messages between the tuner's processes: typed records, which msgspec writes and checks."""
