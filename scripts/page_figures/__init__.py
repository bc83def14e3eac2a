"""What ``scripts/pages.py`` writes into the pages, one module for each kind of evidence."""
