-- What stays of the accesses of a node in a session when they are forgotten one by one. What the rules weigh of them is
-- in `rlm_uses` and `rlm_outcomes`, and stays there.
CREATE TABLE rlm_forgotten_accesses (
    namespace uuid NOT NULL,
    node bigint NOT NULL,
    session bigint NOT NULL,
    accesses bigint NOT NULL,                    -- how many
    first_at bigint NOT NULL,
    last_at bigint NOT NULL,
    lowest_confidence double precision NOT NULL,
    to_judge boolean NOT NULL,                   -- whether an outcome is still to be attached to one of them
    PRIMARY KEY (namespace, node, session)
) {partitioned};

CREATE INDEX rlm_forgotten_accesses_by_session ON rlm_forgotten_accesses (namespace, session, node);

-- The run of an outcome, once it is not to be found with the accesses any more.
ALTER TABLE rlm_outcomes ADD COLUMN run_id text COLLATE "C";

-- Whether accesses of the session may be there to forget. All of them are at most as young as it was last active.
ALTER TABLE rlm_sessions ADD COLUMN kept boolean NOT NULL DEFAULT true;

CREATE INDEX rlm_sessions_kept ON rlm_sessions (namespace, last_active) WHERE ended_at IS NOT NULL AND kept;

-- Nodes in session of which something has changed that the rules weigh, since a sweep has weighed them. By which rules
-- that was: by others, all are to be weighed. Written by statements: a trigger could not do it on a shard of Citus.
CREATE TABLE rlm_unweighed_nodes (
    namespace uuid NOT NULL,
    node bigint NOT NULL,
    PRIMARY KEY (namespace, node)
) {partitioned};

ALTER TABLE rlm_namespaces ADD COLUMN weighed_by text;

-- Not by the last access: every access would then write to all indexes of the node.
CREATE INDEX rlm_nodes_to_archive ON rlm_nodes (namespace, tier_since) WHERE tier = 'longterm' AND NOT pinned;
