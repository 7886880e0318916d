"""A query's words as tantivy is asked for them. Searches nothing."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import tantivy

from suwen.index.engine import Alternatives
from suwen.index.lexical_terms import Term, Wanting


class LexicalQuery:
    """Builds queries for one moment of a tantivy index.

    Args:
        schema: Of the index.
        frequency: In how many passages a term of a field stands.
        total: How many passages there are.
    """

    def __init__(self, schema: tantivy.Schema, frequency: Callable[[str, str], int], total: int) -> None:
        self._schema, self._frequency, self._total = schema, frequency, total

    def of(self, text: str, also: Alternatives) -> tuple[tantivy.Query | None, float]:
        """The query, None where the text has no term, and what a passage with all of it would score."""
        wanted = Wanting(lambda term: self._frequency(term.field, term.text), self._total).of(text, also)
        clauses = [self._query(term) for term in wanted.terms]
        for choice in wanted.choices:
            parts = [_any([self._query(term) for term in terms]) for terms in choice]
            clauses.append(tantivy.Query.disjunction_max_query(parts or [tantivy.Query.empty_query()]))
        return (_any(clauses) if clauses else None), wanted.most

    def _query(self, term: Term) -> tantivy.Query:
        one = tantivy.Query.term_query(self._schema, term.field, term.text, "freq")
        return one if term.weight == 1.0 else tantivy.Query.boost_query(one, term.weight)


def _any(queries: Sequence[tantivy.Query]) -> tantivy.Query:
    return tantivy.Query.boolean_query([(tantivy.Occur.Should, query) for query in queries])
