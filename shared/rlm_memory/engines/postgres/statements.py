"""Every statement but the DDL, named VERB_NOUN. Values are bound; `{where}` is filled by `compile_filter` alone.

The first value is nearly always the namespace. Lists are bound as arrays; `unnest … WITH ORDINALITY` keeps their order.

What reads or writes one namespace is to say so of each table, with the value that is bound: by a column of another
table Citus does not always see that all is on one shard. There it takes all but an INSERT of values with a subquery.
"""

from __future__ import annotations

from typing import Final

# -- connections and what the store is ------------------------------------------------------------------------------

# Plans are made for the values at hand: how many rows an array of words finds is not to be guessed. jit would take
# longer to compile a statement than the statement takes.
PREPARE_CONNECTION: Final = (
    "SELECT current_setting('server_encoding'), set_config('lock_timeout', %s, false), "
    "set_config('default_transaction_read_only', "
    "coalesce(%s, current_setting('default_transaction_read_only')), false), "
    "set_config('default_transaction_isolation', 'read committed', false), "
    # Whatever the environment, the role or the database says: what is sent is UTF-8, and the driver writes a backslash
    # of bytes twice where strings are not by the standard.
    "set_config('client_encoding', 'UTF8', false), set_config('standard_conforming_strings', 'on', false), "
    "set_config('plan_cache_mode', 'force_custom_plan', false), set_config('jit', 'off', false), "
    "set_config('hnsw.iterative_scan', 'strict_order', false)"
)

SELECT_TABLES: Final = (
    "SELECT c.relname FROM pg_class c WHERE c.relnamespace = to_regnamespace(quote_ident(current_schema())) "
    "AND c.relname IN ('rlm_meta', 'rlm_node_vectors')"
)
SELECT_SCHEMA: Final = "SELECT current_schema()"
OWNS_STORE: Final = "SELECT pg_has_role(c.relowner, 'USAGE') FROM pg_class c WHERE c.oid = to_regclass('rlm_meta')"
SELECT_EXTENSION: Final = "SELECT 1 FROM pg_extension WHERE extname = %s"
SELECT_SCHEMA_OF_VECTOR: Final = (
    "SELECT n.nspname, n.nspname = ANY (current_schemas(true)) FROM pg_extension e "
    "JOIN pg_namespace n ON n.oid = e.extnamespace WHERE e.extname = 'vector'"
)
IS_PUBLIC_SEARCHED: Final = "SELECT 'public' = ANY (current_schemas(false))"
# Two numbers of ours, and the schema: stores in two schemas may be brought up to date at the same time.
LOCK_SCHEMA: Final = "SELECT pg_advisory_xact_lock(x'524c4d31'::int, hashtext(current_schema()))"

SELECT_META: Final = "SELECT key, value FROM rlm_meta"
PUT_META: Final = (
    "INSERT INTO rlm_meta (key, value) VALUES (%s, %s) ON CONFLICT (key) DO UPDATE SET value = excluded.value"
)
PUT_META_ONCE: Final = "INSERT INTO rlm_meta (key, value) VALUES (%s, %s) ON CONFLICT (key) DO NOTHING"
DELETE_META: Final = "DELETE FROM rlm_meta WHERE key = %s"

LOCK_NAMESPACE: Final = "SELECT 1 FROM rlm_namespaces WHERE namespace = %s FOR UPDATE"
LOCK_NAMESPACE_OR_FAIL: Final = LOCK_NAMESPACE + " NOWAIT"
# Where Citus is, who has written to one shard after the other may not write to all at once, unless it does that one by
# one too. Elsewhere it is a name that nobody reads.
WRITE_SHARD_BY_SHARD: Final = "SET LOCAL citus.multi_shard_modify_mode = 'sequential'"
# None is made while all are written to, whose row could not be locked before.
LOCK_NAMES: Final = "SELECT pg_advisory_xact_lock(x'524c4d33'::int, hashtext(current_schema()))"
LOCK_NAMES_TO_ADD: Final = "SELECT pg_advisory_xact_lock_shared(x'524c4d33'::int, hashtext(current_schema()))"
INSERT_NAMESPACE: Final = "INSERT INTO rlm_namespaces (namespace, name) VALUES (%s, %s) ON CONFLICT DO NOTHING"
# All that a search has to know before it can begin, in one go: each statement is a journey to the server and back.
SELECT_STATE: Final = (
    "SELECT s.nodes, s.words, (SELECT m.value FROM rlm_meta m WHERE m.key = 'dimensions'), "
    "EXISTS (SELECT 1 FROM rlm_nodes n WHERE n.namespace = %(namespace)s AND n.tier = ANY (%(others)s::text[])), "
    "t.terms, t.texts FROM rlm_namespaces s LEFT JOIN LATERAL ("
    "SELECT array_agg(t.term) AS terms, array_agg(t.texts) AS texts FROM rlm_terms t "
    "WHERE t.namespace = %(namespace)s AND t.term = ANY (%(terms)s::bigint[])) AS t ON true "
    "WHERE s.namespace = %(namespace)s"
)
TAKE_NUMBERS: Final = (
    "UPDATE rlm_namespaces SET last_number = last_number + %s WHERE namespace = %s RETURNING last_number"
)
ADD_TO_SUMS: Final = (
    "UPDATE rlm_namespaces SET nodes = nodes + %s, words = words + %s WHERE namespace = %s RETURNING nodes"
)

# -- nodes ----------------------------------------------------------------------------------------------------------

NODE_COLUMNS: Final = (
    "n.id, n.type, n.subtype, n.tier, n.confidence, n.provenance, n.created_at, n.updated_at, n.last_accessed, "
    "n.access_count, n.pinned, n.metadata, n.text"
)
SELECT_NODES_BY_ID: Final = (
    f"SELECT {NODE_COLUMNS} FROM unnest(%s::uuid[]) WITH ORDINALITY AS wanted (id_key, place) "
    "JOIN rlm_nodes n ON n.namespace = %s AND n.id_key = wanted.id_key ORDER BY wanted.place"
)
SELECT_NODES_BY_NUMBER: Final = (
    f"SELECT {NODE_COLUMNS} FROM unnest(%s::bigint[]) WITH ORDINALITY AS wanted (node, place) "
    "JOIN rlm_nodes n ON n.namespace = %s AND n.node = wanted.node ORDER BY wanted.place"
)
LIST_NODES: Final = (
    f"SELECT {NODE_COLUMNS} FROM rlm_nodes n WHERE n.namespace = %s AND n.node > %s AND {{where}} "
    "ORDER BY n.node LIMIT %s"
)
LIST_NEWEST_NODES: Final = (
    f"SELECT {NODE_COLUMNS} FROM rlm_nodes n WHERE n.namespace = %s AND (n.updated_at, n.node) < (%s, %s) "
    "AND {where} ORDER BY n.updated_at DESC, n.node DESC LIMIT %s"
)
SELECT_PLACE_IN_LIST: Final = "SELECT node, updated_at FROM rlm_nodes WHERE namespace = %s AND id_key = %s"
COUNT_NODES: Final = "SELECT count(*) FROM rlm_nodes n WHERE n.namespace = %s AND {where}"
# No further than is asked: whether it is few is all that matters.
COUNT_NODES_UP_TO: Final = (
    "SELECT count(*) FROM (SELECT 1 FROM rlm_nodes n WHERE n.namespace = %s AND {where} LIMIT %s) AS counted"
)
SELECT_STORED_WHERE: Final = (
    "SELECT n.id, n.node, n.embedded, n.text, n.tier FROM rlm_nodes n WHERE n.namespace = %s AND {where} "
    "ORDER BY n.node"
)
SELECT_STORED: Final = (
    "SELECT n.id, n.node, n.embedded, n.text, n.tier FROM unnest(%s::uuid[]) WITH ORDINALITY AS wanted (id_key, place) "
    "JOIN rlm_nodes n ON n.namespace = %s AND n.id_key = wanted.id_key ORDER BY wanted.place"
)
SELECT_PENDING: Final = (
    f"SELECT {NODE_COLUMNS} FROM rlm_nodes n WHERE n.namespace = %s AND NOT n.embedded AND n.node > %s "
    "ORDER BY n.node LIMIT %s"
)
SELECT_NEWEST: Final = (
    "SELECT n.node FROM rlm_nodes n WHERE n.namespace = %s AND n.node <> ALL (%s::bigint[]) AND {where} "
    "ORDER BY n.node DESC LIMIT %s"
)
# What candidates are scored by, with the statement that finds them. Their words are counted by the client: to look one
# up in an array takes the server longer than to send all.
SELECT_SCORED: Final = "SELECT f.node, {terms}, {cosine} FROM ({found}) AS f{joined}"
TERMS: Final = "coalesce(t.length, 0), coalesce(t.counted, '')"
JOINED_TERMS: Final = " LEFT JOIN rlm_node_terms t ON t.namespace = %s AND t.node = f.node"
COSINE: Final = "-(v.embedding <#> {asked})"
JOINED_VECTORS: Final = " LEFT JOIN rlm_node_vectors v ON v.namespace = %s AND v.node = f.node"
SELECT_ORIGINS: Final = (
    "SELECT n.created_at, n.id FROM unnest(%s::bigint[]) WITH ORDINALITY AS wanted (node, place) "
    "JOIN rlm_nodes n ON n.namespace = %s AND n.node = wanted.node ORDER BY wanted.place"
)

