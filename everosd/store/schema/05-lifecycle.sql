-- Typed memories and what the rows of .lifecycle/ say of them and of Episodes.

CREATE TABLE typed_memories (           -- inline fields of memories, and of Episodes that have any of them
    key            INTEGER PRIMARY KEY, -- in entries
    app            TEXT NOT NULL,
    project        TEXT NOT NULL,
    owner_type     TEXT NOT NULL,
    owner_id       TEXT NOT NULL,
    entry_id       TEXT NOT NULL,
    path           TEXT NOT NULL,       -- of the file
    nth            INTEGER NOT NULL,    -- 0 for the first with this id in its file
    kind           TEXT NOT NULL,
    importance     REAL NOT NULL,
    own_importance TEXT NOT NULL,       -- as written; empty: nothing is
    confidence     REAL NOT NULL,
    updated_us     INTEGER,             -- as written; NULL: nothing is
    is_pinned      INTEGER NOT NULL,
    bucket         TEXT NOT NULL,
    scope          TEXT NOT NULL,
    team_id        TEXT NOT NULL,
    semantic_key   TEXT NOT NULL,
    promotion_key  TEXT NOT NULL,
    content_digest TEXT NOT NULL        -- of the text, spelling of no matter; empty for Episodes
);
CREATE INDEX typed_memories_key ON typed_memories (app, project, owner_type, owner_id, semantic_key)
    WHERE semantic_key <> '';
CREATE INDEX typed_memories_content ON typed_memories (app, project, owner_type, owner_id, content_digest)
    WHERE content_digest <> '';

CREATE TABLE lifecycle_rows (           -- what each row of .lifecycle/ says of each entry; audit rows speak of none
    key          INTEGER NOT NULL,      -- of the row, in entries
    app          TEXT NOT NULL,
    project      TEXT NOT NULL,
    owner_type   TEXT NOT NULL,
    owner_id     TEXT NOT NULL,
    target       TEXT NOT NULL,         -- entry id; empty: none
    action       TEXT NOT NULL,
    run_id       TEXT NOT NULL,
    at_us        INTEGER NOT NULL,
    place        TEXT NOT NULL,         -- sorts rows as they were written
    base         TEXT NOT NULL,         -- of a change of status or importance, with what follows
    value        TEXT NOT NULL,
    reason       TEXT NOT NULL,         -- of a change of status
    successor    TEXT NOT NULL,
    since_us     INTEGER,               -- of a decay
    steps        INTEGER NOT NULL,
    version      INTEGER NOT NULL,      -- of a version that ends; 0: none does
    PRIMARY KEY (key, target)
) WITHOUT ROWID;
CREATE INDEX lifecycle_rows_target ON lifecycle_rows (app, project, owner_type, owner_id, target, place);
CREATE INDEX lifecycle_rows_action ON lifecycle_rows (app, project, owner_type, owner_id, action, place)
    WHERE action <> 'usage';
CREATE INDEX lifecycle_rows_successor ON lifecycle_rows (app, project, owner_type, owner_id, successor)
    WHERE successor <> '';

CREATE TABLE lifecycle_state (          -- what all rows about an entry come to, be the entry there or not
    app             TEXT NOT NULL,
    project         TEXT NOT NULL,
    owner_type      TEXT NOT NULL,
    owner_id        TEXT NOT NULL,
    entry_id        TEXT NOT NULL,
    status          TEXT NOT NULL,      -- of the valid row; empty: no row is
    status_us       INTEGER,            -- of that row, with what follows
    reason          TEXT NOT NULL,
    successor       TEXT NOT NULL,
    importance      REAL,               -- of the last decay, with what follows; NULL: it is not valid
    since_us        INTEGER,
    steps           INTEGER NOT NULL,
    anchor_us       INTEGER,            -- last restore, pin, update or edit by hand
    accessed_us     INTEGER,            -- last use
    n_uses          INTEGER NOT NULL,
    moments         TEXT NOT NULL,      -- JSON: activity after since_us, ascending
    n_versions      INTEGER NOT NULL,
    is_redacted     INTEGER NOT NULL,
    PRIMARY KEY (app, project, owner_type, owner_id, entry_id)
) WITHOUT ROWID;

CREATE INDEX entries_away ON entries (app, project, owner_type, owner_id, entry_id)
    WHERE kind = 'episode' AND status IN ('archived', 'deleted', 'expired', 'superseded'); -- their facts are away, too

-- What says more than it did before this version is read once more.
UPDATE files SET is_stale = 1 WHERE kind IN ('memory', 'lifecycle');
