"""Every statement but the DDL, named VERB_NOUN. Values are bound; `{where}` is filled by `compile_filter` alone."""

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
    "UPDATE namespaces SET last_node = max(last_node, ?), nodes = nodes + ?, words = words + ? WHERE number = ?"
)

# -- the index in memory --------------------------------------------------------------------------------------------

SELECT_VERSION: Final = (
    "SELECT coalesce((SELECT max(sequence) FROM node_changes), 0), last_node, nodes, words "
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
    f"SELECT {NODE_COLUMNS} FROM json_each(?) AS wanted JOIN nodes n ON n.namespace = ? AND n.id = wanted.value "
    "ORDER BY wanted.key"
)
SELECT_NODES_BY_NUMBER: Final = (
    f"SELECT {NODE_COLUMNS} FROM json_each(?) AS wanted JOIN nodes n ON n.node = wanted.value ORDER BY wanted.key"
)
LIST_NODES: Final = (
    f"SELECT {NODE_COLUMNS} FROM nodes n WHERE n.node > ? AND n.node <= ? AND {{where}} ORDER BY n.node LIMIT ?"
)
SELECT_NUMBER: Final = "SELECT node FROM nodes WHERE namespace = ? AND id = ?"
SELECT_NUMBERS: Final = "SELECT n.node FROM nodes n WHERE n.node BETWEEN ? AND ? AND {where} ORDER BY n.node"
COUNT_NODES: Final = "SELECT count(*) FROM nodes n WHERE n.namespace = ? AND {where}"
SELECT_IDS: Final = "SELECT n.id FROM nodes n WHERE n.node BETWEEN ? AND ? AND {where} ORDER BY n.node"
SELECT_STORED: Final = (
    "SELECT n.id, n.node, n.place, n.text, n.metadata FROM json_each(?) AS wanted "
    "JOIN nodes n ON n.namespace = ? AND n.id = wanted.value"
)
SELECT_CANDIDATES: Final = (
    "SELECT n.node, n.id, n.created_at, coalesce(n.keywords, n.text) "
    "FROM json_each(?) AS wanted JOIN nodes n ON n.node = wanted.value ORDER BY wanted.key"
)
SELECT_CANDIDATES_WITHOUT_TEXT: Final = (
    "SELECT n.node, n.id, n.created_at "
    "FROM json_each(?) AS wanted JOIN nodes n ON n.node = wanted.value ORDER BY wanted.key"
)
SELECT_PLACES: Final = (
    "SELECT n.place FROM json_each(?) AS wanted LEFT JOIN nodes n ON n.node = wanted.value ORDER BY wanted.key"
)
SELECT_PENDING: Final = (
    f"SELECT {NODE_COLUMNS} FROM nodes n WHERE n.namespace = ? AND n.place IS NULL AND n.node > ? "
    "ORDER BY n.node LIMIT ?"
)
SELECT_TEXT_OWNERS: Final = (
    "SELECT n.text, n.place FROM json_each(?) AS wanted JOIN nodes n ON n.text_hash = wanted.value "
    "WHERE n.node BETWEEN ? AND ? AND n.place IS NOT NULL"
)

INSERT_NODE: Final = (
    "INSERT INTO nodes (node, namespace, id, tier, created_at, updated_at, last_accessed, access_count, pinned, "
    "type, subtype, confidence, provenance, text_hash, metadata, text, keywords, place) "
    "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
)
# The tier, the times of use and the pin are the node's history: writing it again does not take them away.
UPDATE_NODE: Final = (
    "UPDATE nodes SET type = ?, subtype = ?, confidence = ?, provenance = ?, text_hash = ?, metadata = ?, text = ?, "
    "keywords = ?, updated_at = ?, place = ? WHERE node = ?"
)
UPDATE_PLACE: Final = "UPDATE nodes SET place = ? WHERE node = ?"
DELETE_NODE: Final = "DELETE FROM nodes WHERE node = ?"
DELETE_VECTOR: Final = "DELETE FROM node_embeddings WHERE node_id = ?"
INSERT_FIELD: Final = "INSERT OR IGNORE INTO node_fields (key, value, node) VALUES (?, ?, ?)"
DELETE_FIELD: Final = "DELETE FROM node_fields WHERE key = ? AND value IS ? AND node = ?"

# -- keywords -------------------------------------------------------------------------------------------------------

MATCHING_NODES: Final = "SELECT rowid FROM nodes_fts WHERE nodes_fts MATCH ? AND rowid BETWEEN ? AND ?"
BEST_MATCHING_NODES: Final = MATCHING_NODES + " ORDER BY rank"
COUNT_MATCHING: Final = "SELECT count(*) FROM nodes_fts WHERE nodes_fts MATCH ? AND rowid BETWEEN ? AND ?"
# FTS5 keeps the number of tokens of each row as a variable-length integer.
SELECT_LENGTHS: Final = "SELECT d.sz FROM json_each(?) AS wanted JOIN nodes_fts_docsize d ON d.id = wanted.value"
SELECT_LENGTH_RANGE: Final = "SELECT sz FROM nodes_fts_docsize WHERE id > ? AND id <= ?"

# -- a change of the embedding model, and the rebuilding of the vectors ------------------------------------------------

DELETE_META: Final = "DELETE FROM meta WHERE key = ?"
SELECT_OUTDATED: Final = (
    "SELECT n.node, n.text FROM nodes n LEFT JOIN new_vectors v ON v.node = n.node AND v.text_hash = n.text_hash "
    "WHERE n.place IS NOT NULL AND v.node IS NULL LIMIT ?"
)
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
