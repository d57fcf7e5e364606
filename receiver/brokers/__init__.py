"""What is known of the brokers behind the listeners.

It holds facts and draws conclusions. It sends nothing, and decides about no request.
"""
