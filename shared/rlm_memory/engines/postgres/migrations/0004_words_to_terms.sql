-- Arrays are sent number by number, which took longer than all else of scoring: counts are in one piece now.
INSERT INTO rlm_node_terms (namespace, node, length, terms, counted)
SELECT w.namespace, w.node, w.length, w.terms, coalesce((
    SELECT string_agg(int8send(each.term) || int4send(each.often), ''::bytea ORDER BY each.place)
    FROM unnest(w.terms, w.counts) WITH ORDINALITY AS each (term, often, place)
), ''::bytea) FROM rlm_node_words w;

DROP TABLE rlm_node_words;

-- Without fastupdate, whose list of pending entries every search would have to go through.
CREATE INDEX rlm_node_terms_by_term ON rlm_node_terms USING gin (terms) WITH (fastupdate = off);
