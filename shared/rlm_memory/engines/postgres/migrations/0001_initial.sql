-- The tables of a store. Every key begins with the namespace, so that a tenant is one shard, one partition, one range of
-- every index, and no transaction touches two. {partitioned} is the only part that is filled in: it is empty, or makes
-- each of these tables one of hash partitions.
--
-- Names of the callers' own (ids, keys, names of namespaces) have any length; they are found by uuids made of their
-- hashes, which an index can hold. Times are milliseconds since 1970-01-01 UTC.

CREATE TABLE rlm_meta (
    key text PRIMARY KEY,
    value text NOT NULL
);

-- A tenant. Whoever writes to it holds the lock of its row: writers of one namespace take turns, those of two never
-- meet. Its numbers count what is added, of every kind: there is no sequence that shards would have to share.
CREATE TABLE rlm_namespaces (
    namespace uuid PRIMARY KEY,
    name text NOT NULL,
    last_number bigint NOT NULL DEFAULT 0,
    nodes bigint NOT NULL DEFAULT 0,             -- the two sums that bm25 needs
    words bigint NOT NULL DEFAULT 0,
    log_last bigint NOT NULL DEFAULT 0,          -- the last entry of its promotion log, and the hash of that
    log_head text,
    last_sweep bigint
) {partitioned};

CREATE TABLE rlm_nodes (
    namespace uuid NOT NULL,
    node bigint NOT NULL,
    id text COLLATE "C" NOT NULL,
    id_key uuid NOT NULL,
    type text NOT NULL CHECK (type IN ('entity', 'fact', 'experience', 'decision', 'snippet')),
    subtype text COLLATE "C",
    tier text NOT NULL CHECK (tier IN ('task', 'session', 'longterm', 'archive')),
    tier_since bigint NOT NULL,
    confidence double precision NOT NULL CHECK (confidence BETWEEN 0 AND 1),
    provenance text COLLATE "C",
    created_at bigint NOT NULL,
    updated_at bigint NOT NULL,
    last_accessed bigint,
    access_count bigint NOT NULL DEFAULT 0,
    pinned boolean NOT NULL DEFAULT false,
    decayed_at bigint,                           -- up to when its confidence has been let fade
    embedded boolean NOT NULL,                   -- whether it has a vector
    text_hash bigint NOT NULL,
    metadata text NOT NULL,                      -- JSON as it came: jsonb would make 1e22 of 10000000000000000000000
    text text COLLATE "C" NOT NULL,
    PRIMARY KEY (namespace, node)
) {partitioned};

CREATE UNIQUE INDEX rlm_nodes_by_id ON rlm_nodes (namespace, id_key);
CREATE INDEX rlm_nodes_by_tier ON rlm_nodes (namespace, tier, node);
CREATE INDEX rlm_nodes_by_time ON rlm_nodes (namespace, updated_at, node);
CREATE INDEX rlm_nodes_by_text ON rlm_nodes (namespace, text_hash);
CREATE INDEX rlm_nodes_pending ON rlm_nodes (namespace, node) WHERE NOT embedded;

-- Apart from the nodes, whose rows change with every access: what is indexed here changes with the text alone.
-- A term is a hash of the namespace and of the word as the tokenizer gives it. Arrays of them and their GIN index take
-- a sixth of the room of a tsvector with its positions, know no longest word and no longest text, and let no common
-- word of another tenant slow a search down.
CREATE TABLE rlm_node_words (
    namespace uuid NOT NULL,
    node bigint NOT NULL,
    length integer NOT NULL,                     -- tokens
    terms bigint[] NOT NULL,                     -- each once
    counts integer[] NOT NULL,                   -- how often
    PRIMARY KEY (namespace, node)
) {partitioned};

-- Without fastupdate, whose list of pending entries every search would have to go through.
CREATE INDEX rlm_node_words_by_term ON rlm_node_words USING gin (terms) WITH (fastupdate = off);

-- In how many texts of the namespace a term stands.
CREATE TABLE rlm_terms (
    namespace uuid NOT NULL,
    term bigint NOT NULL,
    texts bigint NOT NULL,
    PRIMARY KEY (namespace, term)
) {partitioned};

-- The metadata, for filters: see filters.py.
CREATE TABLE rlm_node_fields (
    namespace uuid NOT NULL,
    field uuid NOT NULL,
    value bytea NOT NULL,
    node bigint NOT NULL,
    PRIMARY KEY (namespace, field, value, node)
) {partitioned};

CREATE INDEX rlm_node_fields_by_node ON rlm_node_fields (namespace, node);

-- New vectors of a change of the embedding model, until all are there and take the place of the old ones.
CREATE TABLE rlm_new_vectors (
    namespace uuid NOT NULL,
    node bigint NOT NULL,
    text_hash bigint NOT NULL,
    vector bytea NOT NULL,
    PRIMARY KEY (namespace, node)
) {partitioned};

