"""What has happened comes in, strategies run on it, each within its settings.

Promised: what fails is tried again and never keeps other work waiting; what was given up is listed and can be run again.
"""
