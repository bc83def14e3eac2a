"""The hostile databases and files of scripts/hostile.py, and the verdict on a command that reads them."""
