-- Tables of an EverOS 1.5 `system.db` that a takeover reads or is recognised by: an old format kept as data.

CREATE TABLE cluster (
	created_at DATETIME NOT NULL,
	updated_at DATETIME NOT NULL,
	cluster_id VARCHAR NOT NULL,
	app_id VARCHAR NOT NULL,
	project_id VARCHAR NOT NULL,
	owner_id VARCHAR NOT NULL,
	owner_type VARCHAR NOT NULL,
	kind VARCHAR NOT NULL,
	centroid_blob BLOB NOT NULL,
	count INTEGER NOT NULL,
	last_ts_ms INTEGER NOT NULL,
	preview_json VARCHAR NOT NULL,
	PRIMARY KEY (cluster_id)
);

CREATE TABLE cluster_member (
	created_at DATETIME NOT NULL,
	updated_at DATETIME NOT NULL,
	cluster_id VARCHAR NOT NULL,
	member_id VARCHAR NOT NULL,
	member_type VARCHAR NOT NULL,
	added_ts DATETIME NOT NULL,
	PRIMARY KEY (cluster_id, member_id),
	FOREIGN KEY(cluster_id) REFERENCES cluster (cluster_id)
);

CREATE TABLE conversation_status (
	created_at DATETIME NOT NULL,
	updated_at DATETIME NOT NULL,
	id INTEGER NOT NULL,
	app_id VARCHAR NOT NULL,
	project_id VARCHAR NOT NULL,
	session_id VARCHAR NOT NULL,
	track VARCHAR NOT NULL,
	last_message_ts DATETIME,
	last_memcell_ts DATETIME,
	PRIMARY KEY (id),
	CONSTRAINT uq_conversation_status_session_track UNIQUE (app_id, project_id, session_id, track)
);

CREATE TABLE md_change_state (
	created_at DATETIME NOT NULL,
	updated_at DATETIME NOT NULL,
	md_path VARCHAR NOT NULL,
	kind VARCHAR NOT NULL,
	change_type VARCHAR NOT NULL,
	mtime FLOAT NOT NULL,
	first_seen_at DATETIME NOT NULL,
	last_changed_at DATETIME NOT NULL,
	lsn INTEGER NOT NULL,
	status VARCHAR NOT NULL,
	retryable BOOLEAN,
	last_attempt_at DATETIME,
	retry_count INTEGER NOT NULL,
	error VARCHAR,
	PRIMARY KEY (md_path)
);

CREATE TABLE memcell (
	created_at DATETIME NOT NULL,
	updated_at DATETIME NOT NULL,
	memcell_id VARCHAR NOT NULL,
	app_id VARCHAR NOT NULL,
	project_id VARCHAR NOT NULL,
	session_id VARCHAR NOT NULL,
	track VARCHAR NOT NULL,
	raw_type VARCHAR NOT NULL,
	message_ids_json VARCHAR NOT NULL,
	sender_ids_json VARCHAR NOT NULL,
	payload_json VARCHAR NOT NULL,
	timestamp DATETIME NOT NULL,
	PRIMARY KEY (memcell_id)
);

CREATE TABLE memorize_inbox (
	created_at DATETIME NOT NULL,
	updated_at DATETIME NOT NULL,
	id INTEGER NOT NULL,
	request_id VARCHAR NOT NULL,
	app_id VARCHAR NOT NULL,
	project_id VARCHAR NOT NULL,
	session_id VARCHAR NOT NULL,
	is_final BOOLEAN NOT NULL,
	defer_extraction BOOLEAN NOT NULL,
	payload_json VARCHAR NOT NULL,
	message_count INTEGER NOT NULL,
	status VARCHAR NOT NULL,
	attempt INTEGER NOT NULL,
	last_error VARCHAR,
	PRIMARY KEY (id),
	UNIQUE (request_id)
);

CREATE TABLE reflection_report (
	updated_at DATETIME NOT NULL,
	id VARCHAR NOT NULL,
	cluster_id VARCHAR NOT NULL,
	owner_id VARCHAR NOT NULL,
	app_id VARCHAR NOT NULL,
	project_id VARCHAR NOT NULL,
	mode VARCHAR NOT NULL,
	source_members VARCHAR NOT NULL,
	source_count INTEGER NOT NULL,
	merged_entry_id VARCHAR NOT NULL,
	deprecated_fact_count INTEGER NOT NULL,
	status VARCHAR NOT NULL,
	created_at DATETIME NOT NULL,
	PRIMARY KEY (id)
);

CREATE TABLE unprocessed_buffer (
	created_at DATETIME NOT NULL,
	updated_at DATETIME NOT NULL,
	message_id VARCHAR NOT NULL,
	app_id VARCHAR NOT NULL,
	project_id VARCHAR NOT NULL,
	session_id VARCHAR NOT NULL,
	track VARCHAR NOT NULL,
	sender_id VARCHAR NOT NULL,
	sender_name VARCHAR,
	role VARCHAR NOT NULL,
	timestamp DATETIME NOT NULL,
	content_items_json VARCHAR NOT NULL,
	text VARCHAR NOT NULL,
	tool_calls_json VARCHAR,
	tool_call_id VARCHAR,
	PRIMARY KEY (message_id, app_id, project_id)
);
