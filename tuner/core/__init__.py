"""What every other package may use: data types, errors, files, statistics, child processes."""
