// Filters on metadata as the command line has them: `field=value`, `field!=a|b`, `field>=2020`, `field is missing`, with
// AND, OR, NOT and brackets. The service reads them; here they are only written.

const SPECIAL = /[|"()<>=!≠≤≥｜＜＞＝！\n]|^\s|\s$|^$|\s(AND|OR)(\s|$)|^(AND|OR|NOT)\s|\sis\s+missing$/u;

const quoted = (text) => (SPECIAL.test(text) ? `"${text.replace(/[\\"]/g, "\\$&")}"` : text);

/** One condition on a field, as text. Several values are any of them. */
export const condition = (field, operator, ...values) => quoted(field) + operator + values.map(quoted).join("|");

export const missing = (field) => `${quoted(field)} is missing`;

/** Whether a text could be a filter; what it says, the service finds out. */
export const plausible = (clause) => /[=<>≠≤≥＝＜＞]\s*\S|\sis\s+missing/u.test(clause);

/** Filters that must all hold, as the service takes them. */
export const toWhere = (clauses) => clauses.map((clause) => `(${clause})`).join(" AND ") || null;
