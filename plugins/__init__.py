"""The built-in plugins. They import the plugin contract and ``plugins._shared``."""
