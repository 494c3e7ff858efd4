"""Every statement but the DDL, named VERB_NOUN. Values are bound; `{where}` is filled by `compile_filter` alone.

CROSS JOIN fixes the order of a join: SQLite does not know how short a bound JSON list is, and would walk over all nodes
of the namespace for each of its entries (279 ms instead of 1 for 500 ids among 5,000 nodes).
"""

from __future__ import annotations

from typing import Final

# -- what the store is ----------------------------------------------------------------------------------------------

SELECT_META: Final = "SELECT key, value FROM meta"
PUT_META: Final = "INSERT INTO meta (key, value) VALUES (?, ?) ON CONFLICT (key) DO UPDATE SET value = excluded.value"

SELECT_NAMESPACE: Final = "SELECT number, last_node FROM namespaces WHERE name = ?"
# The first node of a namespace has the number above number << 40.
INSERT_NAMESPACE: Final = (
    "INSERT INTO namespaces (number, name, last_node) "
    "SELECT n, ?, n << 40 FROM (SELECT coalesce(max(number), 0) + 1 AS n FROM namespaces) RETURNING number, last_node"
)
UPDATE_NAMESPACE: Final = (
    "UPDATE namespaces SET last_node = max(last_node, ?), nodes = nodes + ?, words = words + ?, "
    "texts_gone = texts_gone + ? WHERE number = ?"
)

# -- the index in memory --------------------------------------------------------------------------------------------

SELECT_VERSION: Final = (
    "SELECT coalesce((SELECT max(sequence) FROM node_changes), 0), last_node, nodes, words, texts_gone "
    "FROM namespaces WHERE number = ?"
)
SELECT_OLDEST_CHANGE: Final = "SELECT min(sequence) FROM node_changes"
# INDEXED BY: the index covers the three columns, the table would be read with all its texts.
SELECT_INDEX: Final = "SELECT node, tier, place FROM nodes INDEXED BY nodes_by_place WHERE namespace = ?"
SELECT_ADDED: Final = "SELECT node, tier, place FROM nodes WHERE node > ? AND node <= ? ORDER BY node"
SELECT_CHANGED: Final = (
    "SELECT DISTINCT c.node, n.tier, n.place FROM node_changes c LEFT JOIN nodes n ON n.node = c.node "
    "WHERE c.sequence > ? AND c.sequence <= ? AND c.node BETWEEN ? AND ?"
)
# What a reader may miss of the list of changes before it loads the index anew.
FORGET_CHANGES: Final = "DELETE FROM node_changes WHERE sequence <= (SELECT max(sequence) FROM node_changes) - 65536"
KEEP_LAST_CHANGE: Final = "DELETE FROM node_changes WHERE sequence < (SELECT max(sequence) FROM node_changes)"

SELECT_SIGNS: Final = "SELECT chunk, bits FROM vector_signs WHERE chunk BETWEEN ? AND ? ORDER BY chunk"
SELECT_CHUNKS: Final = (
    "SELECT rowid, vectors FROM node_embeddings_vector_chunks00 WHERE _rowid_ BETWEEN ? AND ? ORDER BY _rowid_"
)

# -- nodes ----------------------------------------------------------------------------------------------------------

NODE_COLUMNS: Final = (
    "n.id, n.type, n.subtype, n.tier, n.confidence, n.provenance, n.created_at, n.updated_at, n.last_accessed, "
    "n.access_count, n.pinned, n.metadata, n.text"
)
# In the order of the list that is bound as JSON. An IN over json_each takes any number of values in one statement.
SELECT_NODES_BY_ID: Final = (
    f"SELECT {NODE_COLUMNS} FROM json_each(?) AS wanted CROSS JOIN nodes n ON n.namespace = ? AND n.id = wanted.value "
    "ORDER BY wanted.key"
)
SELECT_NODES_BY_NUMBER: Final = (
    f"SELECT {NODE_COLUMNS} FROM json_each(?) AS wanted CROSS JOIN nodes n ON n.node = wanted.value ORDER BY wanted.key"
)
LIST_NODES: Final = (
    f"SELECT {NODE_COLUMNS} FROM nodes n WHERE n.node > ? AND n.node <= ? AND {{where}} ORDER BY n.node LIMIT ?"
)
# The nodes are chosen by number first: a sort over all of them would carry their texts along.
LIST_NEWEST_NODES: Final = (
    f"SELECT {NODE_COLUMNS} FROM nodes n WHERE n.node IN (SELECT n.node FROM nodes n WHERE n.node > ? AND n.node <= ? "
    "AND (n.updated_at, n.node) < (?, ?) AND {where} ORDER BY n.updated_at DESC, n.node DESC LIMIT ?) "
    "ORDER BY n.updated_at DESC, n.node DESC"
)
SELECT_PLACE_IN_LIST: Final = "SELECT node, updated_at FROM nodes WHERE namespace = ? AND id = ?"
# By the tiers, of which there is an index; by a filter, which starts from its own and looks nodes up by number.
COUNT_IN_TIERS: Final = "SELECT count(*) FROM nodes n WHERE n.namespace = ? AND {where}"
COUNT_NODES: Final = "SELECT count(*) FROM nodes n WHERE n.node BETWEEN ? AND ? AND {where}"
SELECT_IDS: Final = "SELECT n.id FROM nodes n WHERE n.node BETWEEN ? AND ? AND {where} ORDER BY n.node"
SELECT_STORED: Final = (
    "SELECT n.id, n.node, n.place, n.text, n.metadata, n.tier FROM json_each(?) AS wanted "
    "CROSS JOIN nodes n ON n.namespace = ? AND n.id = wanted.value"
)
SELECT_TEXT_HASHES: Final = (
    "SELECT n.node, n.text_hash FROM json_each(?) AS wanted CROSS JOIN nodes n ON n.node = wanted.value"
)
SELECT_ORIGINS: Final = (
    "SELECT n.created_at, n.id FROM json_each(?) AS wanted CROSS JOIN nodes n ON n.node = wanted.value "
    "ORDER BY wanted.key"
)
SELECT_KEYWORDS: Final = (
    "SELECT k.node, k.text FROM json_each(?) AS wanted CROSS JOIN node_keywords k ON k.node = wanted.value"
)
SELECT_PLACES: Final = (
    "SELECT n.place FROM json_each(?) AS wanted LEFT JOIN nodes n ON n.node = wanted.value ORDER BY wanted.key"
)
SELECT_PENDING: Final = (
    f"SELECT {NODE_COLUMNS} FROM nodes n WHERE n.namespace = ? AND n.place IS NULL AND n.node > ? "
    "ORDER BY n.node LIMIT ?"
)
SELECT_TEXT_OWNERS: Final = (
    "SELECT n.text, n.place FROM json_each(?) AS wanted CROSS JOIN nodes n ON n.text_hash = wanted.value "
    "WHERE n.node BETWEEN ? AND ? AND n.place IS NOT NULL"
)

