"""Connections of clients and brokers, and their requests, from the socket to a handler and back.

A connection decodes requests, begins them in their order when admission lets it, and sends the
responses in the same order. This room knows handlers only as functions of a request.
"""
