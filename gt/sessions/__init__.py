"""Sessions with a dispatcher: their begin and end, published values, switches, messages.

A file here is a module directly below `gt` (gt/compat/__init__.py): gt/sessions/session.py is the
module `gt.session`.
"""
