-- What is made of messages: clusters and corrections as the log says, and records of work that may be lost.

CREATE TABLE cluster_steps (            -- what each row of .clusters/ says of each member
    key          INTEGER NOT NULL,      -- of the row, in entries
    app          TEXT NOT NULL,
    project      TEXT NOT NULL,
    owner_type   TEXT NOT NULL,
    owner_id     TEXT NOT NULL,
    member_id    TEXT NOT NULL,
    member_type  TEXT NOT NULL,
    cluster_id   TEXT NOT NULL,
    similarity   TEXT NOT NULL,
    at_us        INTEGER NOT NULL,
    place        TEXT NOT NULL,         -- sorts rows as they were written
    PRIMARY KEY (key, member_id)
) WITHOUT ROWID;
CREATE INDEX cluster_steps_member ON cluster_steps (app, project, owner_type, owner_id, member_id, place);
CREATE INDEX cluster_steps_cluster ON cluster_steps (app, project, owner_type, owner_id, cluster_id, at_us);

CREATE TABLE clusters (                 -- those that some row speaks of
    app          TEXT NOT NULL,
    project      TEXT NOT NULL,
    owner_type   TEXT NOT NULL,
    owner_id     TEXT NOT NULL,
    cluster_id   TEXT NOT NULL,
    created_us   INTEGER NOT NULL,
    PRIMARY KEY (app, project, owner_type, owner_id, cluster_id)
) WITHOUT ROWID;

CREATE TABLE cluster_members (          -- an entry belongs to one cluster: that of the last row about it
    app          TEXT NOT NULL,
    project      TEXT NOT NULL,
    owner_type   TEXT NOT NULL,
    owner_id     TEXT NOT NULL,
    member_id    TEXT NOT NULL,         -- counts only while there is such an entry
    member_type  TEXT NOT NULL,
    cluster_id   TEXT NOT NULL,
    similarity   TEXT NOT NULL DEFAULT '',
    added_us     INTEGER NOT NULL,
    PRIMARY KEY (app, project, owner_type, owner_id, member_id)
) WITHOUT ROWID;
CREATE INDEX cluster_members_cluster ON cluster_members (app, project, owner_type, owner_id, cluster_id);

CREATE TABLE cluster_changes (          -- members that joined, moved, left or have another text: for who keeps centroids
    n            INTEGER PRIMARY KEY AUTOINCREMENT,
    app          TEXT NOT NULL,
    project      TEXT NOT NULL,
    owner_type   TEXT NOT NULL,
    owner_id     TEXT NOT NULL,
    member_id    TEXT NOT NULL
);

-- Kinds of which more is known than their entries, from this version on, are read once more.
UPDATE files SET is_stale = 1 WHERE kind IN ('cluster', 'atomic_fact', 'memory');

CREATE TABLE corrections (              -- `corrects` of entries: which earlier entry a later one contradicts
    path         TEXT NOT NULL,
    entry_id     TEXT NOT NULL,         -- the later one
    target       TEXT NOT NULL,         -- the earlier one
    app          TEXT NOT NULL,
    project      TEXT NOT NULL,
    owner_type   TEXT NOT NULL,
    owner_id     TEXT NOT NULL,
    PRIMARY KEY (path, entry_id, target)
) WITHOUT ROWID;
CREATE INDEX corrections_target ON corrections (app, project, owner_type, owner_id, target);

CREATE TABLE runs (                     -- of strategies; the seeds' columns
    run_id       TEXT PRIMARY KEY,
    strategy     TEXT NOT NULL,
    trigger      TEXT NOT NULL,         -- event, cron, idle or manual
    status       TEXT NOT NULL,         -- running, success, failed, dead_letter, skipped, released
    attempt      INTEGER NOT NULL,
    started_at   TEXT NOT NULL,
    finished_at  TEXT,
    error        TEXT,
    app          TEXT NOT NULL DEFAULT '',
    project      TEXT NOT NULL DEFAULT '',
    owner_type   TEXT NOT NULL DEFAULT '',
    owner_id     TEXT NOT NULL DEFAULT '',
    topic        TEXT NOT NULL DEFAULT '',
    subject      TEXT NOT NULL DEFAULT '',
    origin       TEXT NOT NULL DEFAULT ''
) WITHOUT ROWID;
CREATE INDEX runs_strategy ON runs (strategy, started_at);
CREATE INDEX runs_status ON runs (status, started_at);

CREATE TABLE edits (                    -- Episodes that people changed or wrote: new facts are taken once they are quiet
    key    INTEGER PRIMARY KEY,         -- of the entry
    lsn    INTEGER NOT NULL,            -- of the newest edit
    at_us  INTEGER NOT NULL,
    change TEXT NOT NULL                -- added or modified
);

CREATE TABLE tasks (                    -- requests with async_mode, for GET tasks
    task_id      TEXT PRIMARY KEY,
    app          TEXT NOT NULL,
    project      TEXT NOT NULL,
    session_id   TEXT NOT NULL,
    task_type    TEXT NOT NULL,         -- memory_add or memory_flush
    status       TEXT NOT NULL,         -- queued, processing, success or failed
    error        TEXT,
    error_code   TEXT,
    created_us   INTEGER NOT NULL,
    finished_us  INTEGER
) WITHOUT ROWID;
CREATE INDEX tasks_created ON tasks (created_us);
