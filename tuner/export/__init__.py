"""Winners as a C++ header."""
