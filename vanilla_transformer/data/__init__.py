"""Floor 2: corpora in, the embedded corpora, learning a vocabulary, batches by token budget."""
