"""Floor 1: exactly what ships in a checkpoint. Needs torch and transformers, and nothing of this package."""
