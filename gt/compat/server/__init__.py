"""The dispatcher as a process, to which clients and workers connect: `python -m gt.server`."""
