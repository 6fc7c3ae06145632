-- What the importance in a typed memory was before it was edited, until the row of the edit says so.

CREATE TABLE importance_edits (
    key INTEGER PRIMARY KEY,            -- of the entry
    was TEXT NOT NULL                   -- as written before the first edit of which no row tells; empty: nothing was
);
