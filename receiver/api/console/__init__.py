"""The console, a page for operators at ``/``.

It reads and changes over the REST API. It has no build step: its modules are served as they are in
``assets``, and the libraries as their packages have them in ``vendor``.
"""
