"""What the papers claim of position encodings, tried: results as data, and the report that is written from them."""
