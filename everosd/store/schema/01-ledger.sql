-- The ledger: which files were read, which entries they hold, every change of one by LSN.
-- All of it can be deleted: a start without it reads the Markdown again.

CREATE TABLE meta (
    key   TEXT PRIMARY KEY,
    value TEXT NOT NULL
) WITHOUT ROWID;

CREATE TABLE files (
    path         TEXT PRIMARY KEY,      -- below the root, '/' between segments
    kind         TEXT NOT NULL,
    app          TEXT NOT NULL,
    project      TEXT NOT NULL,
    owner_type   TEXT NOT NULL,
    owner_id     TEXT NOT NULL,
    date         TEXT NOT NULL DEFAULT '',  -- YYYYMMDD: of two equal ids, the one whose file has its date wins
    inode        INTEGER NOT NULL,
    size         INTEGER NOT NULL,
    mtime_ns     INTEGER NOT NULL,
    digest       BLOB NOT NULL,         -- of the bytes last read
    stamp        TEXT NOT NULL DEFAULT '',  -- last_appended_at as last read
    n_entries    INTEGER NOT NULL,
    is_stale     INTEGER NOT NULL DEFAULT 0,  -- to be read again whatever stat says
    warnings     BLOB NOT NULL DEFAULT x'5b5d', -- JSON [{line, reason}]
    error        TEXT,                  -- why its frontmatter or bytes do not parse; NULL: they do
    error_line   INTEGER,
    read_at_us   INTEGER NOT NULL
) WITHOUT ROWID;
CREATE INDEX files_owner ON files (app, project, owner_type, owner_id);

CREATE TABLE entries (
    key          INTEGER PRIMARY KEY AUTOINCREMENT,
    path         TEXT NOT NULL,
    entry_id     TEXT NOT NULL,
    nth          INTEGER NOT NULL,      -- 0 for the first with this id in its file
    position     INTEGER NOT NULL,      -- order in the file
    line         INTEGER NOT NULL,
    form         TEXT NOT NULL,
    kind         TEXT NOT NULL,
    app          TEXT NOT NULL,
    project      TEXT NOT NULL,
    owner_type   TEXT NOT NULL,
    owner_id     TEXT NOT NULL,
    is_shadowed  INTEGER NOT NULL DEFAULT 0,  -- another file has the same id and wins
    digest       BLOB NOT NULL,
    lsn          INTEGER NOT NULL,      -- of its last change
    session_id   TEXT,
    timestamp_us INTEGER NOT NULL,
    parent_type  TEXT NOT NULL DEFAULT '',
    parent_id    TEXT NOT NULL DEFAULT '',
    sender_ids   TEXT NOT NULL DEFAULT '[]',
    memory_type  TEXT NOT NULL DEFAULT '',
    memory_path  TEXT NOT NULL DEFAULT '',
    own_status   TEXT NOT NULL DEFAULT 'active', -- as written in the entry
    status       TEXT NOT NULL DEFAULT 'active', -- after successors: what searches go by
    deprecated_by TEXT,
    expires_us   INTEGER,
    updated_us   INTEGER NOT NULL,
    raw          TEXT NOT NULL,
    UNIQUE (path, entry_id, nth)
);
CREATE INDEX entries_owner ON entries (app, project, owner_type, owner_id, entry_id);
CREATE INDEX entries_kind ON entries (app, project, owner_type, owner_id, kind, timestamp_us) WHERE is_shadowed = 0;
CREATE INDEX entries_parent ON entries (app, project, owner_type, owner_id, parent_id, kind) WHERE parent_id <> '';
CREATE INDEX entries_shadowed ON entries (path) WHERE is_shadowed = 1;

CREATE TABLE deprecations (
    path         TEXT NOT NULL,
    entry_id     TEXT NOT NULL,
    successor    TEXT NOT NULL,
    app          TEXT NOT NULL,
    project      TEXT NOT NULL,
    owner_type   TEXT NOT NULL,
    owner_id     TEXT NOT NULL,
    PRIMARY KEY (path, entry_id)
) WITHOUT ROWID;
CREATE INDEX deprecations_entry ON deprecations (app, project, owner_type, owner_id, entry_id);
CREATE INDEX deprecations_successor ON deprecations (app, project, owner_type, owner_id, successor);

CREATE TABLE events (
    lsn     INTEGER PRIMARY KEY AUTOINCREMENT,
    at_us   INTEGER NOT NULL,
    key     INTEGER NOT NULL,
    change  TEXT NOT NULL,              -- added, modified, removed, status
    path    TEXT NOT NULL
);

CREATE TABLE checkpoints (              -- how far each index has followed
    name       TEXT PRIMARY KEY,        -- of the index; '<name>.next' while its replacement is being built
    generation INTEGER NOT NULL,        -- which folder on disk it is
    lsn        INTEGER NOT NULL,        -- every change up to here is in the index
    cursor     INTEGER,                 -- entries up to this key are in; NULL: all are, only changes follow
    at_us      INTEGER NOT NULL
) WITHOUT ROWID;

CREATE TABLE sequences (                -- highest number ever given, so that none is given twice
    app TEXT NOT NULL, project TEXT NOT NULL, owner_type TEXT NOT NULL, owner_id TEXT NOT NULL,
    prefix  TEXT NOT NULL,
    date    TEXT NOT NULL,
    high    INTEGER NOT NULL,
    PRIMARY KEY (app, project, owner_type, owner_id, prefix, date)
) WITHOUT ROWID;

CREATE TABLE writes (                   -- what the daemon wrote into files that people edit: the base of a three-way merge
    id        INTEGER PRIMARY KEY AUTOINCREMENT,
    path      TEXT NOT NULL,
    stamp     TEXT NOT NULL,            -- last_appended_at after this write
    is_landed INTEGER NOT NULL DEFAULT 0,
    at_us     INTEGER NOT NULL,
    change    BLOB NOT NULL             -- msgpack of log.heal.Write
);
CREATE INDEX writes_path ON writes (path, stamp);
