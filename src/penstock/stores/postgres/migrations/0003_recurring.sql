-- Recurring rules: one row each, written by compare-and-set, so half of each page stays free.
CREATE TABLE recurring (
    id       TEXT COLLATE "C" PRIMARY KEY,
    revision BIGINT NOT NULL,
    wake     BIGINT,
    managed  BIGINT NOT NULL,
    body     BYTEA NOT NULL
) WITH (fillfactor = 50, autovacuum_vacuum_threshold = 200);
CREATE INDEX recurring_wake ON recurring (wake) WHERE wake IS NOT NULL;
CREATE INDEX recurring_managed ON recurring (id) WHERE managed = 1;
