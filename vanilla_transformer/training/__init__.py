"""Floor 5: recipes, the trainer, checkpoints and their mean."""
