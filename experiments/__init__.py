"""Experiments on the papers' claims about position encodings: results as data, and the report written from them."""
