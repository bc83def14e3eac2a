"""``tune report``: what the database holds of runs, as one HTML page with figures that needs nothing beside it."""