COPY_NODES: Final = (
    "COPY rlm_nodes (namespace, node, id, id_key, tier, tier_since, created_at, updated_at, last_accessed, "
    "access_count, pinned, type, subtype, confidence, provenance, text_hash, metadata, text, embedded) FROM STDIN"
)
# The tier, the times of use and the pin are the node's history: writing it again does not take them away.
UPDATE_NODE: Final = (
    "UPDATE rlm_nodes SET type = %s, subtype = %s, confidence = %s, provenance = %s, text_hash = %s, metadata = %s, "
    "text = %s, embedded = %s, updated_at = %s WHERE namespace = %s AND node = %s"
)
SET_EMBEDDED: Final = "UPDATE rlm_nodes SET embedded = true WHERE namespace = %s AND node = ANY (%s::bigint[])"
DELETE_NODES: Final = "DELETE FROM rlm_nodes WHERE namespace = %s AND node = ANY (%s::bigint[])"
DELETE_BELONGINGS: Final = tuple(
    f"DELETE FROM {table} WHERE namespace = %s AND {column} = ANY (%s::bigint[])"
    for table, column in (
        ("rlm_accesses", "node"),
        ("rlm_forgotten_accesses", "node"),
        ("rlm_unweighed_nodes", "node"),
        ("rlm_uses", "node"),
        ("rlm_outcomes", "node"),
        ("rlm_edges", "source"),
        ("rlm_edges", "target"),
        ("rlm_new_vectors", "node"),
    )
)
COPY_FIELDS: Final = "COPY rlm_node_fields (namespace, field, value, node) FROM STDIN"
DELETE_FIELDS: Final = "DELETE FROM rlm_node_fields WHERE namespace = %s AND node = ANY (%s::bigint[])"

# -- keywords -------------------------------------------------------------------------------------------------------

COPY_NODE_TERMS: Final = "COPY rlm_node_terms (namespace, node, length, terms, counted) FROM STDIN"
TAKE_NODE_TERMS: Final = (
    "DELETE FROM rlm_node_terms WHERE namespace = %s AND node = ANY (%s::bigint[]) RETURNING length, terms"
)
ADD_TO_TERMS: Final = (
    "INSERT INTO rlm_terms AS t (namespace, term, texts) SELECT %s, new.term, new.texts "
    "FROM unnest(%s::bigint[], %s::bigint[]) AS new (term, texts) "
    "ON CONFLICT (namespace, term) DO UPDATE SET texts = t.texts + excluded.texts"
)
DELETE_TERMS: Final = "DELETE FROM rlm_terms WHERE namespace = %s AND term = ANY (%s::bigint[]) AND texts = 0"
SELECT_MATCHING: Final = (
    "SELECT t.node, t.length, t.counted FROM rlm_node_terms t WHERE t.namespace = %s AND t.terms && %s::bigint[]"
)
# The texts with the greatest weights of their words, of equal ones the shortest and newest, as in the SQLite engine.
# Weights are whole numbers, so that it does not matter in which order they are added.
SELECT_HEAVIEST: Final = (
    "SELECT t.node, t.length, t.counted FROM rlm_node_terms t WHERE t.namespace = %s AND ({requirements}){eligible} "
    "ORDER BY {weight} DESC, t.length, t.node DESC LIMIT %s"
)
HAS_EVERY: Final = "t.terms @> %s::bigint[]"
HAS_SOME: Final = "t.terms && %s::bigint[]"
WEIGHT_OF_TERM: Final = "CASE WHEN %s::bigint = ANY (t.terms) THEN %s::bigint ELSE 0 END"
# The same where there is no telling what such a text must have. Each word is looked up by itself: the bm25 of 700 texts
# took 14 times as long, each word being sought in each array.
SELECT_HEAVIEST_OF_ALL: Final = (
    "SELECT t.node, t.length, t.counted FROM (SELECT t.node, t.length, sum(asked.weight) AS weight "
    "FROM unnest(%s::bigint[], %s::bigint[]) AS asked (term, weight) CROSS JOIN LATERAL ("
    "SELECT t.node, t.length FROM rlm_node_terms t WHERE t.namespace = %s AND t.terms @> ARRAY[asked.term]{eligible}"
    ") AS t GROUP BY t.node, t.length ORDER BY weight DESC, t.length, t.node DESC LIMIT %s) AS heavy "
    "JOIN rlm_node_terms t ON t.namespace = %s AND t.node = heavy.node"
)
ELIGIBLE: Final = " AND t.node IN (SELECT n.node FROM rlm_nodes n WHERE n.namespace = %s AND {where})"
# -- vectors --------------------------------------------------------------------------------------------------------

