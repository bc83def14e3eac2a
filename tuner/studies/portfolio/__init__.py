"""``tune portfolio``: few configurations that together run all sizes of a kernel well."""
