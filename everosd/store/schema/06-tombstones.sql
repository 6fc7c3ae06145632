-- What was removed for good is asked for whenever a session is opened: few rows among very many.

CREATE INDEX lifecycle_rows_for_good ON lifecycle_rows (app, project)
    WHERE action IN ('hard_delete', 'redact', 'removed');
