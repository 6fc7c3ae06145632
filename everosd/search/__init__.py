"""From a question to an answer.

In: a query with its owner and bounds. Out: rows of the ledger with scores in [0, 1], best first. Promised: nothing
outside the owner's scope, the filter and the statuses asked for is returned, whatever the query says; bounds act before
ranking; any text is a query and none is a syntax error; the event loop never waits for an index.
"""
