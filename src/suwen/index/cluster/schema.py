"""The tables of a cluster index, and the version of them. One database may hold several indexes, a schema each."""

from __future__ import annotations

#: Of the tables below (1 had no questions); an index of another version is refused.
FORMAT = 2

#: ``meta`` is one row: what the index is, and where it stands. ``searched``, ``words`` and ``bigrams`` are what BM25
#: counts, deleted passages among them until a rebuild, as the embedded engine counts them. An attribute is a text or a
#: number; ``spelled`` is the number that a text spells. ``mean_words`` and ``mean_bigrams`` are the mean lengths that
#: a searcher's sparse vectors were weighted by, frozen for a generation. ``doomed`` are rows that a searcher outside
#: may hold and should not: those of a write that has not committed, and those that one has deleted, with its number.
TABLES = """
CREATE TABLE meta(
  one boolean PRIMARY KEY DEFAULT true CHECK (one), format int NOT NULL, uuid text NOT NULL, space text NOT NULL,
  dimension int NOT NULL, similarity text NOT NULL, searcher text NOT NULL, epoch bigint NOT NULL DEFAULT 0,
  sequence bigint NOT NULL DEFAULT 0, generation bigint NOT NULL DEFAULT 1, last_row bigint NOT NULL DEFAULT 0,
  passages bigint NOT NULL DEFAULT 0, questions bigint NOT NULL DEFAULT 0, searched bigint NOT NULL DEFAULT 0,
  words bigint NOT NULL DEFAULT 0, bigrams bigint NOT NULL DEFAULT 0, mean_words double precision NOT NULL DEFAULT 1,
  mean_bigrams double precision NOT NULL DEFAULT 1);
CREATE TABLE settings(key text PRIMARY KEY, value jsonb NOT NULL);
CREATE TABLE blobs(name text PRIMARY KEY, version bigint NOT NULL, data bytea NOT NULL);
CREATE TABLE documents(
  number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, id text COLLATE "C" NOT NULL UNIQUE, title text NOT NULL,
  metadata text NOT NULL, digest text NOT NULL, origin text NOT NULL, arrived double precision);
CREATE TABLE passages(
  row bigint PRIMARY KEY, document bigint NOT NULL, ordinal int NOT NULL, start int NOT NULL, "end" int NOT NULL,
  text text NOT NULL, encoder text COLLATE "C" NOT NULL);
CREATE INDEX passages_by_document ON passages(document, ordinal);
CREATE INDEX passages_by_encoder ON passages(encoder, row);
CREATE INDEX documents_by_encoder ON passages(encoder, row) WHERE ordinal = 0;
CREATE TABLE vectors(row bigint PRIMARY KEY, vector bytea NOT NULL, checksum bigint NOT NULL);
ALTER TABLE vectors ALTER vector SET STORAGE EXTERNAL;
CREATE TABLE questions(
  row bigint PRIMARY KEY, passage bigint NOT NULL, text text NOT NULL, vector bytea NOT NULL, checksum bigint NOT NULL);
CREATE INDEX questions_by_passage ON questions(passage);
ALTER TABLE questions ALTER vector SET STORAGE EXTERNAL;
CREATE TABLE attributes(
  document bigint NOT NULL, key text COLLATE "C" NOT NULL, text text COLLATE "C", number numeric,
  spelled numeric);
CREATE INDEX attributes_by_number ON attributes(key, number, document);
CREATE INDEX attributes_by_text ON attributes(key, left(text, 100), document);
CREATE INDEX attributes_by_spelling ON attributes(key, spelled, document) WHERE spelled IS NOT NULL;
CREATE INDEX attributes_by_document ON attributes(document);
CREATE TABLE gone(row bigint PRIMARY KEY);
CREATE TABLE doomed(first bigint NOT NULL, last bigint NOT NULL, by xid NOT NULL DEFAULT pg_current_xact_id()::xid);
"""

#: The truth; all other tables are derived from these.
TRUTH = ("meta", "settings", "blobs", "documents", "passages", "vectors", "questions", "attributes", "gone", "doomed")