INSERT_NODE: Final = (
    "INSERT INTO nodes (node, namespace, id, tier, tier_since, created_at, updated_at, last_accessed, access_count, "
    "pinned, type, subtype, confidence, provenance, text_hash, metadata, text, keywords, place) "
    "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
)
# The tier, the times of use and the pin are the node's history: writing it again does not take them away.
UPDATE_NODE: Final = (
    "UPDATE nodes SET type = ?, subtype = ?, confidence = ?, provenance = ?, text_hash = ?, metadata = ?, text = ?, "
    "keywords = ?, updated_at = ?, place = ? WHERE node = ?"
)
UPDATE_PLACE: Final = "UPDATE nodes SET place = ? WHERE node = ?"
DELETE_NODES: Final = "DELETE FROM nodes WHERE node IN (SELECT value FROM json_each(?))"
# What vec0 keeps of a chunk: which of its slots are in use, and by which rowid.
SELECT_CHUNK_MEMBERS: Final = (
    "SELECT c.chunk_id, c.validity, c.rowids FROM json_each(?) AS wanted "
    "CROSS JOIN node_embeddings_chunks c ON c.chunk_id = wanted.value"
)
SELECT_ALL_MEMBERS: Final = "SELECT chunk_id, validity, rowids FROM node_embeddings_chunks"
SELECT_VECTOR_KEYS: Final = "SELECT rowid, id, chunk_id, chunk_offset FROM node_embeddings_rowids"
SELECT_LAST_MEMBERS: Final = (
    "SELECT chunk_id, validity, rowids FROM node_embeddings_chunks ORDER BY chunk_id DESC LIMIT 1"
)
# The highest numbers ever given to a vector and to a chunk.
SELECT_LAST_NUMBERS: Final = (
    "SELECT coalesce((SELECT seq FROM sqlite_sequence WHERE name = 'node_embeddings_rowids'), 0), "
    "coalesce((SELECT seq FROM sqlite_sequence WHERE name = 'node_embeddings_chunks'), 0)"
)
INSERT_CHUNK_MEMBERS: Final = (
    "INSERT INTO node_embeddings_chunks (chunk_id, size, validity, rowids) VALUES (?, ?, ?, ?)"
)
# That table has a column `rowid` which is not its rowid.
INSERT_CHUNK_VECTORS: Final = "INSERT INTO node_embeddings_vector_chunks00 (_rowid_, rowid, vectors) VALUES (?, ?, ?)"
INSERT_VECTOR_KEY: Final = "INSERT INTO node_embeddings_rowids (rowid, id, chunk_id, chunk_offset) VALUES (?, ?, ?, ?)"
UPDATE_CHUNK_MEMBERS: Final = "UPDATE node_embeddings_chunks SET validity = ?, rowids = ? WHERE chunk_id = ?"
DELETE_CHUNKS: Final = tuple(
    f"DELETE FROM {table} WHERE {column} IN (SELECT value FROM json_each(?))"
    for table, column in (
        ("node_embeddings_chunks", "chunk_id"),
        ("node_embeddings_vector_chunks00", "rowid"),
        ("vector_signs", "chunk"),
    )
)
DELETE_VECTOR_KEYS: Final = "DELETE FROM node_embeddings_rowids WHERE id IN (SELECT value FROM json_each(?))"
INSERT_FIELD: Final = "INSERT OR IGNORE INTO node_fields (key, value, node) VALUES (?, ?, ?)"
DELETE_FIELD: Final = "DELETE FROM node_fields WHERE key = ? AND value IS ? AND node = ?"

# -- keywords -------------------------------------------------------------------------------------------------------

INDEX_NODES: Final = (
    "INSERT INTO nodes_fts (rowid, text) "
    "SELECT k.node, k.text FROM json_each(?) AS wanted CROSS JOIN node_keywords k ON k.node = wanted.value"
)
# Before their texts change or go: FTS5 must be told what it has indexed.
UNINDEX_NODES: Final = (
    "INSERT INTO nodes_fts (nodes_fts, rowid, text) "
    "SELECT 'delete', k.node, k.text FROM json_each(?) AS wanted CROSS JOIN node_keywords k ON k.node = wanted.value"
)

MATCHING_NODES: Final = "SELECT rowid FROM nodes_fts WHERE nodes_fts MATCH ? AND rowid BETWEEN ? AND ?"
COUNT_MATCHING: Final = "SELECT count(*) FROM nodes_fts WHERE nodes_fts MATCH ? AND rowid BETWEEN ? AND ?"
# FTS5 keeps the number of tokens of each row as a variable-length integer.
SELECT_LENGTHS: Final = (
    "SELECT d.sz FROM json_each(?) AS wanted CROSS JOIN nodes_fts_docsize d ON d.id = wanted.value ORDER BY wanted.key"
)

# -- sessions, accesses, outcomes -----------------------------------------------------------------------------------

SELECT_JOURNALS: Final = "SELECT name, taken FROM access_journals"
PUT_JOURNAL: Final = (
    "INSERT INTO access_journals (name, taken) VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET taken = excluded.taken"
)
DELETE_JOURNAL: Final = "DELETE FROM access_journals WHERE name = ?"

