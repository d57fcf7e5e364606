"""The plugins that come with the receiver. They import the plugin contract and nothing else of it."""
