"""What the scrape endpoints of the receiver and of the roll-up share.

It needs the standard library only, so the receiver imports it without Spark and the roll-up is
shipped to a cluster without the receiver.
"""
