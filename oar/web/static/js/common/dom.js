// Elements from values.  Text becomes text nodes and nothing else: what users name their jobs cannot become markup.
// A view is drawn again as a whole; only what differs is touched, so that focus, selection and scrolling stay.

/**
 * @typedef {{tag: string, key: string|undefined, attributes: Object<string, any>, children: View[], node?: Node}} Element_
 * @typedef {{text: string, node?: Node}} Text_
 * @typedef {Element_|Text_} View
 */

const drawn = new WeakMap();
const SVG = "http://www.w3.org/2000/svg";
const SVG_TAGS = new Set(["svg", "path", "rect", "line", "g", "circle", "polyline", "title", "text"]);
const PROPERTIES = new Set(["value", "checked", "selected", "disabled", "indeterminate", "open", "hidden"]);

/** Describe an element; `key` names it among its siblings, `on` are its listeners, `style` its properties. */
export function h(tag, attributes, ...children) {
  const { key, ...rest } = attributes ?? {};
  return { tag, key, attributes: rest, children: views(children) };
}

/** Show views as all that is in an element. */
export function draw(parent, ...children) {
  const former = drawn.get(parent);
  if (!former) parent.replaceChildren();
  drawn.set(parent, reconcile(parent, former ?? [], views(children)));
}

function views(children) {
  return children.flat(Infinity).filter((child) => child != null && child !== false && child !== true && child !== "")
    .map((child) => (typeof child === "object" ? child : { text: String(child) }));
}

/** Make the children of a parent be those of `fresh`; return `fresh`, whose nodes are known. */
function reconcile(parent, former, fresh) {
  const known = new Map();
  named(former, (name, view) => known.set(name, view));
  const kept = new Map();
  named(fresh, (name, view) => {
    const old = known.get(name);
    if (old) kept.set(view, old), known.delete(name);
  });
  for (const old of known.values()) old.node.remove();
  let place = parent.firstChild;
  for (const view of fresh) {
    const old = kept.get(view);
    view.node = old ? update(old, view) : create(view);
    if (view.node === place) place = place.nextSibling;
    else parent.insertBefore(view.node, place);
  }
  return fresh;
}

/** Name each view among its siblings: by its key, else by its place among those of its kind. */
function named(list, take) {
  const counted = {};
  for (const view of list) {
    const tag = view.tag ?? "#";
    take(view.key !== undefined ? `${tag}=${view.key}` : `${tag}:${counted[tag] = (counted[tag] ?? 0) + 1}`, view);
  }
}

function create(view) {
  if (view.tag === undefined) return document.createTextNode(view.text);
  const node = SVG_TAGS.has(view.tag) ? document.createElementNS(SVG, view.tag) : document.createElement(view.tag);
  set(node, {}, view.attributes);
  reconcile(node, [], view.children);
  if (view.attributes.value !== undefined) node.value = view.attributes.value; // of a select: its options are there now
  return node;
}

function update(old, view) {
  const node = old.node;
  if (view.tag === undefined) {
    if (old.text !== view.text) node.data = view.text;
    return node;
  }
  reconcile(node, old.children, view.children);
  set(node, old.attributes, view.attributes);
  return node;
}

function set(node, old, fresh) {
  for (const name of new Set([...Object.keys(old), ...Object.keys(fresh)])) {
    if (name === "on") listen(node, old.on ?? {}, fresh.on ?? {});
    else if (name === "style") for (const [key, value] of Object.entries(fresh.style ?? {})) node.style.setProperty(key, value);
    else if (name === "initial") begin(node, old.initial, fresh.initial);
    else if (PROPERTIES.has(name)) {
      const value = fresh[name] ?? (name === "value" ? "" : false);
      if (node[name] !== value) node[name] = value;
    } else if (old[name] !== fresh[name]) put(node, name, fresh[name]);
  }
}

/** A field begins with a value; what somebody types into it meanwhile stays. */
function begin(node, old, fresh) {
  if (old !== fresh && node !== document.activeElement) node.value = fresh ?? "";
}

function put(node, name, value) {
  if (/^on/i.test(name) || name === "srcdoc") throw new Error(`an element takes no ${name}`);
  if (name === "href" && /^\s*(javascript|data|vbscript):/i.test(value ?? "")) throw new Error("a link leads to a page");
  if (value == null || value === false) node.removeAttribute(name);
  else node.setAttribute(name, value === true ? "" : value);
}

function listen(node, old, fresh) {
  for (const name of new Set([...Object.keys(old), ...Object.keys(fresh)])) {
    if (old[name] === fresh[name]) continue;
    if (old[name]) node.removeEventListener(name, old[name]);
    if (fresh[name]) node.addEventListener(name, fresh[name]);
  }
}
