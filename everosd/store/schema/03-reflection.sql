-- Consolidations: what the rows of .clusters/ say of them.

CREATE TABLE reflection_report (        -- one per consolidation; people query it with the sqlite3 shell
    id           TEXT NOT NULL,         -- report_id
    cluster_id   TEXT NOT NULL,
    owner_id     TEXT NOT NULL,
    app_id       TEXT NOT NULL,
    project_id   TEXT NOT NULL,
    owner_type   TEXT NOT NULL,
    mode         TEXT NOT NULL,         -- init or update
    source_members TEXT NOT NULL,       -- JSON [{member_id, member_type}]
    source_count INTEGER NOT NULL,
    merged_entry_id TEXT NOT NULL,
    deprecated_fact_count INTEGER NOT NULL,
    status       TEXT NOT NULL,         -- completed or rolled_back
    created_at   TEXT NOT NULL,         -- ISO 8601, UTC
    updated_at   TEXT NOT NULL,
    sources      TEXT NOT NULL,         -- JSON [[entry id, digest]]: the text that was read
    is_restored  INTEGER NOT NULL,      -- 1: rolled back, and the files say so
    PRIMARY KEY (id, app_id, project_id, owner_type, owner_id)
);
CREATE INDEX reflection_report_owner ON reflection_report (app_id, project_id, owner_type, owner_id, merged_entry_id);
CREATE INDEX reflection_report_created ON reflection_report (app_id, project_id, created_at);
CREATE INDEX reflection_report_unrestored ON reflection_report (created_at)
    WHERE status = 'rolled_back' AND is_restored = 0;

CREATE TABLE report_rows (              -- the rows of .clusters/ that speak of a report
    app          TEXT NOT NULL,
    project      TEXT NOT NULL,
    owner_type   TEXT NOT NULL,
    owner_id     TEXT NOT NULL,
    key          INTEGER NOT NULL,      -- of the row, in entries
    report_id    TEXT NOT NULL,
    place        TEXT NOT NULL,         -- sorts rows as they were written
    PRIMARY KEY (app, project, owner_type, owner_id, key)
) WITHOUT ROWID;
CREATE INDEX report_rows_report ON report_rows (app, project, owner_type, owner_id, report_id, place);

CREATE TABLE narratives (               -- Episodes that say of which report they are
    app          TEXT NOT NULL,
    project      TEXT NOT NULL,
    owner_type   TEXT NOT NULL,
    owner_id     TEXT NOT NULL,
    key          INTEGER NOT NULL,      -- in entries
    report_id    TEXT NOT NULL,
    PRIMARY KEY (app, project, owner_type, owner_id, key)
) WITHOUT ROWID;

-- What says more than it did before this version is read once more.
UPDATE files SET is_stale = 1 WHERE kind = 'cluster'
    OR path IN (SELECT path FROM entries WHERE kind = 'episode' AND parent_type = 'cluster');
