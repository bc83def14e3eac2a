"""What ``scripts/calls.py`` measures, a module for each kind of figure."""
