"""The edge where the traffic is: listeners, connections to the broker, flow control, drain.

Owns sockets and time; decides nothing about a frame (:mod:`receiver.session` does).
"""
