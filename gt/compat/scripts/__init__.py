"""Programs by the names that older papers give them: `python -m gt.scripts.top` is `gt top`."""