TOUCH_SESSION: Final = (
    "INSERT INTO sessions (namespace, id, started_at, last_active, turn) VALUES (?, ?, ?, ?, ?) "
    "ON CONFLICT (namespace, id) DO UPDATE SET started_at = min(started_at, excluded.started_at), "
    "last_active = max(last_active, excluded.last_active), turn = max(turn, excluded.turn), ended_at = NULL, kept = 1 "
    "RETURNING session"
)
SELECT_SESSION: Final = (
    "SELECT session, id, started_at, last_active, ended_at, turn FROM sessions WHERE namespace = ? AND id = ?"
)
LIST_SESSIONS: Final = (
    "SELECT session, id, started_at, last_active, ended_at, turn FROM sessions WHERE namespace = ? "
    "ORDER BY last_active DESC, session DESC LIMIT ?"
)
SELECT_IDLE_SESSIONS: Final = (
    "SELECT id FROM sessions WHERE namespace = ? AND ended_at IS NULL AND last_active < ? ORDER BY last_active, session"
)
END_SESSION: Final = "UPDATE sessions SET ended_at = ? WHERE namespace = ? AND id = ?"
SELECT_NODES_TO_COUNT: Final = (
    "SELECT n.id, n.node FROM json_each(?) AS wanted CROSS JOIN nodes n ON n.namespace = ? AND n.id = wanted.value"
)
# Before INSERT_ACCESS, once a turn. Hits of one turn are one use; turns are told apart by their writer too, for two
# processes may be in the same session, each with a turn 1.
COUNT_USE: Final = (
    "INSERT INTO uses (node, session, uses, lowest_confidence, last_used) VALUES (?1, ?2, 1, ?5, ?6) "
    "ON CONFLICT (node, session) DO UPDATE SET "
    "uses = uses + NOT EXISTS (SELECT 1 FROM accesses a WHERE a.node = excluded.node AND a.session = excluded.session "
    "AND a.turn = ?3 AND a.writer = ?4), "
    "lowest_confidence = min(lowest_confidence, excluded.lowest_confidence), "
    "last_used = max(last_used, excluded.last_used)"
)
INSERT_ACCESS: Final = (
    "INSERT INTO accesses (node, session, turn, writer, confidence, at, run_id) VALUES (?, ?, ?, ?, ?, ?, ?)"
)
COUNT_ACCESSES: Final = (
    "UPDATE nodes SET access_count = access_count + ?, last_accessed = max(coalesce(last_accessed, 0), ?) "
    "WHERE node = ?"
)
SELECT_USES: Final = (
    "SELECT n.id, n.tier_since, s.id, u.uses, u.lowest_confidence, u.last_used FROM json_each(?) AS wanted "
    "CROSS JOIN nodes n ON n.namespace = ? AND n.id = wanted.value LEFT JOIN uses u ON u.node = n.node "
    "LEFT JOIN sessions s ON s.session = u.session ORDER BY u.last_used, s.id"
)
SELECT_USES_IN: Final = (
    "SELECT n.id, n.tier_since, s.id, u.uses, u.lowest_confidence, u.last_used FROM json_each(?1) AS wanted "
    "CROSS JOIN nodes n ON n.namespace = ?2 AND n.id = wanted.value "
    "CROSS JOIN sessions s ON s.namespace = ?2 AND s.id = ?3 "
    "CROSS JOIN uses u ON u.node = n.node AND u.session = s.session"
)
SELECT_OUTCOMES: Final = (
    "SELECT n.id, sum(o.success), sum(NOT o.success) FROM json_each(?) AS wanted "
    "CROSS JOIN nodes n ON n.namespace = ? AND n.id = wanted.value JOIN outcomes o ON o.node = n.node GROUP BY n.id"
)
SELECT_ACCESSES: Final = (
    "SELECT n.id, s.id, a.turn, a.at, a.confidence, a.run_id, a.writer FROM nodes n JOIN accesses a ON a.node = n.node "
    "JOIN sessions s ON s.session = a.session WHERE n.namespace = ? AND n.id = ? ORDER BY a.at, a.access"
)
# The session that has been still for longest, of those that have ended and may have accesses to forget.
SELECT_SESSION_TO_FORGET: Final = (
    "SELECT session FROM sessions INDEXED BY sessions_kept WHERE namespace = ? AND ended_at IS NOT NULL AND kept = 1 "
    "AND last_active < ? ORDER BY last_active LIMIT 1"
)
# What was used in a run stays until the outcome of the run is there, which is attached to no other accesses.
SELECT_ACCESSES_TO_FORGET: Final = (
    "SELECT access FROM accesses WHERE session = ? AND (judged = 1 OR run_id IS NULL) LIMIT ?"
)
SUM_FORGOTTEN: Final = (
    "INSERT INTO forgotten_accesses (node, session, accesses, first_at, last_at, lowest_confidence, to_judge) "
    "SELECT node, session, count(*), min(at), max(at), min(confidence), max(judged = 0) FROM accesses "
    "WHERE access IN (SELECT value FROM json_each(?)) GROUP BY node, session "
    "ON CONFLICT (node, session) DO UPDATE SET accesses = accesses + excluded.accesses, "
    "first_at = min(first_at, excluded.first_at), last_at = max(last_at, excluded.last_at), "
    "lowest_confidence = min(lowest_confidence, excluded.lowest_confidence), "
    "to_judge = max(to_judge, excluded.to_judge)"
)
FORGET_ACCESSES: Final = "DELETE FROM accesses WHERE access IN (SELECT value FROM json_each(?))"
SET_KEPT: Final = "UPDATE sessions SET kept = ? WHERE session = ?"
SELECT_FORGOTTEN: Final = (
    "SELECT n.id, s.id, f.accesses, f.first_at, f.last_at, f.lowest_confidence FROM nodes n "
    "JOIN forgotten_accesses f ON f.node = n.node JOIN sessions s ON s.session = f.session "
    "WHERE n.namespace = ? AND n.id = ? ORDER BY f.first_at, s.id"
)
_SESSION: Final = "(SELECT session FROM sessions WHERE namespace = ? AND id = ?)"
SELECT_IDS_IN_SESSION: Final = (
    f"SELECT n.id FROM uses u CROSS JOIN nodes n ON n.node = u.node WHERE u.session = {_SESSION} AND n.tier = ? "
    "ORDER BY u.node LIMIT ?"
)
SELECT_NODES_IN_SESSION: Final = (
    f"SELECT {NODE_COLUMNS} FROM json_each(?) AS wanted CROSS JOIN nodes n ON n.namespace = ? AND n.id = wanted.value "
    f"JOIN uses u ON u.node = n.node AND u.session = {_SESSION} WHERE n.tier = ? ORDER BY n.node"
)
# Also what is forgotten: in a session, by its summary; in a run, by the outcome that it got before it could be.
SELECT_TO_JUDGE: Final = (
    "SELECT n.node, n.id FROM (SELECT a.node FROM accesses a WHERE a.session = ?1 "
    "AND CASE WHEN ?2 IS NOT NULL THEN a.run_id = ?2 WHEN ?3 IS NOT NULL THEN 1 ELSE a.judged = 0 END "
    "UNION SELECT f.node FROM forgotten_accesses f WHERE f.session = ?1 "
    "AND CASE WHEN ?2 IS NOT NULL "
    "THEN EXISTS (SELECT 1 FROM outcomes o WHERE o.node = f.node AND o.session = ?1 AND o.run_id = ?2) "
    "WHEN ?3 IS NOT NULL THEN 1 ELSE f.to_judge END"
    ") AS used CROSS JOIN nodes n ON n.node = used.node "
    "WHERE ?3 IS NULL OR n.id IN (SELECT value FROM json_each(?3)) ORDER BY n.node"
)
MARK_JUDGED: Final = (
    "UPDATE accesses SET judged = 1 WHERE session = ?1 AND node = ?2 AND (?3 IS NULL OR run_id = ?3) AND judged = 0"
)
MARK_FORGOTTEN_JUDGED: Final = "UPDATE forgotten_accesses SET to_judge = 0 WHERE session = ? AND node = ?"
INSERT_OUTCOME: Final = (
    "INSERT INTO outcomes (node, session, run_id, success, at) VALUES (?, ?, ?, ?, ?) "
    "ON CONFLICT (node, session, run_id) DO UPDATE SET learned = learned AND success = excluded.success, "
    "success = excluded.success, at = excluded.at"
)
SELECT_UNLEARNED: Final = (
    "SELECT o.outcome, n.id, o.success FROM outcomes o JOIN nodes n ON n.node = o.node "
    "WHERE o.learned = 0 AND o.outcome > ? AND n.namespace = ? ORDER BY o.outcome LIMIT ?"
)
MARK_LEARNED: Final = "UPDATE outcomes SET learned = 1 WHERE outcome = ?"
FORGET_USES: Final = "DELETE FROM uses WHERE node = (SELECT node FROM nodes WHERE namespace = ? AND id = ?)"
FORGET_OUTCOMES: Final = "DELETE FROM outcomes WHERE node = (SELECT node FROM nodes WHERE namespace = ? AND id = ?)"