DELETE_VECTORS: Final = "DELETE FROM rlm_node_vectors WHERE namespace = %s AND node = ANY (%s::bigint[])"
COPY_VECTORS: Final = "COPY rlm_node_vectors (namespace, node, embedding) FROM STDIN (FORMAT BINARY)"
# The zero keeps the index out of it: every vector in question is compared.
SELECT_NEAREST_OF_ALL: Final = (
    "SELECT v.node, (v.embedding <#> {asked}) + 0 AS distance FROM rlm_node_vectors v WHERE v.namespace = %s{eligible} "
    "ORDER BY distance, v.node DESC LIMIT %s"
)
SELECT_NEAREST: Final = (
    "SELECT v.node, {columns} FROM rlm_node_vectors v WHERE v.namespace = %s{eligible} ORDER BY {distance} LIMIT %s"
)
DISTANCE: Final = "v.embedding <#> {asked} AS distance"
# A vector that is bound, as one that those of the column can be compared with.
ASKED: Final = {"float32": "%s::vector", "int8": "%s::vector::halfvec", "bit": "%s::vector::halfvec"}
SELECT_NEAREST_OF_SOME: Final = (
    "SELECT v.node, v.embedding <#> {asked} AS distance FROM ({some}) AS v ORDER BY distance, v.node DESC LIMIT %s"
)
ELIGIBLE_VECTOR: Final = " AND v.node IN (SELECT n.node FROM rlm_nodes n WHERE n.namespace = %s AND {where})"
# Looked up for each vector that the index gives, in the order in which it gives them.
ELIGIBLE_NEAREST: Final = (
    " AND EXISTS (SELECT 1 FROM rlm_nodes n WHERE n.namespace = %s AND n.node = v.node AND {where} OFFSET 0)"
)
# Without sorting, the planner has nothing left but the index that gives rows in this order.
SEARCH_BY_INDEX: Final = "SELECT set_config('hnsw.ef_search', %s, true), set_config('enable_sort', 'off', true)"
SEARCH_AS_USUAL: Final = "SELECT set_config('enable_sort', 'on', true)"
SELECT_VECTORS: Final = (
    "SELECT vector_send(v.embedding::vector) FROM unnest(%s::bigint[]) WITH ORDINALITY AS wanted (node, place) "
    "LEFT JOIN rlm_node_vectors v ON v.namespace = %s AND v.node = wanted.node ORDER BY wanted.place"
)
SELECT_VECTORS_OF_IDS: Final = (
    "SELECT vector_send(v.embedding::vector) FROM unnest(%s::uuid[]) WITH ORDINALITY AS wanted (id_key, place) "
    "LEFT JOIN rlm_nodes n ON n.namespace = %s AND n.id_key = wanted.id_key "
    "LEFT JOIN rlm_node_vectors v ON v.namespace = %s AND v.node = n.node ORDER BY wanted.place"
)
SELECT_TEXT_OWNERS: Final = (
    "SELECT DISTINCT ON (n.text_hash, n.text) n.text, vector_send(v.embedding::vector) FROM rlm_nodes n "
    "JOIN rlm_node_vectors v ON v.namespace = %s AND v.node = n.node "
    "WHERE n.namespace = %s AND n.text_hash = ANY (%s::bigint[]) ORDER BY n.text_hash, n.text, n.node DESC"
)
# The index is missing where none is, and where one is that could not be finished.
HAS_INDEX: Final = (
    "SELECT EXISTS (SELECT 1 FROM pg_index i WHERE i.indexrelid = to_regclass('rlm_node_vectors_nearest') "
    "AND i.indisvalid)"
)
IS_INDEX_BROKEN: Final = "SELECT 1 FROM pg_index i WHERE i.indexrelid = to_regclass(%s) AND NOT i.indisvalid"
SELECT_MOST_NODES: Final = "SELECT coalesce(max(nodes), 0) FROM rlm_namespaces"
# Whoever does not get it lets somebody else build the index.
TRY_LOCK_INDEX: Final = "SELECT pg_try_advisory_lock(x'524c4d32'::int, hashtext(current_schema()))"
UNLOCK_INDEX: Final = "SELECT pg_advisory_unlock(x'524c4d32'::int, hashtext(current_schema()))"
HAS_VECTORS: Final = "SELECT 1 FROM rlm_node_vectors LIMIT 1"

_OUTDATED: Final = (
    "FROM rlm_nodes n LEFT JOIN rlm_new_vectors v "
    "ON v.namespace = n.namespace AND v.node = n.node AND v.text_hash = n.text_hash "
    "WHERE n.embedded AND v.node IS NULL AND btrim(n.text, %s) <> ''"
)
SELECT_OUTDATED: Final = f"SELECT n.namespace, n.node, n.text {_OUTDATED} LIMIT %s"
COUNT_OUTDATED: Final = f"SELECT count(*) {_OUTDATED}"
PUT_NEW_VECTOR: Final = (
    "INSERT INTO rlm_new_vectors (namespace, node, text_hash, vector) VALUES (%s, %s, %s, %s) "
    "ON CONFLICT (namespace, node) DO UPDATE SET text_hash = excluded.text_hash, vector = excluded.vector"
)
DELETE_NEW_VECTORS: Final = "DELETE FROM rlm_new_vectors"
FORGET_EMBEDDED: Final = "UPDATE rlm_nodes SET embedded = false WHERE embedded"
SELECT_NEW_VECTORS: Final = (
    "SELECT n.namespace, n.node, v.vector FROM rlm_new_vectors v "
    "JOIN rlm_nodes n ON n.namespace = v.namespace AND n.node = v.node AND n.text_hash = v.text_hash "
    "WHERE (v.namespace, v.node) > (%s, %s) ORDER BY v.namespace, v.node LIMIT %s"
)
SET_EMBEDDED_AGAIN: Final = (
    "UPDATE rlm_nodes n SET embedded = true FROM rlm_node_vectors v WHERE v.namespace = n.namespace AND v.node = n.node"
)
SELECT_NAMESPACE_KEYS: Final = "SELECT namespace FROM rlm_namespaces ORDER BY namespace"

# -- counts and sizes -----------------------------------------------------------------------------------------------

COUNT_KINDS: Final = (
    "SELECT tier, type, count(*), count(*) FILTER (WHERE embedded) FROM rlm_nodes WHERE namespace = %s "
    "GROUP BY tier, type"
)
SELECT_SIZES: Final = (
    "SELECT c.relname, pg_total_relation_size(c.oid) FROM pg_class c "
    "WHERE c.relnamespace = to_regnamespace(quote_ident(current_schema())) AND c.relkind = 'r' "
    "AND c.relname LIKE 'rlm\\_%%'"
)
SUM_TEXT_BYTES: Final = "SELECT coalesce(sum(octet_length(text)), 0)::bigint FROM rlm_nodes"

# -- sessions, accesses, outcomes -----------------------------------------------------------------------------------

PUT_REPORT: Final = "INSERT INTO rlm_access_reports (namespace, report, content) VALUES (%s, %s, %s)"
HAS_REPORTS: Final = "SELECT EXISTS (SELECT 1 FROM rlm_access_reports WHERE namespace = %s)"
TAKE_REPORTS: Final = "DELETE FROM rlm_access_reports WHERE namespace = %s RETURNING report, content"

