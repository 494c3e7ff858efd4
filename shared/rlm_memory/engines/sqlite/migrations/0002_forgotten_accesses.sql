-- What stays of the accesses of a node in a session when they are forgotten one by one. What the rules weigh of them is
-- in `uses` and `outcomes`, and stays there.
CREATE TABLE forgotten_accesses (
    node INTEGER NOT NULL,
    session INTEGER NOT NULL REFERENCES sessions (session),
    accesses INTEGER NOT NULL,           -- how many
    first_at INTEGER NOT NULL,
    last_at INTEGER NOT NULL,
    lowest_confidence REAL NOT NULL,
    to_judge INTEGER NOT NULL,           -- whether an outcome is still to be attached to one of them
    PRIMARY KEY (node, session)
) STRICT, WITHOUT ROWID;

CREATE INDEX forgotten_accesses_by_session ON forgotten_accesses (session, node);

-- Whether accesses of the session may be there to forget. All of them are at most as young as it was last active, so
-- that they need no index of their times.
ALTER TABLE sessions ADD COLUMN kept INTEGER NOT NULL DEFAULT 1;

CREATE INDEX sessions_kept ON sessions (namespace, last_active) WHERE ended_at IS NOT NULL AND kept = 1;

-- Nodes in session of which something has changed that the rules weigh, since a sweep has weighed them. By which rules
-- that was: by others, all are to be weighed.
CREATE TABLE unweighed_nodes (
    node INTEGER PRIMARY KEY
) STRICT;

ALTER TABLE namespaces ADD COLUMN weighed_by TEXT;

-- A use is counted in its node's row too. That row is at hand here, while a trigger on `uses` would look for it. Not by
-- INSERT OR IGNORE: within an upsert, a trigger forgets how its own conflicts are to be met.
CREATE TRIGGER nodes_to_weigh AFTER UPDATE OF tier, confidence, access_count ON nodes WHEN new.tier = 'session' BEGIN
    INSERT INTO unweighed_nodes (node)
    SELECT new.node WHERE NOT EXISTS (SELECT 1 FROM unweighed_nodes WHERE node = new.node);
END;

CREATE TRIGGER nodes_judged AFTER INSERT ON outcomes BEGIN
    INSERT INTO unweighed_nodes (node) SELECT node FROM nodes WHERE node = new.node AND tier = 'session'
    AND NOT EXISTS (SELECT 1 FROM unweighed_nodes WHERE node = new.node);
END;

CREATE TRIGGER nodes_judged_otherwise AFTER UPDATE OF success ON outcomes BEGIN
    INSERT INTO unweighed_nodes (node) SELECT node FROM nodes WHERE node = new.node AND tier = 'session'
    AND NOT EXISTS (SELECT 1 FROM unweighed_nodes WHERE node = new.node);
END;

-- When something last happened to what a sweep may archive.
CREATE INDEX nodes_to_archive ON nodes (namespace, max(created_at, tier_since, coalesce(last_accessed, 0)))
WHERE tier = 'longterm' AND pinned = 0;

DROP TRIGGER nodes_forgotten;
CREATE TRIGGER nodes_forgotten AFTER DELETE ON nodes BEGIN
    DELETE FROM accesses WHERE node = old.node;
    DELETE FROM forgotten_accesses WHERE node = old.node;
    DELETE FROM uses WHERE node = old.node;
    DELETE FROM outcomes WHERE node = old.node;
    DELETE FROM unweighed_nodes WHERE node = old.node;
    DELETE FROM edges WHERE source = old.node OR target = old.node;
END;
