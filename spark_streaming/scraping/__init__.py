"""What the scrape endpoints of the receiver and of the roll-up share.

The receiver imports it without Spark, and the roll-up is shipped to a cluster without the receiver.
"""
