-- The index of float32 vectors holds their halves: half the memory, as many of the nearest found, and a tenth less time
-- to write one. It is built anew by the next write, or by `rlm-memory compact`; until then all vectors are compared.
DO $$ BEGIN
    IF EXISTS (
        SELECT 1 FROM pg_index i JOIN pg_opclass o ON o.oid = i.indclass[0]
        WHERE i.indexrelid = to_regclass('rlm_node_vectors_nearest') AND o.opcname = 'vector_ip_ops'
    ) THEN
        DROP INDEX rlm_node_vectors_nearest;
    END IF;
END $$;
