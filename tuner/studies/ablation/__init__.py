"""`tune ablate`: what each choice of a configuration is worth."""
