// A passage with its matching sentences and words marked. Offsets come from Python and count code points; strings of
// JavaScript count UTF-16 units, where 💊 and 𬌗 are two.

import { node } from "./nodes.js";

/** A function from a code point's number to its place in the string. */
export function places(text) {
  if (!/[\ud800-\udbff][\udc00-\udfff]/.test(text)) return (point) => Math.min(point, text.length);
  const starts = [];
  let at = 0;
  for (const character of text) {
    starts.push(at);
    at += character.length;
  }
  starts.push(at);
  return (point) => starts[Math.min(point, starts.length - 1)];
}

/** The passage's text in stretches: `{ text, sentence, term }`, in order and without a gap. */
export function stretches(text, highlights, from = 0, to = text.length) {
  const place = places(text);
  const cut = (offset) => Math.min(Math.max(place(offset), from), to);
  const sentences = (highlights || []).map((one) => [cut(one.start), cut(one.end)]);
  const terms = (highlights || []).flatMap((one) => (one.terms || []).map(([a, b]) => [cut(a), cut(b)]));
  const edges = [...new Set([from, to, ...sentences.flat(), ...terms.flat()])].sort((a, b) => a - b);
  const within = (spans, a, b) => spans.some(([start, end]) => start <= a && b <= end);
  return edges.slice(1).map((end, number) => {
    const start = edges[number];
    return { text: text.slice(start, end), sentence: within(sentences, start, end), term: within(terms, start, end) };
  });
}

/** Where an excerpt of about `length` UTF-16 units begins and ends, so that the first match is in it. */
export function excerpt(text, highlights, length) {
  if (text.length <= length * 1.25) return [0, text.length];
  const first = highlights && highlights[0];
  const place = places(text);
  const term = first && (first.terms || [])[0];
  // The sentence's start is the better beginning, unless the word that matched would then be out of sight.
  let from = first ? place(first.start) : 0;
  if (term && place(term[1]) - from > length) from = place(term[0]) - Math.floor(length / 4);
  from = Math.max(0, Math.min(from, text.length - length));
  const to = Math.min(text.length, from + length);
  return [from ? whole(text, from) : 0, to < text.length ? wordEnd(text, whole(text, to)) : to];
}

// Never between the two halves of one character.
const whole = (text, at) => (/[\udc00-\udfff]/.test(text[at] || "") && at > 0 ? at - 1 : at);

// A word of Latin letters is finished, as long as it is one.
const wordEnd = (text, at) => (/[\w-]/.test(text[at - 1] || "") ? at + /^[\w-]{0,24}/.exec(text.slice(at))[0].length : at);

/** The nodes of a marked text; with `length`, of an excerpt of it. */
export function marked(text, highlights, length = null) {
  const [from, to] = length ? excerpt(text, highlights, length) : [0, text.length];
  const nodes = [];
  let sentence = null;
  for (const part of stretches(text, highlights, from, to)) {
    if (!part.sentence) sentence = null;
    else if (!sentence) nodes.push((sentence = node("span.sentence")));
    const made = part.term ? node("mark", {}, part.text) : document.createTextNode(part.text);
    if (sentence) sentence.append(made);
    else nodes.push(made);
  }
  return [from > 0 ? "… " : null, ...nodes, to < text.length ? " …" : null];
}

/** The nodes of a title with the stretches that match. */
export function markedTitle(title, terms) {
  const whole = terms?.length ? [{ start: 0, end: title.length, terms }] : [];
  return stretches(title, whole).map((part) => (part.term ? node("mark", {}, part.text) : part.text));
}