# -- tiers ----------------------------------------------------------------------------------------------------------

SET_TIER: Final = "UPDATE nodes SET tier = ?, tier_since = ? WHERE namespace = ? AND id = ?"
# A node does not fade while it is pinned.
SET_PINNED: Final = (
    "UPDATE nodes SET decayed_at = CASE WHEN pinned AND NOT ?1 THEN ?2 ELSE decayed_at END, pinned = ?1 "
    "WHERE namespace = ?3 AND id = ?4"
)
SET_CONFIDENCE: Final = (
    "UPDATE nodes SET confidence = ?, decayed_at = coalesce(?, decayed_at) WHERE namespace = ? AND id = ?"
)
# Of the sessions of a node, no more are counted than suffice.
_SESSIONS: Final = "(SELECT count(*) FROM (SELECT 1 FROM uses u WHERE u.node = n.node LIMIT ?2)) >= ?2"
SELECT_WEIGHED_BY: Final = "SELECT weighed_by FROM namespaces WHERE number = ?"
SET_WEIGHED_BY: Final = "UPDATE namespaces SET weighed_by = ? WHERE number = ?"
# For whoever adds what the rules weigh by another way than the use of a node.
WEIGH_ALL: Final = "UPDATE namespaces SET weighed_by = NULL WHERE number = ?"
# Nodes in session that enough sessions have used; the rules look at the rest.
SELECT_PROVED: Final = (
    f"SELECT n.node FROM nodes n WHERE n.namespace = ?1 AND n.tier = 'session' AND n.node > ?3 AND {_SESSIONS} "
    "ORDER BY n.node"
)
SELECT_AMONG: Final = (
    f"SELECT {NODE_COLUMNS} FROM json_each(?1) AS wanted CROSS JOIN nodes n ON n.node = wanted.value "
    f"WHERE n.tier = ?3 AND {_SESSIONS} ORDER BY wanted.key"
)
SELECT_UNWEIGHED: Final = "SELECT node FROM unweighed_nodes WHERE node BETWEEN ? AND ? ORDER BY node"
FORGET_UNWEIGHED: Final = "DELETE FROM unweighed_nodes WHERE node IN (SELECT value FROM json_each(?)) RETURNING node"
SELECT_UNUSED: Final = (
    "SELECT n.node FROM nodes n INDEXED BY nodes_to_archive "
    "WHERE n.namespace = ? AND n.tier = 'longterm' AND n.pinned = 0 "
    "AND max(n.created_at, n.tier_since, coalesce(n.last_accessed, 0)) < ? ORDER BY n.node"
)
SELECT_USED: Final = (
    f"SELECT {NODE_COLUMNS} FROM nodes n WHERE n.namespace = ? AND n.tier IN ('task', 'session') "
    "AND EXISTS (SELECT 1 FROM uses u WHERE u.node = n.node) ORDER BY n.node"
)
SELECT_FADING: Final = (
    "SELECT n.node, n.id, n.confidence, "
    "max(n.created_at, n.updated_at, coalesce(n.decayed_at, 0), coalesce(n.last_accessed, 0)) "
    "FROM nodes n WHERE n.node > ? AND n.node <= ? AND n.pinned = 0 ORDER BY n.node LIMIT ?"
)
SELECT_BIRTHS: Final = "SELECT id, created_at FROM nodes WHERE namespace = ?"
SELECT_LAST_SWEEP: Final = "SELECT last_sweep FROM namespaces WHERE number = ?"
SET_LAST_SWEEP: Final = "UPDATE namespaces SET last_sweep = ? WHERE number = ?"

