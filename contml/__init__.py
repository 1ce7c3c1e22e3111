"""contml: embeddings whose distances follow the distances between labels."""
