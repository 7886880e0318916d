// Filters on metadata: `field=value`, `field=a|b`, `field>=2020`, read as the command line reads them.

const CLAUSE = /^([^<>=!]+?)\s*(>=|<=|=|>|<)\s*(.+)$/su;
const BOUNDS = { ">": "gt", ">=": "gte", "<": "lt", "<=": "lte" };

/** The parts of a filter, `{ field, operator, value }`, or null where it is not understood. */
export function parse(clause) {
  const found = CLAUSE.exec(clause.trim().replace(/^([^<>=!]+?)\s*≥/u, "$1>=").replace(/^([^<>=!]+?)\s*≤/u, "$1<="));
  return found && { field: found[1].trim(), operator: found[2], value: found[3].trim() };
}

// A typed number also matches its spelling: a CSV source keeps numbers as text.
function forms(text) {
  if (/^(true|false)$/i.test(text)) return [text.toLowerCase() === "true", text];
  return text !== "" && /^[-+]?(\d+\.?\d*|\.\d+)(e[-+]?\d+)?$/i.test(text) ? [Number(text), text] : [text];
}

/** Several filters as the service takes them; a field with both "=" and a bound keeps what was said last. */
export function toWhere(clauses) {
  // Without a prototype: a field may have any name.
  const where = Object.create(null);
  for (const { field, operator, value } of clauses.map(parse).filter(Boolean)) {
    if (operator === "=") {
      const wanted = value.split("|").flatMap((part) => forms(part.trim()));
      where[field] = Array.isArray(where[field]) ? [...where[field], ...wanted] : wanted;
    } else {
      const before = where[field];
      where[field] = { ...(before && !Array.isArray(before) ? before : {}), [BOUNDS[operator]]: forms(value)[0] };
    }
  }
  return Object.keys(where).length ? where : null;
}