INSERT_EDGE: Final = (
    "INSERT OR IGNORE INTO edges (source, target, kind, created_at) SELECT s.node, t.node, ?, ? "
    "FROM nodes s JOIN nodes t ON t.namespace = s.namespace WHERE s.namespace = ? AND s.id = ? AND t.id = ?"
)
SELECT_EDGES: Final = (
    "SELECT s.id, t.id, e.kind, e.created_at FROM edges e JOIN nodes s ON s.node = e.source "
    "JOIN nodes t ON t.node = e.target WHERE s.namespace = ?1 AND (s.id = ?2 OR t.id = ?2) "
    "ORDER BY e.created_at, s.node, t.node"
)

SELECT_LOG_HEAD: Final = (
    "SELECT n.name, n.log_head, (SELECT max(sequence) FROM promotion_log) FROM namespaces n WHERE n.number = ?"
)
SET_LOG_HEAD: Final = "UPDATE namespaces SET log_head = ? WHERE number = ?"
INSERT_LOG_ENTRY: Final = (
    "INSERT INTO promotion_log (sequence, namespace, node_id, from_tier, to_tier, rule, moved, actor, reason, "
    "conditions, session_id, at, previous_hash, hash) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
)
SELECT_LOG: Final = (
    "SELECT sequence, node_id, from_tier, to_tier, rule, moved, actor, reason, conditions, session_id, at, "
    "previous_hash, hash FROM promotion_log WHERE namespace = ?1 AND sequence > ?2 AND (?3 IS NULL OR at >= ?3) "
    "ORDER BY sequence LIMIT ?4"
)
SELECT_LOG_OF_NODE: Final = SELECT_LOG.replace("AND sequence", "AND node_id = ?5 AND sequence")
SELECT_REFUSAL: Final = (
    "SELECT 1 FROM promotion_log WHERE namespace = ? AND node_id = ? AND session_id = ? AND rule = ? AND moved = 0"
)

# -- conversations --------------------------------------------------------------------------------------------------

SELECT_KEYS: Final = "SELECT DISTINCT key FROM messages WHERE namespace = ? ORDER BY key"
SELECT_MESSAGES: Final = (
    "SELECT message, key, status, at, content FROM messages "
    "WHERE namespace = ? AND key = ? AND status IN (?, ?) ORDER BY message LIMIT ? OFFSET ?"
)
SELECT_MESSAGE: Final = (
    "SELECT message, key, status, at, content FROM messages WHERE message = ? AND namespace = ? AND key = ?"
)
COUNT_MESSAGES: Final = "SELECT count(*) FROM messages WHERE namespace = ? AND key = ? AND status IN (?, ?)"
INSERT_MESSAGE: Final = (
    "INSERT INTO messages (namespace, key, status, at, content) VALUES (?, ?, ?, ?, ?) RETURNING message"
)
SET_MESSAGE_STATUS: Final = "UPDATE messages SET status = ? WHERE message = ? AND namespace = ?"
DELETE_MESSAGE: Final = "DELETE FROM messages WHERE message = ? AND namespace = ?"
DELETE_MESSAGES: Final = "DELETE FROM messages WHERE namespace = ?1 AND (?2 IS NULL OR key = ?2)"

# -- a change of the embedding model, and the rebuilding of the vectors ------------------------------------------------

DELETE_META: Final = "DELETE FROM meta WHERE key = ?"
_OUTDATED: Final = (
    "FROM nodes n LEFT JOIN new_vectors v ON v.node = n.node AND v.text_hash = n.text_hash "
    "WHERE n.place IS NOT NULL AND v.node IS NULL AND trim(n.text, ?) <> ''"
)
SELECT_OUTDATED: Final = f"SELECT n.node, n.text {_OUTDATED} LIMIT ?"
COUNT_OUTDATED: Final = f"SELECT count(*) {_OUTDATED}"
PUT_NEW_VECTOR: Final = "INSERT OR REPLACE INTO new_vectors (node, text_hash, vector) VALUES (?, ?, ?)"
FORGET_PLACES: Final = "UPDATE nodes SET place = NULL WHERE place IS NOT NULL"
SELECT_NEW_VECTORS: Final = (
    "SELECT n.node, s.name, n.id, v.vector FROM new_vectors v "
    "JOIN nodes n ON n.node = v.node AND n.text_hash = v.text_hash "
    "JOIN namespaces s ON s.number = n.namespace WHERE v.node > ? ORDER BY v.node LIMIT ?"
)
SELECT_OWNERS: Final = (
    "SELECT n.node, s.name, n.id, n.place FROM nodes n JOIN namespaces s ON s.number = n.namespace "
    "WHERE n.place IS NOT NULL ORDER BY n.node"
)
MOVE_CHUNKS: Final = (
    "INSERT INTO moved_chunks (chunk, vectors) SELECT _rowid_, vectors FROM node_embeddings_vector_chunks00"
)

# -- counts and sizes -----------------------------------------------------------------------------------------------

COUNT_BY_TIER: Final = "SELECT tier, count(*) FROM nodes WHERE namespace = ? GROUP BY tier"
COUNT_BY_TYPE: Final = "SELECT type, count(*) FROM nodes WHERE namespace = ? GROUP BY type"
COUNT_WITH_VECTOR: Final = "SELECT count(*) FROM nodes WHERE namespace = ? AND place IS NOT NULL"
SUM_TEXT_BYTES: Final = "SELECT coalesce(sum(octet_length(text)), 0) FROM nodes"
SELECT_SIZES: Final = "SELECT name, pgsize FROM dbstat WHERE aggregate = TRUE"

