"""The `gt` command: cli.py dispatches, the other files are a subcommand each; nothing else here."""
