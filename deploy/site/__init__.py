"""The docs site: ``python -m deploy.site`` builds it into build/site.

``links`` checks the links of every Markdown page in the repository. ``reference`` writes the pages
that come from code. ``build`` puts both together and runs Sphinx with warnings as errors.
"""