# -- threads of checkpoints -----------------------------------------------------------------------------------------

# Measured as a join of both tables, with bound values: 10 us in place of 2.5.
SELECT_THREAD: Final = (
    "SELECT thread, era FROM threads WHERE namespace = (SELECT number FROM namespaces WHERE name = ?3) "
    "AND kind = ?1 AND id = ?2"
)
# The same, and what a checkpoint notes of the moment. Inside PUT_CHECKPOINT, that took twice as long.
SELECT_THREAD_NOW: Final = (
    "SELECT thread, era, coalesce((SELECT max(sequence) FROM promotion_log), 0), "
    "(SELECT last_node FROM namespaces WHERE name = ?3) FROM threads "
    "WHERE namespace = (SELECT number FROM namespaces WHERE name = ?3) AND kind = ?1 AND id = ?2"
)
INSERT_THREAD: Final = "INSERT INTO threads (namespace, kind, id) VALUES (?, ?, ?)"
CHANGE_ERA: Final = "UPDATE threads SET era = random() WHERE thread = ?"
LIST_THREADS: Final = (
    "SELECT t.id FROM namespaces n JOIN threads t ON t.namespace = n.number AND t.kind = ? WHERE n.name = ? "
    "ORDER BY t.thread"
)
PUT_CHECKPOINT: Final = (
    "INSERT INTO thread_checkpoints "
    "(thread, graph, id, parent_id, created_at, metadata, encoding, head, log_position, last_node, channels, contents) "
    "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (thread, graph, id) DO NOTHING"
)
# A known id keeps its place, its time and its position: it is the same checkpoint.
REPLACE_CHECKPOINT: Final = (
    "UPDATE thread_checkpoints SET parent_id = ?, metadata = ?, encoding = ?, head = ?, channels = ?, contents = ? "
    "WHERE thread = ? AND graph = ? AND id = ?"
)
SELECT_VALUES: Final = "SELECT channels, contents FROM thread_checkpoints WHERE thread = ? AND graph = ? AND id = ?"
SELECT_WRITTEN: Final = (
    "SELECT task_id, place, depth FROM thread_writes WHERE thread = ? AND graph = ? AND checkpoint_id = ?"
)
PUT_WRITE: Final = (
    "INSERT INTO thread_writes "
    "(thread, graph, checkpoint_id, task_id, place, task_path, channel, encoding, depth, content) "
    "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (thread, graph, checkpoint_id, task_id, place) DO "
)
PUT_WRITE_ONCE: Final = PUT_WRITE + "NOTHING"
REPLACE_WRITE: Final = PUT_WRITE + (
    "UPDATE SET task_path = excluded.task_path, channel = excluded.channel, encoding = excluded.encoding, "
    "depth = excluded.depth, content = excluded.content"
)

CHECKPOINT_COLUMNS: Final = (
    "c.sequence, c.thread, t.id, c.graph, c.id, c.parent_id, c.created_at, c.metadata, c.encoding, c.head, "
    "c.channels, c.contents"
)
SELECT_CHECKPOINT: Final = (
    f"SELECT {CHECKPOINT_COLUMNS} FROM thread_checkpoints c JOIN threads t ON t.thread = c.thread WHERE c.sequence = ?"
)
SELECT_SEQUENCE: Final = "SELECT sequence FROM thread_checkpoints WHERE thread = ? AND graph = ? AND id = ?"
SELECT_LAST_SEQUENCE: Final = "SELECT max(sequence) FROM thread_checkpoints WHERE thread = ? AND graph = ?"
SELECT_WRITES: Final = (
    "SELECT task_id, place, channel, task_path, encoding, depth, content FROM thread_writes "
    "WHERE thread = ? AND graph = ? AND checkpoint_id = ? ORDER BY task_path, task_id, place"
)
# One statement for one thread and one for all: the planner takes the index of a thread only where it is asked for one.
FIND_IN_THREAD: Final = (
    "SELECT c.sequence FROM thread_checkpoints c WHERE c.thread = ?1 AND (?2 IS NULL OR c.graph = ?2) "
    "AND (?3 IS NULL OR c.id = ?3) AND (?4 IS NULL OR c.sequence < ?4) AND (?5 IS NULL OR c.id < ?5) "
    "AND (?6 OR rlm_holds(?7, c.metadata)) ORDER BY c.sequence DESC LIMIT ?8"
)
FIND_IN_ALL: Final = (
    "SELECT c.sequence FROM thread_checkpoints c JOIN threads t ON t.thread = c.thread "
    "JOIN namespaces n ON n.number = t.namespace WHERE n.name = ?9 AND t.kind = ?1 AND (?2 IS NULL OR c.graph = ?2) "
    "AND (?3 IS NULL OR c.id = ?3) AND (?4 IS NULL OR c.sequence < ?4) AND (?5 IS NULL OR c.id < ?5) "
    "AND (?6 OR rlm_holds(?7, c.metadata)) ORDER BY c.sequence DESC LIMIT ?8"
)
SELECT_OUTLINES: Final = (
    "SELECT sequence, graph, id, parent_id, metadata, channels FROM thread_checkpoints WHERE thread = ? "
    "ORDER BY sequence"
)
SELECT_BY_RUN: Final = (
    "SELECT t.id, c.sequence FROM thread_checkpoints c JOIN threads t ON t.thread = c.thread "
    "JOIN namespaces n ON n.number = t.namespace "
    "WHERE json_extract(c.metadata, '$.run_id') = ? AND t.kind = ? AND n.name = ? ORDER BY c.sequence"
)
SELECT_POSITION: Final = "SELECT log_position, last_node FROM thread_checkpoints WHERE sequence = ?"
SELECT_NODES_UNTIL: Final = (
    "SELECT o.id FROM nodes o JOIN namespaces n ON n.number = o.namespace WHERE n.name = ? AND o.node <= ? "
    "ORDER BY o.node"
)

