-- Memories, their keyword index, and what a search needs to know without reading the texts.
-- {tokenizer} is the only part that is filled in: the FTS5 tokenizer of the store, already quoted.

CREATE TABLE meta (
    key TEXT PRIMARY KEY,
    value TEXT NOT NULL
) STRICT, WITHOUT ROWID;

-- A tenant. Its nodes have the numbers from number << 40 on, so that each namespace is one range of rowids in every
-- table: a search reads its own rows alone, in FTS5 too, and counts of words never mix two tenants.
CREATE TABLE namespaces (
    number INTEGER PRIMARY KEY,
    name TEXT NOT NULL UNIQUE,
    last_node INTEGER NOT NULL,          -- the highest number ever given to a node: numbers are not reused
    nodes INTEGER NOT NULL DEFAULT 0,    -- the two sums that bm25 needs
    words INTEGER NOT NULL DEFAULT 0,
    texts_gone INTEGER NOT NULL DEFAULT 0,   -- texts that were ever deleted or replaced: counts of words are then old
    log_head TEXT,                       -- the hash of the last entry of its promotion log
    last_sweep INTEGER
) STRICT;

CREATE TABLE nodes (
    node INTEGER PRIMARY KEY,
    namespace INTEGER NOT NULL REFERENCES namespaces (number),
    id TEXT NOT NULL,
    type TEXT NOT NULL CHECK (type IN ('entity', 'fact', 'experience', 'decision', 'snippet')),
    subtype TEXT,
    tier TEXT NOT NULL CHECK (tier IN ('task', 'session', 'longterm', 'archive')),
    tier_since INTEGER NOT NULL,
    confidence REAL NOT NULL CHECK (confidence BETWEEN 0 AND 1),
    provenance TEXT,
    created_at INTEGER NOT NULL,         -- times are milliseconds since 1970-01-01 UTC
    updated_at INTEGER NOT NULL,
    last_accessed INTEGER,
    access_count INTEGER NOT NULL DEFAULT 0,
    pinned INTEGER NOT NULL DEFAULT 0 CHECK (pinned IN (0, 1)),
    decayed_at INTEGER,                  -- up to when its confidence has been let fade
    place INTEGER,                       -- where its vector lies in node_embeddings; NULL: it has none
    text_hash INTEGER NOT NULL,
    metadata TEXT NOT NULL,
    text TEXT NOT NULL,
    keywords TEXT                        -- what FTS5 indexes instead of the text, where the text needs cutting first
) STRICT;

CREATE UNIQUE INDEX nodes_by_id ON nodes (namespace, id);
-- Covers what is held in memory of each node, so that loading it reads no text.
CREATE INDEX nodes_by_place ON nodes (namespace, place, tier);
CREATE INDEX nodes_by_tier ON nodes (namespace, tier);
-- Finds the vector of a text that was embedded before.
CREATE INDEX nodes_by_text ON nodes (text_hash);

-- Top-level scalars of the metadata, for filters. No affinity: 5 and '5' stay apart; booleans are blobs.
CREATE TABLE node_fields (
    key TEXT NOT NULL,
    value,
    node INTEGER NOT NULL,
    PRIMARY KEY (key, value, node)
) WITHOUT ROWID;

CREATE VIEW node_keywords AS SELECT node, coalesce(keywords, text) AS text FROM nodes;

-- Written by whoever writes nodes, a batch in one statement: a trigger would make FTS5 write its index out for each row
-- (154 us a text in place of 30). It is asked for single words alone, so that it need not know where they stand.
CREATE VIRTUAL TABLE nodes_fts USING fts5(
    text, content = 'node_keywords', content_rowid = 'node', detail = none, tokenize = {tokenizer}
);

-- Sign bits of the vectors, one row a chunk of node_embeddings and in its layout: what a search scans first.
CREATE TABLE vector_signs (
    chunk INTEGER PRIMARY KEY,
    bits BLOB NOT NULL
) STRICT;

-- Nodes whose tier, vector, text or existence changed after they were added: what another process must read again.
-- New nodes are not listed, their numbers are above namespaces.last_node as it was.
CREATE TABLE node_changes (
    sequence INTEGER PRIMARY KEY AUTOINCREMENT,
    node INTEGER NOT NULL
) STRICT;

CREATE TRIGGER nodes_changed AFTER UPDATE OF tier, place, text ON nodes
WHEN old.tier IS NOT new.tier OR old.place IS NOT new.place OR old.text IS NOT new.text BEGIN
    INSERT INTO node_changes (node) VALUES (new.node);
END;

CREATE TRIGGER nodes_deleted AFTER DELETE ON nodes BEGIN
    INSERT INTO node_changes (node) VALUES (old.node);
END;

