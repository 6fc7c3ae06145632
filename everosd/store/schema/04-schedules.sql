-- What the clock and silence start. Operational: a ledger that was made anew counts from its first look.

CREATE TABLE schedules (
    strategy     TEXT PRIMARY KEY,
    cron         TEXT NOT NULL,         -- that it is counted by; empty: none
    zone         TEXT NOT NULL,
    handled_us   INTEGER NOT NULL,      -- fires due up to here have begun, were skipped or missed, or are from before
    attempt      INTEGER NOT NULL,      -- how often the run of handled_us was begun, while it has not come to its end; else 0
    is_quiet     INTEGER NOT NULL       -- 1: the silence that goes on has had its run
) WITHOUT ROWID;

ALTER TABLE runs ADD COLUMN result TEXT; -- what the run says it did