TOUCH_SESSION: Final = (
    "INSERT INTO rlm_sessions AS s (namespace, session, id, id_key, started_at, last_active, turn) "
    "VALUES (%(namespace)s, %(number)s, %(id)s, %(key)s, %(at)s, %(at)s, %(turn)s) "
    "ON CONFLICT (namespace, id_key) DO UPDATE SET started_at = least(s.started_at, excluded.started_at), "
    "last_active = greatest(s.last_active, excluded.last_active), turn = greatest(s.turn, excluded.turn), "
    "ended_at = NULL, kept = true RETURNING session"
)
SESSION_COLUMNS: Final = "session, id, started_at, last_active, ended_at, turn"
SELECT_SESSION: Final = f"SELECT {SESSION_COLUMNS} FROM rlm_sessions WHERE namespace = %s AND id_key = %s"
LIST_SESSIONS: Final = (
    f"SELECT {SESSION_COLUMNS} FROM rlm_sessions WHERE namespace = %s ORDER BY last_active DESC, session DESC LIMIT %s"
)
SELECT_IDLE_SESSIONS: Final = (
    "SELECT id FROM rlm_sessions WHERE namespace = %s AND ended_at IS NULL AND last_active < %s "
    "ORDER BY last_active, session"
)
END_SESSION: Final = "UPDATE rlm_sessions SET ended_at = %s WHERE namespace = %s AND id_key = %s"
# Among them all turns in which one of these nodes was accessed in one of these sessions.
SELECT_TURNS: Final = (
    "SELECT DISTINCT node, session, turn, writer FROM rlm_accesses WHERE namespace = %s AND node = ANY (%s::bigint[]) "
    "AND session = ANY (%s::bigint[]) AND turn = ANY (%s::bigint[])"
)
COUNT_USE: Final = (
    "INSERT INTO rlm_uses AS u (namespace, node, session, uses, lowest_confidence, last_used) "
    "VALUES (%(namespace)s, %(node)s, %(session)s, 1, %(confidence)s, %(at)s) "
    "ON CONFLICT (namespace, node, session) DO UPDATE SET "
    "uses = u.uses + %(turns)s, "
    "lowest_confidence = least(u.lowest_confidence, excluded.lowest_confidence), "
    "last_used = greatest(u.last_used, excluded.last_used)"
)
INSERT_ACCESS: Final = (
    "INSERT INTO rlm_accesses (namespace, access, session, node, confidence, at, turn, writer, run_id) "
    "VALUES (%(namespace)s, %(access)s, %(session)s, %(node)s, %(confidence)s, %(at)s, %(turn)s, %(writer)s, "
    "%(run_id)s)"
)
COUNT_ACCESS: Final = (
    "UPDATE rlm_nodes SET access_count = access_count + 1, "
    "last_accessed = greatest(coalesce(last_accessed, 0), %(at)s) WHERE namespace = %(namespace)s AND node = %(node)s"
)
SELECT_NUMBERS: Final = "SELECT id, node FROM rlm_nodes WHERE namespace = %s AND id_key = ANY (%s::uuid[])"
SELECT_USES: Final = (
    "SELECT n.id, n.tier_since, s.id, u.uses, u.lowest_confidence, u.last_used FROM rlm_nodes n "
    "LEFT JOIN rlm_uses u ON u.namespace = n.namespace AND u.node = n.node "
    "LEFT JOIN rlm_sessions s ON s.namespace = n.namespace AND s.session = u.session "
    "WHERE n.namespace = %s AND n.id_key = ANY (%s::uuid[]) ORDER BY u.last_used, s.id"
)
SELECT_USES_IN: Final = (
    "SELECT n.id, n.tier_since, s.id, u.uses, u.lowest_confidence, u.last_used FROM rlm_sessions s "
    "JOIN rlm_uses u ON u.namespace = s.namespace AND u.session = s.session "
    "JOIN rlm_nodes n ON n.namespace = u.namespace AND n.node = u.node "
    "WHERE s.namespace = %s AND s.id_key = %s AND n.namespace = %s AND n.id_key = ANY (%s::uuid[])"
)
SELECT_OUTCOMES: Final = (
    "SELECT n.id, count(*) FILTER (WHERE o.success), count(*) FILTER (WHERE NOT o.success) FROM rlm_nodes n "
    "JOIN rlm_outcomes o ON o.namespace = n.namespace AND o.node = n.node "
    "WHERE n.namespace = %s AND n.id_key = ANY (%s::uuid[]) GROUP BY n.id"
)
SELECT_ACCESSES: Final = (
    "SELECT n.id, s.id, a.turn, a.at, a.confidence, a.run_id, a.writer FROM rlm_nodes n "
    "JOIN rlm_accesses a ON a.namespace = n.namespace AND a.node = n.node "
    "JOIN rlm_sessions s ON s.namespace = a.namespace AND s.session = a.session "
    "WHERE n.namespace = %s AND n.id_key = %s ORDER BY a.at, a.access"
)
# The session that has been still for longest, of those that have ended and may have accesses to forget.
SELECT_SESSION_TO_FORGET: Final = (
    "SELECT session FROM rlm_sessions WHERE namespace = %s AND ended_at IS NOT NULL AND kept AND last_active < %s "
    "ORDER BY last_active LIMIT 1"
)
# What was used in a run stays until the outcome of the run is there, which is attached to no other accesses.
SELECT_ACCESSES_TO_FORGET: Final = (
    "SELECT access FROM rlm_accesses WHERE namespace = %s AND session = %s AND (judged OR run_id IS NULL) LIMIT %s"
)
SUM_FORGOTTEN: Final = (
    "INSERT INTO rlm_forgotten_accesses AS f "
    "(namespace, node, session, accesses, first_at, last_at, lowest_confidence, to_judge) "
    "SELECT namespace, node, session, count(*), min(at), max(at), min(confidence), bool_or(NOT judged) "
    "FROM rlm_accesses WHERE namespace = %s AND access = ANY (%s::bigint[]) GROUP BY namespace, node, session "
    "ON CONFLICT (namespace, node, session) DO UPDATE SET accesses = f.accesses + excluded.accesses, "
    "first_at = least(f.first_at, excluded.first_at), last_at = greatest(f.last_at, excluded.last_at), "
    "lowest_confidence = least(f.lowest_confidence, excluded.lowest_confidence), "
    "to_judge = f.to_judge OR excluded.to_judge"
)
# Its outcome knows a run by the hash of its id alone; the id itself is with the accesses.
SELECT_RUNS_TO_FORGET: Final = (
    "SELECT DISTINCT node, session, run_id FROM rlm_accesses "
    "WHERE namespace = %s AND access = ANY (%s::bigint[]) AND run_id IS NOT NULL"
)
SET_RUN_ID: Final = (
    "UPDATE rlm_outcomes SET run_id = %s WHERE namespace = %s AND node = %s AND session = %s AND run_key = %s"
)
FORGET_ACCESSES: Final = "DELETE FROM rlm_accesses WHERE namespace = %s AND access = ANY (%s::bigint[])"
SET_KEPT: Final = "UPDATE rlm_sessions SET kept = %s WHERE namespace = %s AND session = %s"
SELECT_FORGOTTEN: Final = (
    "SELECT n.id, s.id, f.accesses, f.first_at, f.last_at, f.lowest_confidence FROM rlm_nodes n "
    "JOIN rlm_forgotten_accesses f ON f.namespace = n.namespace AND f.node = n.node "
    "JOIN rlm_sessions s ON s.namespace = f.namespace AND s.session = f.session "
    "WHERE n.namespace = %s AND n.id_key = %s ORDER BY f.first_at, s.id"
)
_IN_SESSION: Final = (
    "FROM rlm_uses u JOIN rlm_nodes n ON n.namespace = u.namespace AND n.node = u.node WHERE u.namespace = %s "
    "AND u.session = (SELECT s.session FROM rlm_sessions s WHERE s.namespace = %s AND s.id_key = %s) AND n.tier = %s"
)
SELECT_IDS_IN_SESSION: Final = f"SELECT n.id {_IN_SESSION} ORDER BY n.node LIMIT %s"
SELECT_NODES_IN_SESSION: Final = f"SELECT {NODE_COLUMNS} {_IN_SESSION} AND n.id_key = ANY (%s::uuid[]) ORDER BY n.node"
# Also what is forgotten: in a session, by its summary; in a run, by the outcome that it got before it could be.
SELECT_TO_JUDGE: Final = (
    "SELECT n.node, n.id FROM (SELECT a.node FROM rlm_accesses a "
    "WHERE a.namespace = %(namespace)s AND a.session = %(session)s "
    "AND CASE WHEN %(run_id)s::text IS NOT NULL THEN a.run_id = %(run_id)s::text "
    "WHEN %(keys)s::uuid[] IS NOT NULL THEN true ELSE NOT a.judged END "
    "UNION SELECT f.node FROM rlm_forgotten_accesses f "
    "WHERE f.namespace = %(namespace)s AND f.session = %(session)s "
    "AND CASE WHEN %(run_id)s::text IS NOT NULL THEN EXISTS (SELECT 1 FROM rlm_outcomes o "
    "WHERE o.namespace = %(namespace)s AND o.node = f.node AND o.session = f.session AND o.run_key = %(run_key)s) "
    "WHEN %(keys)s::uuid[] IS NOT NULL THEN true ELSE f.to_judge END"
    ") AS used JOIN rlm_nodes n ON n.namespace = %(namespace)s AND n.node = used.node "
    "WHERE %(keys)s::uuid[] IS NULL OR n.id_key = ANY (%(keys)s::uuid[]) ORDER BY n.node"
)
MARK_FORGOTTEN_JUDGED: Final = (
    "UPDATE rlm_forgotten_accesses SET to_judge = false "
    "WHERE namespace = %s AND session = %s AND node = ANY (%s::bigint[])"
)
MARK_JUDGED: Final = (
    "UPDATE rlm_accesses SET judged = true WHERE namespace = %s AND session = %s AND node = ANY (%s::bigint[]) "
    "AND (%s::text IS NULL OR run_id = %s::text) AND NOT judged"
)
INSERT_OUTCOME: Final = (
    "INSERT INTO rlm_outcomes AS o (namespace, outcome, node, session, run_key, success, at) "
    "VALUES (%s, %s, %s, %s, %s, %s, %s) ON CONFLICT (namespace, node, session, run_key) DO UPDATE SET "
    "learned = o.learned AND o.success = excluded.success, success = excluded.success, at = excluded.at"
)
SELECT_UNLEARNED: Final = (
    "SELECT o.outcome, n.id, o.success FROM rlm_outcomes o "
    "JOIN rlm_nodes n ON n.namespace = o.namespace AND n.node = o.node "
    "WHERE o.namespace = %s AND NOT o.learned AND o.outcome > %s ORDER BY o.outcome LIMIT %s"
)
MARK_LEARNED: Final = "UPDATE rlm_outcomes SET learned = true WHERE namespace = %s AND outcome = ANY (%s::bigint[])"
OF_NODE: Final = "namespace = %s AND node = (SELECT node FROM rlm_nodes WHERE namespace = %s AND id_key = %s)"
FORGET_USES: Final = f"DELETE FROM rlm_uses WHERE {OF_NODE}"
FORGET_OUTCOMES: Final = f"DELETE FROM rlm_outcomes WHERE {OF_NODE}"

