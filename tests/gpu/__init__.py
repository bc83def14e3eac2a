"""Tests that need a GPU: a package, so that they may have the names of others."""
