-- The words of each text, as terms: 64 bits of their hash, so that no word is too long for the index. A term is another
-- number in each namespace.
CREATE TABLE rlm_node_terms (
    namespace uuid NOT NULL,
    node bigint NOT NULL,
    length integer NOT NULL,                     -- tokens
    terms bigint[] NOT NULL,                     -- each once, for the index
    counted bytea NOT NULL,                      -- each with how often, 8 and 4 bytes, big-endian: what is scored by
    PRIMARY KEY (namespace, node)
) {partitioned};