# -- tiers ----------------------------------------------------------------------------------------------------------

SET_TIER: Final = "UPDATE rlm_nodes SET tier = %s, tier_since = %s WHERE namespace = %s AND id_key = %s"
# A node does not fade while it is pinned.
SET_PINNED: Final = (
    "UPDATE rlm_nodes SET decayed_at = CASE WHEN pinned AND NOT %(pinned)s THEN %(at)s ELSE decayed_at END, "
    "pinned = %(pinned)s WHERE namespace = %(namespace)s AND id_key = %(key)s"
)
SET_CONFIDENCES: Final = (
    "UPDATE rlm_nodes n SET confidence = new.confidence, decayed_at = coalesce(%s::bigint, n.decayed_at) "
    "FROM unnest(%s::uuid[], %s::float8[]) AS new (id_key, confidence) "
    "WHERE n.namespace = %s AND n.id_key = new.id_key"
)
# Of the sessions of a node, no more are counted than suffice.
_SESSIONS: Final = (
    "(SELECT count(*) FROM (SELECT 1 FROM rlm_uses u WHERE u.namespace = %(namespace)s AND u.node = n.node "
    "LIMIT %(least)s) AS counted) >= %(least)s"
)
# Nodes in session that enough sessions have used; the rules look at the rest.
SELECT_PROVED: Final = (
    "SELECT n.node FROM rlm_nodes n WHERE n.namespace = %(namespace)s AND n.tier = 'session' AND n.node > %(after)s "
    f"AND {_SESSIONS} ORDER BY n.node"
)
SELECT_AMONG: Final = (
    f"SELECT {NODE_COLUMNS} FROM rlm_nodes n WHERE n.namespace = %(namespace)s "
    f"AND n.node = ANY (%(numbers)s::bigint[]) AND n.tier = %(tier)s AND {_SESSIONS} ORDER BY n.node"
)
SELECT_UNWEIGHED: Final = "SELECT node FROM rlm_unweighed_nodes WHERE namespace = %s ORDER BY node"
# In the transaction that changes something the rules weigh.
NOTE_UNWEIGHED: Final = (
    "INSERT INTO rlm_unweighed_nodes (namespace, node) SELECT namespace, node FROM rlm_nodes "
    "WHERE namespace = %s AND node = ANY (%s::bigint[]) AND tier = 'session' ON CONFLICT DO NOTHING"
)
NOTE_UNWEIGHED_IDS: Final = (
    "INSERT INTO rlm_unweighed_nodes (namespace, node) SELECT namespace, node FROM rlm_nodes "
    "WHERE namespace = %s AND id_key = ANY (%s::uuid[]) AND tier = 'session' ON CONFLICT DO NOTHING"
)
SELECT_WEIGHED_BY: Final = "SELECT weighed_by FROM rlm_namespaces WHERE namespace = %s"
SET_WEIGHED_BY: Final = "UPDATE rlm_namespaces SET weighed_by = %s WHERE namespace = %s"
# For whoever adds what the rules weigh by another way than the use of a node.
WEIGH_ALL: Final = "UPDATE rlm_namespaces SET weighed_by = NULL WHERE namespace = %s"
FORGET_UNWEIGHED: Final = (
    "DELETE FROM rlm_unweighed_nodes WHERE namespace = %s AND node = ANY (%s::bigint[]) RETURNING node"
)
SELECT_UNUSED: Final = (
    "SELECT n.node FROM rlm_nodes n WHERE n.namespace = %s AND n.tier = 'longterm' AND NOT n.pinned "
    "AND n.tier_since < %s AND greatest(n.created_at, n.last_accessed) < %s ORDER BY n.node"
)
SELECT_USED: Final = (
    f"SELECT {NODE_COLUMNS} FROM rlm_nodes n WHERE n.namespace = %s AND n.tier IN ('task', 'session') "
    "AND EXISTS (SELECT 1 FROM rlm_uses u WHERE u.namespace = n.namespace AND u.node = n.node) ORDER BY n.node"
)
SELECT_FADING: Final = (
    "SELECT n.node, n.id, n.confidence, greatest(n.created_at, n.updated_at, n.decayed_at, n.last_accessed) "
    "FROM rlm_nodes n WHERE n.namespace = %s AND n.node > %s AND NOT n.pinned ORDER BY n.node LIMIT %s"
)
SELECT_BIRTHS: Final = "SELECT id, created_at FROM rlm_nodes WHERE namespace = %s"
SELECT_LAST_SWEEP: Final = "SELECT last_sweep FROM rlm_namespaces WHERE namespace = %s"
SET_LAST_SWEEP: Final = "UPDATE rlm_namespaces SET last_sweep = %s WHERE namespace = %s"

INSERT_EDGE: Final = (
    "INSERT INTO rlm_edges (namespace, source, target, kind, created_at) SELECT s.namespace, s.node, t.node, %s, %s "
    "FROM rlm_nodes s JOIN rlm_nodes t ON t.namespace = s.namespace "
    "WHERE s.namespace = %s AND s.id_key = %s AND t.id_key = %s ON CONFLICT DO NOTHING"
)
SELECT_EDGES: Final = (
    "SELECT s.id, t.id, e.kind, e.created_at FROM rlm_edges e "
    "JOIN rlm_nodes s ON s.namespace = e.namespace AND s.node = e.source "
    "JOIN rlm_nodes t ON t.namespace = e.namespace AND t.node = e.target "
    "WHERE e.namespace = %(namespace)s AND (s.id_key = %(key)s OR t.id_key = %(key)s) "
    "ORDER BY e.created_at, s.node, t.node"
)

