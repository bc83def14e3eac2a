"""Many problems on several devices: a searcher process for each, and a head that alone writes the database."""