-- Runs of agents. One id in two processes is one session.
CREATE TABLE rlm_sessions (
    namespace uuid NOT NULL,
    session bigint NOT NULL,
    id text COLLATE "C" NOT NULL,
    id_key uuid NOT NULL,
    started_at bigint NOT NULL,
    last_active bigint NOT NULL,
    ended_at bigint,                             -- NULL while it is open; a new access opens it again
    turn bigint NOT NULL,                        -- the highest turn so far
    PRIMARY KEY (namespace, session)
) {partitioned};

CREATE UNIQUE INDEX rlm_sessions_by_id ON rlm_sessions (namespace, id_key);
CREATE INDEX rlm_sessions_by_time ON rlm_sessions (namespace, last_active, session);
CREATE INDEX rlm_sessions_open ON rlm_sessions (namespace, last_active) WHERE ended_at IS NULL;

-- What was reported of use and is not written down yet. Reports are added without any lock, and taken away in the
-- transaction that writes them down: none is lost, none counts twice. The uuid grows with the time of the report.
CREATE TABLE rlm_access_reports (
    namespace uuid NOT NULL,
    report uuid NOT NULL,
    content text NOT NULL,
    PRIMARY KEY (namespace, report)
) {partitioned};

-- Every time a node was handed to a reader.
CREATE TABLE rlm_accesses (
    namespace uuid NOT NULL,
    access bigint NOT NULL,
    session bigint NOT NULL,
    node bigint NOT NULL,
    turn bigint NOT NULL,
    at bigint NOT NULL,
    confidence double precision NOT NULL,        -- the node's at that moment
    writer text NOT NULL,                        -- two processes count the turns of one session each for itself
    run_id text COLLATE "C",
    judged boolean NOT NULL DEFAULT false,       -- whether an outcome has been attached
    PRIMARY KEY (namespace, access)
) {partitioned};

CREATE INDEX rlm_accesses_by_session ON rlm_accesses (namespace, session, judged, node);
CREATE INDEX rlm_accesses_by_node ON rlm_accesses (namespace, node, session, turn);

-- What the rules weigh, kept as the accesses are written: one row a node and session, however often it was used.
CREATE TABLE rlm_uses (
    namespace uuid NOT NULL,
    node bigint NOT NULL,
    session bigint NOT NULL,
    uses bigint NOT NULL,                        -- turns in which it was accessed
    lowest_confidence double precision NOT NULL,
    last_used bigint NOT NULL,
    PRIMARY KEY (namespace, node, session)
) {partitioned};

CREATE INDEX rlm_uses_by_session ON rlm_uses (namespace, session, node);

-- How what an access served went, attached to the node.
CREATE TABLE rlm_outcomes (
    namespace uuid NOT NULL,
    outcome bigint NOT NULL,
    node bigint NOT NULL,
    session bigint NOT NULL,
    run_key uuid,                                -- a later outcome of the same run corrects the earlier one
    success boolean NOT NULL,
    at bigint NOT NULL,
    learned boolean NOT NULL DEFAULT false,      -- whether the node's confidence has been changed by it
    PRIMARY KEY (namespace, outcome)
) {partitioned};

CREATE UNIQUE INDEX rlm_outcomes_by_run ON rlm_outcomes (namespace, node, session, run_key);
CREATE INDEX rlm_outcomes_to_learn ON rlm_outcomes (namespace, outcome) WHERE NOT learned;

-- Which node says the same as which.
CREATE TABLE rlm_edges (
    namespace uuid NOT NULL,
    source bigint NOT NULL,
    target bigint NOT NULL,
    kind text NOT NULL,
    created_at bigint NOT NULL,
    PRIMARY KEY (namespace, source, target, kind)
) {partitioned};

CREATE INDEX rlm_edges_by_target ON rlm_edges (namespace, target);

-- Every decision about a tier. Each entry holds the hash of the one before it in its namespace.
CREATE TABLE rlm_promotion_log (
    namespace uuid NOT NULL,
    sequence bigint NOT NULL,
    node_id text COLLATE "C" NOT NULL,
    node_key uuid NOT NULL,
    from_tier text NOT NULL,
    to_tier text NOT NULL,
    rule text NOT NULL,
    moved boolean NOT NULL,
    actor text NOT NULL CHECK (actor IN ('auto', 'manual')),
    reason text NOT NULL,
    conditions text NOT NULL,
    session_id text COLLATE "C",
    at bigint NOT NULL,
    previous_hash text NOT NULL,
    hash text NOT NULL,
    PRIMARY KEY (namespace, sequence)
) {partitioned};

CREATE INDEX rlm_promotion_log_by_node ON rlm_promotion_log (namespace, node_key, sequence);

CREATE FUNCTION rlm_refuse_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'rlm_promotion_log is append-only' USING ERRCODE = 'restrict_violation';
END
$$;

CREATE TRIGGER rlm_promotion_log_keeps_entries BEFORE UPDATE OR DELETE ON rlm_promotion_log
FOR EACH ROW EXECUTE FUNCTION rlm_refuse_change();

CREATE TRIGGER rlm_promotion_log_keeps_all BEFORE TRUNCATE ON rlm_promotion_log
FOR EACH STATEMENT EXECUTE FUNCTION rlm_refuse_change();