-- New vectors of a change of the embedding model, until all are there and take the place of the old ones.
CREATE TABLE new_vectors (
    node INTEGER PRIMARY KEY,
    text_hash INTEGER NOT NULL,
    vector BLOB NOT NULL
) STRICT;

-- Runs of agents. One id in two processes is one session.
CREATE TABLE sessions (
    session INTEGER PRIMARY KEY,
    namespace INTEGER NOT NULL REFERENCES namespaces (number),
    id TEXT NOT NULL,
    started_at INTEGER NOT NULL,
    last_active INTEGER NOT NULL,
    ended_at INTEGER,                    -- NULL while it is open; a new access opens it again
    turn INTEGER NOT NULL,               -- the highest turn so far
    UNIQUE (namespace, id)
) STRICT;

CREATE INDEX sessions_open ON sessions (namespace, last_active) WHERE ended_at IS NULL;

-- Every time a node was handed to a reader.
CREATE TABLE accesses (
    access INTEGER PRIMARY KEY,
    session INTEGER NOT NULL REFERENCES sessions (session),
    node INTEGER NOT NULL,
    turn INTEGER NOT NULL,
    at INTEGER NOT NULL,
    confidence REAL NOT NULL,            -- the node's at that moment
    writer TEXT NOT NULL,                -- two processes count the turns of one session each for itself
    run_id TEXT,
    judged INTEGER NOT NULL DEFAULT 0    -- whether an outcome has been attached
) STRICT;

CREATE INDEX accesses_by_session ON accesses (session, judged, node);
CREATE INDEX accesses_by_node ON accesses (node, session, turn);

-- What the rules weigh, kept as the accesses are written: one row a node and session, however often it was used.
CREATE TABLE uses (
    node INTEGER NOT NULL,
    session INTEGER NOT NULL REFERENCES sessions (session),
    uses INTEGER NOT NULL,               -- turns in which it was accessed
    lowest_confidence REAL NOT NULL,
    last_used INTEGER NOT NULL,
    PRIMARY KEY (node, session)
) STRICT, WITHOUT ROWID;

CREATE INDEX uses_by_session ON uses (session, node);

-- How what an access served went, attached to the node.
CREATE TABLE outcomes (
    outcome INTEGER PRIMARY KEY,
    node INTEGER NOT NULL,
    session INTEGER NOT NULL REFERENCES sessions (session),
    run_id TEXT,                         -- a later outcome of the same run corrects the earlier one
    success INTEGER NOT NULL CHECK (success IN (0, 1)),
    at INTEGER NOT NULL,
    learned INTEGER NOT NULL DEFAULT 0,  -- whether the node's confidence has been changed by it
    UNIQUE (node, session, run_id)
) STRICT;

CREATE INDEX outcomes_to_learn ON outcomes (learned) WHERE learned = 0;

CREATE TRIGGER nodes_forgotten AFTER DELETE ON nodes BEGIN
    DELETE FROM accesses WHERE node = old.node;
    DELETE FROM uses WHERE node = old.node;
    DELETE FROM outcomes WHERE node = old.node;
    DELETE FROM edges WHERE source = old.node OR target = old.node;
END;