SELECT_LOG_HEAD: Final = "SELECT log_head, log_last FROM rlm_namespaces WHERE namespace = %s"
SET_LOG_HEAD: Final = "UPDATE rlm_namespaces SET log_head = %s, log_last = %s WHERE namespace = %s"
INSERT_LOG_ENTRY: Final = (
    "INSERT INTO rlm_promotion_log (namespace, sequence, node_id, node_key, from_tier, to_tier, rule, moved, actor, "
    "reason, conditions, session_id, at, previous_hash, hash) "
    "VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s)"
)
SELECT_LOG: Final = (
    "SELECT sequence, node_id, from_tier, to_tier, rule, moved, actor, reason, conditions, session_id, at, "
    "previous_hash, hash FROM rlm_promotion_log WHERE namespace = %s AND sequence > %s{narrowed} "
    "ORDER BY sequence LIMIT %s"
)
LOG_OF_NODE: Final = " AND node_key = %s"
LOG_SINCE: Final = " AND at >= %s"
SELECT_REFUSAL: Final = (
    "SELECT 1 FROM rlm_promotion_log WHERE namespace = %s AND node_key = %s AND session_id = %s AND rule = %s "
    "AND NOT moved"
)

# -- conversations --------------------------------------------------------------------------------------------------

SELECT_KEYS: Final = "SELECT DISTINCT key FROM rlm_messages WHERE namespace = %s ORDER BY key"
MESSAGE_COLUMNS: Final = "message, key, status, at, content"
SELECT_MESSAGES: Final = (
    f"SELECT {MESSAGE_COLUMNS} FROM rlm_messages WHERE namespace = %s AND key_key = %s AND status = ANY (%s::text[]) "
    "ORDER BY message LIMIT %s OFFSET %s"
)
SELECT_MESSAGE: Final = (
    f"SELECT {MESSAGE_COLUMNS} FROM rlm_messages WHERE namespace = %s AND message = %s AND key_key = %s"
)
COUNT_MESSAGES: Final = (
    "SELECT count(*) FROM rlm_messages WHERE namespace = %s AND key_key = %s AND status = ANY (%s::text[])"
)
COPY_MESSAGES: Final = "COPY rlm_messages (namespace, message, key, key_key, status, at, content) FROM STDIN"
SET_MESSAGE_STATUS: Final = "UPDATE rlm_messages SET status = %s WHERE namespace = %s AND message = ANY (%s::bigint[])"
DELETE_MESSAGES: Final = "DELETE FROM rlm_messages WHERE namespace = %s AND message = ANY (%s::bigint[])"
DELETE_MESSAGES_OF_KEY: Final = "DELETE FROM rlm_messages WHERE namespace = %s AND key_key = %s"
DELETE_ALL_MESSAGES: Final = "DELETE FROM rlm_messages WHERE namespace = %s"

# -- JSON values under keys -----------------------------------------------------------------------------------------

PUT_KEY_VALUE: Final = (
    "INSERT INTO rlm_key_values (namespace, collection, collection_key, key, key_key, entry, value) "
    "VALUES (%s, %s, %s, %s, %s, %s, %s) "
    "ON CONFLICT (namespace, collection_key, key_key) DO UPDATE SET value = excluded.value"
)
SELECT_KEY_VALUES: Final = (
    "SELECT key, value FROM rlm_key_values WHERE namespace = %s AND collection_key = %s AND key_key = ANY (%s::uuid[])"
)
LIST_KEY_VALUES: Final = (
    "SELECT key, value FROM rlm_key_values WHERE namespace = %s AND collection_key = %s ORDER BY entry"
)
DELETE_KEY_VALUES: Final = (
    "DELETE FROM rlm_key_values WHERE namespace = %s AND collection_key = %s AND key_key = ANY (%s::uuid[]) "
    "RETURNING key"
)

# -- threads of checkpoints -----------------------------------------------------------------------------------------

SELECT_THREAD: Final = "SELECT thread FROM rlm_threads WHERE namespace = %s AND id_key = %s"
INSERT_THREAD: Final = "INSERT INTO rlm_threads (namespace, thread, kind, id, id_key) VALUES (%s, %s, %s, %s, %s)"
LIST_THREADS: Final = "SELECT id FROM rlm_threads WHERE namespace = %s AND kind = %s ORDER BY thread"
SELECT_MOMENT: Final = "SELECT log_last, last_number FROM rlm_namespaces WHERE namespace = %s"
# A known id keeps its place, its time and its position: it is the same checkpoint.
PUT_CHECKPOINT: Final = (
    "INSERT INTO rlm_thread_checkpoints AS c (namespace, sequence, thread, graph, graph_key, id, id_key, parent_id, "
    "created_at, metadata, run_key, encoding, head, log_position, last_number) "
    "VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s) "
    "ON CONFLICT (namespace, thread, graph_key, id_key) DO UPDATE SET parent_id = excluded.parent_id, "
    "metadata = excluded.metadata, run_key = excluded.run_key, encoding = excluded.encoding, head = excluded.head "
    "RETURNING sequence"
)
DELETE_VALUES: Final = "DELETE FROM rlm_thread_values WHERE namespace = %s AND checkpoint = ANY (%s::bigint[])"
PUT_VALUE: Final = (
    "INSERT INTO rlm_thread_values (namespace, checkpoint, channel, channel_key, version, encoding, depth, content) "
    "VALUES (%s, %s, %s, %s, %s, %s, %s, %s)"
)
KEEP_VALUES: Final = (
    "INSERT INTO rlm_thread_values (namespace, checkpoint, channel, channel_key, version, encoding, depth, content) "
    "SELECT v.namespace, %s, v.channel, v.channel_key, v.version, v.encoding, v.depth, v.content "
    "FROM rlm_thread_checkpoints p CROSS JOIN unnest(%s::uuid[], %s::text[]) AS kept (channel_key, version) "
    "JOIN rlm_thread_values v ON v.namespace = p.namespace AND v.checkpoint = p.sequence "
    "AND v.channel_key = kept.channel_key AND v.version = kept.version "
    "WHERE p.namespace = %s AND p.thread = %s AND p.graph_key = %s AND p.id_key = %s RETURNING channel"
)
PUT_WRITE: Final = (
    "INSERT INTO rlm_thread_writes (namespace, thread, graph_key, checkpoint_key, graph, checkpoint_id, task_key, "
    "place, task_id, task_path, channel, encoding, depth, content) "
    "VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s) "
    "ON CONFLICT (namespace, thread, graph_key, checkpoint_key, task_key, place) DO "
)
PUT_WRITE_ONCE: Final = PUT_WRITE + "NOTHING"
REPLACE_WRITE: Final = PUT_WRITE + (
    "UPDATE SET task_path = excluded.task_path, channel = excluded.channel, encoding = excluded.encoding, "
    "depth = excluded.depth, content = excluded.content"
)

