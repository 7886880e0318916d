"""A query's words as tantivy is asked for them. Searches nothing."""

from __future__ import annotations

from collections.abc import Sequence

import tantivy

from suwen.index.engine import Alternatives
from suwen.index.lexical_terms import Term, Wanting


class LexicalQuery:
    """Builds queries for one moment of a tantivy index."""

    def __init__(self, schema: tantivy.Schema, searcher: tantivy.Searcher) -> None:
        self._schema, self._searcher = schema, searcher

    def of(self, text: str, also: Alternatives) -> tuple[tantivy.Query | None, float]:
        """The query, None where the text has no term, and what a passage with all of it would score."""
        wanted = Wanting(self._frequency, self._searcher.num_docs).of(text, also)
        clauses = [self._query(term) for term in wanted.terms]
        for choice in wanted.choices:
            parts = [_any([self._query(term) for term in terms]) for terms in choice]
            clauses.append(tantivy.Query.disjunction_max_query(parts or [tantivy.Query.empty_query()]))
        return (_any(clauses) if clauses else None), wanted.most

    def _query(self, term: Term) -> tantivy.Query:
        one = tantivy.Query.term_query(self._schema, term.field, term.text, "freq")
        return one if term.weight == 1.0 else tantivy.Query.boost_query(one, term.weight)

    def _frequency(self, term: Term) -> int:
        return self._searcher.doc_freq(term.field, term.text)


def _any(queries: Sequence[tantivy.Query]) -> tantivy.Query:
    return tantivy.Query.boolean_query([(tantivy.Occur.Should, query) for query in queries])
