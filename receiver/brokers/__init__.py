"""What is known of the brokers behind the listeners, from what passes and from questions.

It holds facts and draws conclusions. It sends nothing, and decides about no request.
"""