SELECT_CHECKPOINTS: Final = (
    "SELECT c.sequence, c.thread, t.id, c.graph, c.id, c.parent_id, c.created_at, c.metadata, c.encoding, c.head "
    "FROM unnest(%s::bigint[]) WITH ORDINALITY AS wanted (sequence, place) "
    "JOIN rlm_thread_checkpoints c ON c.namespace = %s AND c.sequence = wanted.sequence "
    "JOIN rlm_threads t ON t.namespace = c.namespace AND t.thread = c.thread ORDER BY wanted.place"
)
SELECT_SEQUENCE: Final = (
    "SELECT sequence FROM rlm_thread_checkpoints WHERE namespace = %s AND thread = %s AND graph_key = %s "
    "AND id_key = %s"
)
SELECT_LAST_SEQUENCE: Final = (
    "SELECT max(sequence) FROM rlm_thread_checkpoints WHERE namespace = %s AND thread = %s AND graph_key = %s"
)
SELECT_VALUES: Final = (
    "SELECT channel, version, encoding, depth, content FROM rlm_thread_values "
    "WHERE namespace = %s AND checkpoint = %s ORDER BY channel"
)
SELECT_WRITES: Final = (
    "SELECT task_id, place, channel, task_path, encoding, depth, content FROM rlm_thread_writes "
    "WHERE namespace = %s AND thread = %s AND graph_key = %s AND checkpoint_key = %s "
    "ORDER BY task_path, task_id, place"
)
FIND_CHECKPOINTS: Final = (
    "SELECT c.sequence, c.metadata FROM rlm_thread_checkpoints c WHERE c.namespace = %s{narrowed} "
    "ORDER BY c.sequence DESC LIMIT %s"
)
IN_THREAD: Final = " AND c.thread = %s"
OF_KIND: Final = (
    " AND EXISTS (SELECT 1 FROM rlm_threads t WHERE t.namespace = c.namespace AND t.thread = c.thread AND t.kind = %s)"
)
IN_GRAPH: Final = " AND c.graph_key = %s"
WITH_ID: Final = " AND c.id_key = %s"
BELOW_SEQUENCE: Final = " AND c.sequence < %s"
BELOW_ID: Final = " AND c.id < %s"
SELECT_OUTLINES: Final = (
    "SELECT c.sequence, c.graph, c.id, c.parent_id, c.metadata, ARRAY(SELECT v.channel FROM rlm_thread_values v "
    "WHERE v.namespace = %(namespace)s AND v.checkpoint = c.sequence) "
    "FROM rlm_thread_checkpoints c WHERE c.namespace = %(namespace)s AND c.thread = %(thread)s ORDER BY c.sequence"
)
SELECT_BY_RUN: Final = (
    "SELECT t.id, c.sequence FROM rlm_thread_checkpoints c "
    "JOIN rlm_threads t ON t.namespace = c.namespace AND t.thread = c.thread "
    "WHERE c.namespace = %s AND c.run_key = %s AND t.kind = %s ORDER BY c.sequence"
)
SELECT_POSITION: Final = (
    "SELECT log_position, last_number FROM rlm_thread_checkpoints WHERE namespace = %s AND sequence = %s"
)
SELECT_NODES_UNTIL: Final = "SELECT id FROM rlm_nodes WHERE namespace = %s AND node <= %s ORDER BY node"

SELECT_SEQUENCES_OF: Final = (
    "SELECT sequence, graph_key, id_key FROM rlm_thread_checkpoints WHERE namespace = %s AND thread = %s"
)
DELETE_WRITES_OF: Final = (
    "DELETE FROM rlm_thread_writes w USING unnest(%s::uuid[], %s::uuid[]) AS gone (graph_key, checkpoint_key) "
    "WHERE w.namespace = %s AND w.thread = %s AND w.graph_key = gone.graph_key "
    "AND w.checkpoint_key = gone.checkpoint_key"
)
DELETE_CHECKPOINTS: Final = "DELETE FROM rlm_thread_checkpoints WHERE namespace = %s AND sequence = ANY (%s::bigint[])"
DELETE_WRITES: Final = "DELETE FROM rlm_thread_writes WHERE namespace = %s AND thread = %s"
DELETE_ALL_CHUNKS: Final = "DELETE FROM rlm_thread_chunks WHERE namespace = %s AND thread = %s"
DELETE_THREAD: Final = "DELETE FROM rlm_threads WHERE namespace = %s AND thread = %s"
HAS_LARGE_WRITES: Final = (
    "SELECT EXISTS (SELECT 1 FROM rlm_thread_writes WHERE namespace = %s AND thread = %s AND graph_key = %s "
    "AND checkpoint_key = %s AND depth > 0)"
)
HAS_WRITES: Final = "SELECT EXISTS (SELECT 1 FROM rlm_thread_writes WHERE namespace = %s AND thread = %s)"

COPY_CHECKPOINTS: Final = (
    "INSERT INTO rlm_thread_checkpoints (namespace, sequence, thread, graph, graph_key, id, id_key, parent_id, "
    "created_at, metadata, run_key, encoding, head, log_position, last_number) "
    "SELECT c.namespace, copy.sequence, %s, c.graph, c.graph_key, c.id, c.id_key, c.parent_id, c.created_at, "
    "c.metadata, c.run_key, c.encoding, c.head, c.log_position, c.last_number "
    "FROM unnest(%s::bigint[], %s::bigint[]) AS copy (source, sequence) "
    "JOIN rlm_thread_checkpoints c ON c.namespace = %s AND c.sequence = copy.source"
)
COPY_VALUES: Final = (
    "INSERT INTO rlm_thread_values (namespace, checkpoint, channel, channel_key, version, encoding, depth, content) "
    "SELECT v.namespace, copy.sequence, v.channel, v.channel_key, v.version, v.encoding, v.depth, v.content "
    "FROM unnest(%s::bigint[], %s::bigint[]) AS copy (source, sequence) "
    "JOIN rlm_thread_values v ON v.namespace = %s AND v.checkpoint = copy.source"
)
COPY_WRITES: Final = (
    "INSERT INTO rlm_thread_writes (namespace, thread, graph_key, checkpoint_key, graph, checkpoint_id, task_key, "
    "place, task_id, task_path, channel, encoding, depth, content) SELECT namespace, %s, graph_key, checkpoint_key, "
    "graph, checkpoint_id, task_key, place, task_id, task_path, channel, encoding, depth, content "
    "FROM rlm_thread_writes WHERE namespace = %s AND thread = %s"
)
COPY_CHUNKS: Final = (
    "INSERT INTO rlm_thread_chunks (namespace, thread, chunk, hash, content) "
    "SELECT namespace, %s, chunk, hash, content FROM rlm_thread_chunks WHERE namespace = %s AND thread = %s"
)

FIND_CHUNKS: Final = (
    "SELECT hash, chunk FROM rlm_thread_chunks WHERE namespace = %s AND thread = %s AND hash = ANY (%s::bytea[])"
)
SELECT_LAST_CHUNK: Final = "SELECT coalesce(max(chunk), 0) FROM rlm_thread_chunks WHERE namespace = %s AND thread = %s"
INSERT_CHUNK: Final = (
    "INSERT INTO rlm_thread_chunks (namespace, thread, chunk, hash, content) VALUES (%s, %s, %s, %s, %s)"
)
SELECT_CHUNK_CONTENTS: Final = (
    "SELECT c.hash, c.content FROM unnest(%s::bigint[]) WITH ORDINALITY AS wanted (chunk, place) "
    "JOIN rlm_thread_chunks c ON c.namespace = %s AND c.thread = %s AND c.chunk = wanted.chunk ORDER BY wanted.place"
)
SELECT_CHUNKS_OF: Final = "SELECT chunk FROM rlm_thread_chunks WHERE namespace = %s AND thread = %s"
DELETE_CHUNKS: Final = (
    "DELETE FROM rlm_thread_chunks WHERE namespace = %s AND thread = %s AND chunk = ANY (%s::bigint[])"
)
SELECT_TREES: Final = (
    "SELECT v.depth, v.content FROM rlm_thread_checkpoints c "
    "JOIN rlm_thread_values v ON v.namespace = c.namespace AND v.checkpoint = c.sequence "
    "WHERE c.namespace = %(namespace)s AND c.thread = %(thread)s AND v.depth > 0 UNION "
    "SELECT depth, content FROM rlm_thread_writes WHERE namespace = %(namespace)s AND thread = %(thread)s AND depth > 0"
)

# -- what is moved whole --------------------------------------------------------------------------------------------

