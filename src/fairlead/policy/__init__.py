"""Pure decisions: what a device is offered as, what stays listed, what fits, who is healthy, what goes where.

The standard library and msgspec only. No files, no sockets, no clock: time comes in as an argument.
"""
