"""Other tools' Python interfaces, served by this tuner."""