SELECT_NAMESPACES: Final = 'SELECT name FROM rlm_namespaces ORDER BY name COLLATE "C"'
SELECT_HISTORIES: Final = (
    "SELECT n.id, n.tier, n.pinned, n.tier_since, n.decayed_at "
    "FROM unnest(%s::uuid[]) WITH ORDINALITY AS wanted (id_key, place) "
    "JOIN rlm_nodes n ON n.namespace = %s AND n.id_key = wanted.id_key ORDER BY wanted.place"
)
SET_HISTORY: Final = (
    "UPDATE rlm_nodes SET tier = %s, pinned = %s, tier_since = %s, decayed_at = %s WHERE namespace = %s AND id_key = %s"
)
SELECT_SESSION_NUMBERS: Final = (
    "SELECT id, session FROM rlm_sessions WHERE namespace = %s AND id_key = ANY (%s::uuid[])"
)
SELECT_ENTRY_NUMBERS: Final = "SELECT sequence FROM rlm_promotion_log WHERE namespace = %s ORDER BY sequence"
SELECT_NODE_NUMBERS: Final = "SELECT node FROM rlm_nodes WHERE namespace = %s ORDER BY node"
_OF_USE: Final = (
    "JOIN rlm_nodes n ON n.namespace = u.namespace AND n.node = u.node "
    "JOIN rlm_sessions s ON s.namespace = u.namespace AND s.session = u.session WHERE u.namespace = %(namespace)s "
)
_OF_THREAD: Final = (
    "JOIN rlm_threads t ON t.namespace = c.namespace AND t.thread = c.thread WHERE c.namespace = %(namespace)s "
)
READ_PARTS: Final = {
    "EdgePart": (
        "SELECT s.id, t.id, e.kind, e.created_at FROM rlm_edges e "
        "JOIN rlm_nodes s ON s.namespace = e.namespace AND s.node = e.source "
        "JOIN rlm_nodes t ON t.namespace = e.namespace AND t.node = e.target "
        'WHERE e.namespace = %(namespace)s ORDER BY e.source, e.target, e.kind COLLATE "C"'
    ),
    "SessionPart": (
        "SELECT id, started_at, last_active, ended_at, turn FROM rlm_sessions WHERE namespace = %(namespace)s "
        "ORDER BY session"
    ),
    "AccessPart": (
        "SELECT s.id, n.id, u.turn, u.at, u.confidence, u.run_id, u.writer, u.judged FROM rlm_accesses u "
        f"{_OF_USE}ORDER BY u.access"
    ),
    "ForgottenPart": (
        "SELECT s.id, n.id, u.accesses, u.first_at, u.last_at, u.lowest_confidence, u.to_judge "
        f"FROM rlm_forgotten_accesses u {_OF_USE}ORDER BY u.node, u.session"
    ),
    "UsePart": (
        "SELECT s.id, n.id, u.uses, u.lowest_confidence, u.last_used FROM rlm_uses u "
        f"{_OF_USE}ORDER BY u.node, u.session"
    ),
    "OutcomePart": (
        "SELECT s.id, n.id, u.run_key, u.success, u.at, u.learned, CASE WHEN u.run_id IS NOT NULL THEN ARRAY[u.run_id] "
        "WHEN u.run_key IS NOT NULL THEN ARRAY(SELECT DISTINCT a.run_id FROM rlm_accesses a "
        "WHERE a.namespace = %(namespace)s AND a.node = u.node AND a.session = u.session AND a.run_id IS NOT NULL) END "
        f"FROM rlm_outcomes u {_OF_USE}ORDER BY u.outcome"
    ),
    "KeyValuePart": (
        "SELECT collection, key, value FROM rlm_key_values WHERE namespace = %(namespace)s ORDER BY collection, entry"
    ),
    "ThreadPart": "SELECT kind, id FROM rlm_threads WHERE namespace = %(namespace)s ORDER BY thread",
    "ChunkPart": (
        f"SELECT t.kind, t.id, c.chunk, c.content FROM rlm_thread_chunks c {_OF_THREAD}ORDER BY c.thread, c.chunk"
    ),
    "CheckpointPart": (
        "SELECT t.kind, t.id, c.graph, c.id, c.parent_id, c.created_at, c.log_position, c.last_number, c.metadata, "
        "c.encoding, c.head, v.channels, v.versions, v.encodings, v.depths, v.contents FROM rlm_thread_checkpoints c "
        "CROSS JOIN LATERAL (SELECT array_agg(v.channel) AS channels, array_agg(v.version) AS versions, "
        "array_agg(v.encoding) AS encodings, array_agg(v.depth) AS depths, array_agg(v.content) AS contents "
        "FROM rlm_thread_values v WHERE v.namespace = %(namespace)s AND v.checkpoint = c.sequence) AS v "
        f"{_OF_THREAD}ORDER BY c.sequence"
    ),
    "WritePart": (
        "SELECT t.kind, t.id, c.graph, c.checkpoint_id, c.task_id, c.place, c.task_path, c.channel, c.encoding, "
        f"c.depth, c.content FROM rlm_thread_writes c {_OF_THREAD}"
        "ORDER BY c.thread, c.graph, c.checkpoint_id, c.task_id, c.place"
    ),
}
COUNT_PARTS: Final = "SELECT " + " + ".join(
    f"(SELECT count(*) FROM rlm_{table} WHERE namespace = %(namespace)s)"
    for table in (
        "nodes", "sessions", "promotion_log", "messages", "key_values", "threads", "accesses",
        "forgotten_accesses", "uses", "outcomes", "edges", "thread_checkpoints", "thread_writes", "thread_chunks",
    )
)  # fmt: skip
COPY_PARTS: Final = {
    "SessionPart": (
        "COPY rlm_sessions (namespace, session, id, id_key, started_at, last_active, ended_at, turn) FROM STDIN"
    ),
    "AccessPart": (
        "COPY rlm_accesses (namespace, access, session, node, turn, at, confidence, run_id, writer, judged) FROM STDIN"
    ),
    "ForgottenPart": (
        "COPY rlm_forgotten_accesses (namespace, session, node, accesses, first_at, last_at, lowest_confidence, "
        "to_judge) FROM STDIN"
    ),
    "UsePart": "COPY rlm_uses (namespace, session, node, uses, lowest_confidence, last_used) FROM STDIN",
    "OutcomePart": (
        "COPY rlm_outcomes (namespace, outcome, session, node, run_key, run_id, success, at, learned) FROM STDIN"
    ),
    "ThreadPart": "COPY rlm_threads (namespace, thread, kind, id, id_key) FROM STDIN",
    "ChunkPart": "COPY rlm_thread_chunks (namespace, thread, chunk, hash, content) FROM STDIN",
    "CheckpointPart": (
        "COPY rlm_thread_checkpoints (namespace, sequence, thread, graph, graph_key, id, id_key, parent_id, "
        "created_at, metadata, run_key, encoding, head, log_position, last_number) FROM STDIN"
    ),
    "WritePart": (
        "COPY rlm_thread_writes (namespace, thread, graph, graph_key, checkpoint_id, checkpoint_key, task_id, "
        "task_key, place, task_path, channel, encoding, depth, content) FROM STDIN"
    ),
}
COPY_THREAD_VALUES: Final = (
    "COPY rlm_thread_values (namespace, checkpoint, channel, channel_key, version, encoding, depth, content) FROM STDIN"
)
ADD_PART: Final = {
    "EdgePart": (
        "INSERT INTO rlm_edges (namespace, source, target, kind, created_at) VALUES (%s, %s, %s, %s, %s) "
        "ON CONFLICT DO NOTHING"
    ),
    "KeyValuePart": PUT_KEY_VALUE,
}
