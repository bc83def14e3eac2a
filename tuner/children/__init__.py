"""The compile children, and the messages between processes."""