DELETE_WRITES_OF: Final = (
    "DELETE FROM thread_writes WHERE (thread, graph, checkpoint_id) IN ("
    "SELECT c.thread, c.graph, c.id FROM json_each(?) AS gone CROSS JOIN thread_checkpoints c "
    "ON c.sequence = gone.value WHERE c.thread = ?)"
)
DELETE_CHECKPOINTS: Final = (
    "DELETE FROM thread_checkpoints WHERE thread = ?2 AND sequence IN (SELECT value FROM json_each(?1))"
)
DELETE_WRITES: Final = "DELETE FROM thread_writes WHERE thread = ?"
DELETE_ALL_CHECKPOINTS: Final = "DELETE FROM thread_checkpoints WHERE thread = ?"
DELETE_ALL_CHUNKS: Final = "DELETE FROM thread_chunks WHERE chunk BETWEEN ?1 << 32 AND (?1 << 32) + 4294967295"
DELETE_THREAD: Final = "DELETE FROM threads WHERE thread = ?"
IS_EMPTY_THREAD: Final = (
    "SELECT NOT EXISTS (SELECT 1 FROM thread_checkpoints WHERE thread = ?1) "
    "AND NOT EXISTS (SELECT 1 FROM thread_writes WHERE thread = ?1)"
)

COPY_CHECKPOINTS: Final = (
    "INSERT INTO thread_checkpoints "
    "(thread, graph, id, parent_id, created_at, log_position, last_node, metadata, encoding, head, channels, contents) "
    "SELECT ?, graph, id, parent_id, created_at, log_position, last_node, metadata, encoding, head, channels, contents "
    "FROM thread_checkpoints WHERE thread = ? ORDER BY sequence"
)
COPY_WRITES: Final = (
    "INSERT INTO thread_writes "
    "(thread, graph, checkpoint_id, task_id, place, task_path, channel, encoding, depth, content) "
    "SELECT ?, graph, checkpoint_id, task_id, place, task_path, channel, encoding, depth, content "
    "FROM thread_writes WHERE thread = ?"
)
COPY_CHUNKS: Final = (
    "INSERT INTO thread_chunks (chunk, hash, content) SELECT (?1 << 32) | (chunk & 4294967295), hash, content "
    "FROM thread_chunks WHERE chunk BETWEEN ?2 << 32 AND (?2 << 32) + 4294967295"
)

# The index is on the same expression as the condition.
FIND_CHUNK: Final = "SELECT hash, chunk & 4294967295 FROM thread_chunks WHERE chunk >> 32 = ? AND hash = ?"
SELECT_LAST_CHUNK: Final = (
    "SELECT coalesce(max(chunk) & 4294967295, 0) FROM thread_chunks "
    "WHERE chunk BETWEEN ?1 << 32 AND (?1 << 32) + 4294967295"
)
INSERT_CHUNK: Final = "INSERT INTO thread_chunks (chunk, hash, content) VALUES ((? << 32) | ?, ?, ?)"
SELECT_CHUNK_CONTENTS: Final = (
    "SELECT c.hash, c.content FROM json_each(?) AS wanted "
    "CROSS JOIN thread_chunks c ON c.chunk = (? << 32) | wanted.value "
    "ORDER BY wanted.key"
)
SELECT_CHUNKS_OF: Final = "SELECT chunk & 4294967295 FROM thread_chunks WHERE chunk >> 32 = ?"
DELETE_CHUNK: Final = "DELETE FROM thread_chunks WHERE chunk = (? << 32) | ?"
SELECT_ALL_VALUES: Final = "SELECT channels, contents FROM thread_checkpoints WHERE thread = ?"
SELECT_WRITTEN_TREES: Final = "SELECT DISTINCT depth, content FROM thread_writes WHERE thread = ? AND depth > 0"

# -- JSON values under keys -----------------------------------------------------------------------------------------

PUT_KEY_VALUE: Final = (
    "INSERT INTO key_values (namespace, collection, key, value) VALUES (?, ?, ?, ?) "
    "ON CONFLICT (namespace, collection, key) DO UPDATE SET value = excluded.value"
)
SELECT_KEY_VALUES: Final = (
    "SELECT k.key, k.value FROM json_each(?) AS wanted CROSS JOIN key_values k "
    "ON k.namespace = ? AND k.collection = ? AND k.key = wanted.value"
)
LIST_KEY_VALUES: Final = "SELECT key, value FROM key_values WHERE namespace = ? AND collection = ? ORDER BY entry"
DELETE_KEY_VALUES: Final = (
    "DELETE FROM key_values WHERE namespace = ?2 AND collection = ?3 AND key IN (SELECT value FROM json_each(?1)) "
    "RETURNING key"
)

# -- what is moved whole --------------------------------------------------------------------------------------------

