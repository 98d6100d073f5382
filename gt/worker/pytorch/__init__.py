"""The torch backend: a function of torch for each row of ops.toml, and its collectives."""
