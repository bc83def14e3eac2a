"""The SQLite file: the only record of what was measured. Only this package speaks SQL.

``file`` opens a file and reads single tables, ``queries`` joins them, and ``database`` writes. Each module uses
either sqlite-utils, for rows of one table, or plain SQL, for joins, aggregates and the file itself; its first lines say
which.
"""