-- How many bytes of each file of accesses beside this one have been written down here.
CREATE TABLE access_journals (
    name TEXT PRIMARY KEY,
    taken INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- Which node says the same as which.
CREATE TABLE edges (
    source INTEGER NOT NULL,
    target INTEGER NOT NULL,
    kind TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    PRIMARY KEY (source, target, kind)
) STRICT, WITHOUT ROWID;

CREATE INDEX edges_by_target ON edges (target);

-- Every decision about a tier. Each entry holds the hash of the one before it in its namespace.
CREATE TABLE promotion_log (
    sequence INTEGER PRIMARY KEY,
    namespace INTEGER NOT NULL REFERENCES namespaces (number),
    node_id TEXT NOT NULL,
    from_tier TEXT NOT NULL,
    to_tier TEXT NOT NULL,
    rule TEXT NOT NULL,
    moved INTEGER NOT NULL CHECK (moved IN (0, 1)),
    actor TEXT NOT NULL CHECK (actor IN ('auto', 'manual')),
    reason TEXT NOT NULL,
    conditions TEXT NOT NULL,
    session_id TEXT,
    at INTEGER NOT NULL,
    previous_hash TEXT NOT NULL,
    hash TEXT NOT NULL
) STRICT;

CREATE INDEX promotion_log_by_node ON promotion_log (namespace, node_id, sequence);

-- A row that is replaced is not seen by the trigger for DELETE.
CREATE TRIGGER promotion_log_keeps_order BEFORE INSERT ON promotion_log
WHEN new.sequence <= (SELECT max(sequence) FROM promotion_log) BEGIN
    SELECT RAISE(ABORT, 'promotion_log is append-only');
END;

CREATE TRIGGER promotion_log_keeps_entries BEFORE DELETE ON promotion_log BEGIN
    SELECT RAISE(ABORT, 'promotion_log is append-only');
END;

CREATE TRIGGER promotion_log_keeps_words BEFORE UPDATE ON promotion_log BEGIN
    SELECT RAISE(ABORT, 'promotion_log is append-only');
END;

-- Conversations: what was said under a key, in the order of the numbers. They are no memories, and no rule touches them.
CREATE TABLE messages (
    message INTEGER PRIMARY KEY,
    namespace INTEGER NOT NULL REFERENCES namespaces (number),
    key TEXT NOT NULL,
    status TEXT NOT NULL CHECK (status IN ('active', 'archived')),
    at INTEGER NOT NULL,
    content TEXT NOT NULL                -- JSON
) STRICT;

CREATE INDEX messages_by_key ON messages (namespace, key, status, message);

-- Threads of checkpoints. What the values of a thread have in common is stored once, but never shared with another
-- thread: deleting one touches no other, and no content of a tenant is found by means of another's.
CREATE TABLE threads (
    thread INTEGER PRIMARY KEY,
    namespace INTEGER NOT NULL REFERENCES namespaces (number),
    kind TEXT NOT NULL,                  -- whose threads these are; two frameworks may use the same id
    id TEXT NOT NULL,
    era INTEGER NOT NULL DEFAULT (random()),  -- another one once chunks were deleted, whose numbers may be given again
    UNIQUE (namespace, kind, id)
) STRICT;

-- States of a graph, in the order in which they were committed.
CREATE TABLE thread_checkpoints (
    sequence INTEGER PRIMARY KEY,
    thread INTEGER NOT NULL REFERENCES threads (thread),
    graph TEXT NOT NULL,                 -- '' for the graph itself, else the path of a graph inside it
    id TEXT NOT NULL,
    parent_id TEXT,
    created_at INTEGER NOT NULL,
    log_position INTEGER NOT NULL,       -- the last entry of the promotion log, and the last node, at that moment
    last_node INTEGER NOT NULL,
    metadata TEXT NOT NULL,
    encoding TEXT NOT NULL,
    head BLOB NOT NULL,                  -- all but the values of its channels
    -- [channel, version, encoding, depth, length] of each value. They lie in `contents` one after the other. Depth 0: as
    -- it is. Else it lists chunks that hold lists of chunks … that hold, so many levels down, the pieces of the value.
    -- A row a value was measured too: a put took a fifth longer, for it wrote to three b-trees more.
    channels TEXT NOT NULL,
    contents BLOB NOT NULL,
    UNIQUE (thread, graph, id)
) STRICT;

CREATE INDEX thread_checkpoints_in_order ON thread_checkpoints (thread, graph, sequence);
CREATE INDEX thread_checkpoints_by_run ON thread_checkpoints (json_extract(metadata, '$.run_id'))
WHERE json_extract(metadata, '$.run_id') IS NOT NULL;

-- What tasks wrote that ran from a checkpoint; it may get here before the checkpoint itself.
CREATE TABLE thread_writes (
    stored INTEGER PRIMARY KEY,          -- rows of this size are faster to append than to sort into a key
    thread INTEGER NOT NULL REFERENCES threads (thread),
    graph TEXT NOT NULL,
    checkpoint_id TEXT NOT NULL,
    task_id TEXT NOT NULL,
    place INTEGER NOT NULL,
    task_path TEXT NOT NULL,
    channel TEXT NOT NULL,
    encoding TEXT NOT NULL,
    depth INTEGER NOT NULL,              -- as of a value of a checkpoint
    content BLOB NOT NULL,
    UNIQUE (thread, graph, checkpoint_id, task_id, place)
) STRICT;

-- Pieces of values, found again by their hash. Those of a thread have the numbers from thread << 32 on; lists of chunks
-- hold the lower 32 bits, so that they mean the same in a copy of the thread.
CREATE TABLE thread_chunks (
    chunk INTEGER PRIMARY KEY,
    hash BLOB NOT NULL,
    content BLOB NOT NULL
) STRICT;

CREATE UNIQUE INDEX thread_chunks_by_hash ON thread_chunks (chunk >> 32, hash);

-- Collections of JSON values, for what a framework keeps under keys.
CREATE TABLE key_values (
    entry INTEGER PRIMARY KEY,
    namespace INTEGER NOT NULL REFERENCES namespaces (number),
    collection TEXT NOT NULL,
    key TEXT NOT NULL,
    value TEXT NOT NULL,
    UNIQUE (namespace, collection, key)
) STRICT;