-- Conversations: what was said under a key, in the order of the numbers. They are no memories, and no rule touches them.
CREATE TABLE rlm_messages (
    namespace uuid NOT NULL,
    message bigint NOT NULL,
    key text COLLATE "C" NOT NULL,
    key_key uuid NOT NULL,
    status text NOT NULL CHECK (status IN ('active', 'archived')),
    at bigint NOT NULL,
    content text NOT NULL,                       -- JSON
    PRIMARY KEY (namespace, message)
) {partitioned};

CREATE INDEX rlm_messages_by_key ON rlm_messages (namespace, key_key, status, message);

-- Threads of checkpoints. What the values of a thread have in common is stored once, but never shared with another
-- thread: deleting one touches no other, and no content of a tenant is found by means of another's.
CREATE TABLE rlm_threads (
    namespace uuid NOT NULL,
    thread bigint NOT NULL,
    kind text COLLATE "C" NOT NULL,              -- whose threads these are; two frameworks may use the same id
    id text COLLATE "C" NOT NULL,
    id_key uuid NOT NULL,                        -- of kind and id
    PRIMARY KEY (namespace, thread)
) {partitioned};

CREATE UNIQUE INDEX rlm_threads_by_id ON rlm_threads (namespace, id_key);

-- States of a graph, in the order in which they were committed.
CREATE TABLE rlm_thread_checkpoints (
    namespace uuid NOT NULL,
    sequence bigint NOT NULL,
    thread bigint NOT NULL,
    graph text COLLATE "C" NOT NULL,             -- '' for the graph itself, else the path of a graph inside it
    graph_key uuid NOT NULL,
    id text COLLATE "C" NOT NULL,
    id_key uuid NOT NULL,
    parent_id text COLLATE "C",
    created_at bigint NOT NULL,
    log_position bigint NOT NULL,                -- the last entry of the promotion log, and the last number, then
    last_number bigint NOT NULL,
    metadata text NOT NULL,
    run_key uuid,                                -- of the run_id in the metadata
    encoding text NOT NULL,
    head bytea NOT NULL,                         -- all but the values of its channels
    PRIMARY KEY (namespace, sequence)
) {partitioned};

CREATE UNIQUE INDEX rlm_thread_checkpoints_by_id ON rlm_thread_checkpoints (namespace, thread, graph_key, id_key);
CREATE INDEX rlm_thread_checkpoints_in_order ON rlm_thread_checkpoints (namespace, thread, graph_key, sequence);
CREATE INDEX rlm_thread_checkpoints_by_run ON rlm_thread_checkpoints (namespace, run_key) WHERE run_key IS NOT NULL;

-- The values of the channels at a checkpoint.
CREATE TABLE rlm_thread_values (
    namespace uuid NOT NULL,
    checkpoint bigint NOT NULL,
    channel text COLLATE "C" NOT NULL,
    channel_key uuid NOT NULL,
    version text,                                -- JSON
    encoding text NOT NULL,
    depth integer NOT NULL,                      -- 0: `content` is the value. Else it lists chunks that hold lists of …
    content bytea NOT NULL,                      -- … chunks that hold, so many levels down, the pieces of the value.
    PRIMARY KEY (namespace, checkpoint, channel_key)
) {partitioned};

-- What tasks wrote that ran from a checkpoint; it may get here before the checkpoint itself.
CREATE TABLE rlm_thread_writes (
    namespace uuid NOT NULL,
    thread bigint NOT NULL,
    graph text COLLATE "C" NOT NULL,
    graph_key uuid NOT NULL,
    checkpoint_id text COLLATE "C" NOT NULL,
    checkpoint_key uuid NOT NULL,
    task_key uuid NOT NULL,
    place bigint NOT NULL,
    task_id text COLLATE "C" NOT NULL,
    task_path text COLLATE "C" NOT NULL,
    channel text NOT NULL,
    encoding text NOT NULL,
    depth integer NOT NULL,
    content bytea NOT NULL,
    PRIMARY KEY (namespace, thread, graph_key, checkpoint_key, task_key, place)
) {partitioned};

-- Pieces of values, found again by their hash. Lists of chunks hold their numbers, which a copy of the thread keeps.
CREATE TABLE rlm_thread_chunks (
    namespace uuid NOT NULL,
    thread bigint NOT NULL,
    chunk bigint NOT NULL,
    hash bytea NOT NULL,
    content bytea NOT NULL,
    PRIMARY KEY (namespace, thread, chunk)
) {partitioned};

CREATE UNIQUE INDEX rlm_thread_chunks_by_hash ON rlm_thread_chunks (namespace, thread, hash);

-- Collections of JSON values, for what a framework keeps under keys.
CREATE TABLE rlm_key_values (
    namespace uuid NOT NULL,
    collection text COLLATE "C" NOT NULL,
    collection_key uuid NOT NULL,
    key text COLLATE "C" NOT NULL,
    key_key uuid NOT NULL,
    entry bigint NOT NULL,
    value text NOT NULL,
    PRIMARY KEY (namespace, collection_key, key_key)
) {partitioned};

CREATE INDEX rlm_key_values_in_order ON rlm_key_values (namespace, collection_key, entry);
