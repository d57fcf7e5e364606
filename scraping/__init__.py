"""What the scrape endpoints of the receiver and of the roll-up share.

The receiver and the roll-up import nothing of each other, so this is a package of its own. It needs
the standard library only.
"""
