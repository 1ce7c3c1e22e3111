"""One run as an HTML page: training curves, metrics over K, retrievals, density of pairs, a map of the embeddings."""