SELECT_NAMESPACES: Final = "SELECT name FROM namespaces ORDER BY name"
SELECT_HISTORIES: Final = (
    "SELECT n.id, n.tier, n.pinned, n.tier_since, n.decayed_at FROM json_each(?) AS wanted "
    "CROSS JOIN nodes n ON n.namespace = ? AND n.id = wanted.value ORDER BY wanted.key"
)
SET_HISTORY: Final = (
    "UPDATE nodes SET tier = ?, pinned = ?, tier_since = ?, decayed_at = ? WHERE namespace = ? AND id = ?"
)
SELECT_SESSION_NUMBERS: Final = (
    "SELECT s.id, s.session FROM json_each(?) AS wanted CROSS JOIN sessions s "
    "ON s.namespace = ? AND s.id = wanted.value"
)
SELECT_LAST_ENTRY: Final = "SELECT coalesce(max(sequence), 0) FROM promotion_log"
SELECT_ENTRY_NUMBERS: Final = "SELECT sequence FROM promotion_log WHERE namespace = ? ORDER BY sequence"
SELECT_NODE_NUMBERS: Final = "SELECT node FROM nodes WHERE namespace = ? ORDER BY node"
# By the name of the kind. Joins are fixed so that rows come in their order without a sort of all of them.
READ_PARTS: Final = {
    "EdgePart": (
        "SELECT s.id, t.id, e.kind, e.created_at FROM edges e CROSS JOIN nodes s ON s.node = e.source "
        "CROSS JOIN nodes t ON t.node = e.target WHERE e.source BETWEEN :lowest AND :highest "
        "ORDER BY e.source, e.target, e.kind"
    ),
    "SessionPart": (
        "SELECT id, started_at, last_active, ended_at, turn FROM sessions WHERE namespace = :namespace ORDER BY session"
    ),
    "AccessPart": (
        "SELECT s.id, n.id, a.turn, a.at, a.confidence, a.run_id, a.writer, a.judged FROM accesses a "
        "CROSS JOIN nodes n ON n.node = a.node CROSS JOIN sessions s ON s.session = a.session "
        "WHERE a.node BETWEEN :lowest AND :highest ORDER BY a.access"
    ),
    "ForgottenPart": (
        "SELECT s.id, n.id, f.accesses, f.first_at, f.last_at, f.lowest_confidence, f.to_judge "
        "FROM forgotten_accesses f CROSS JOIN nodes n ON n.node = f.node "
        "CROSS JOIN sessions s ON s.session = f.session WHERE f.node BETWEEN :lowest AND :highest "
        "ORDER BY f.node, f.session"
    ),
    "UsePart": (
        "SELECT s.id, n.id, u.uses, u.lowest_confidence, u.last_used FROM uses u CROSS JOIN nodes n ON n.node = u.node "
        "CROSS JOIN sessions s ON s.session = u.session WHERE u.node BETWEEN :lowest AND :highest "
        "ORDER BY u.node, u.session"
    ),
    "OutcomePart": (
        "SELECT s.id, n.id, o.run_id, o.success, o.at, o.learned FROM outcomes o CROSS JOIN nodes n ON n.node = o.node "
        "CROSS JOIN sessions s ON s.session = o.session WHERE o.node BETWEEN :lowest AND :highest ORDER BY o.outcome"
    ),
    "KeyValuePart": (
        "SELECT collection, key, value FROM key_values WHERE namespace = :namespace ORDER BY collection, entry"
    ),
    "ThreadPart": "SELECT kind, id FROM threads WHERE namespace = :namespace ORDER BY thread",
    "ChunkPart": (
        "SELECT t.kind, t.id, c.chunk & 4294967295, c.content FROM threads t CROSS JOIN thread_chunks c "
        "ON c.chunk BETWEEN t.thread << 32 AND (t.thread << 32) + 4294967295 WHERE t.namespace = :namespace "
        "ORDER BY t.thread, c.chunk"
    ),
    "CheckpointPart": (
        "SELECT t.kind, t.id, c.graph, c.id, c.parent_id, c.created_at, c.log_position, c.last_node, c.metadata, "
        "c.encoding, c.head, c.channels, c.contents FROM thread_checkpoints c CROSS JOIN threads t "
        "ON t.thread = c.thread WHERE t.namespace = :namespace ORDER BY c.sequence"
    ),
    "WritePart": (
        "SELECT t.kind, t.id, w.graph, w.checkpoint_id, w.task_id, w.place, w.task_path, w.channel, w.encoding, "
        "w.depth, w.content FROM threads t CROSS JOIN thread_writes w ON w.thread = t.thread "
        "WHERE t.namespace = :namespace ORDER BY t.thread, w.graph, w.checkpoint_id, w.task_id, w.place"
    ),
}
_OF_THREADS: Final = "WHERE thread IN (SELECT thread FROM threads WHERE namespace = :namespace)"
COUNT_PARTS: Final = (
    *(
        f"SELECT count(*) FROM {table} WHERE namespace = :namespace"
        for table in ("nodes", "sessions", "promotion_log", "messages", "key_values", "threads")
    ),
    *(
        f"SELECT count(*) FROM {table} WHERE {column} BETWEEN :lowest AND :highest"
        for table, column in (
            *((table, "node") for table in ("accesses", "forgotten_accesses", "uses", "outcomes")),
            ("edges", "source"),
        )
    ),
    f"SELECT count(*) FROM thread_checkpoints {_OF_THREADS}",
    f"SELECT count(*) FROM thread_writes {_OF_THREADS}",
    "SELECT count(*) FROM thread_chunks WHERE chunk >> 32 IN (SELECT thread FROM threads WHERE namespace = :namespace)",
)
ADD_PART: Final = {
    "EdgePart": "INSERT OR IGNORE INTO edges (source, target, kind, created_at) VALUES (?, ?, ?, ?)",
    "SessionPart": (
        "INSERT INTO sessions (namespace, id, started_at, last_active, ended_at, turn) VALUES (?, ?, ?, ?, ?, ?)"
    ),
    "AccessPart": (
        "INSERT INTO accesses (session, node, turn, at, confidence, run_id, writer, judged) "
        "VALUES (?, ?, ?, ?, ?, ?, ?, ?)"
    ),
    "ForgottenPart": (
        "INSERT INTO forgotten_accesses (session, node, accesses, first_at, last_at, lowest_confidence, to_judge) "
        "VALUES (?, ?, ?, ?, ?, ?, ?)"
    ),
    "UsePart": "INSERT INTO uses (session, node, uses, lowest_confidence, last_used) VALUES (?, ?, ?, ?, ?)",
    "OutcomePart": "INSERT INTO outcomes (session, node, run_id, success, at, learned) VALUES (?, ?, ?, ?, ?, ?)",
    "KeyValuePart": PUT_KEY_VALUE,
    "ThreadPart": "INSERT INTO threads (namespace, kind, id) VALUES (?, ?, ?)",
    "ChunkPart": INSERT_CHUNK,
    "CheckpointPart": (
        "INSERT INTO thread_checkpoints (thread, graph, id, parent_id, created_at, metadata, encoding, head, "
        "log_position, last_node, channels, contents) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
    ),
    "WritePart": PUT_WRITE_ONCE,
}
