// Elements from descriptions, and the smallest change from one tree of elements to the next.
// Texts become text nodes and never markup, so that a record or a name with HTML in it stays text.

const SVG = "http://www.w3.org/2000/svg";
const SVG_TAGS = new Set(["svg", "path", "line", "polyline", "polygon", "rect", "circle", "g"]);

/** Return an element. `on` has listeners, `style` CSS properties, `key` a name among siblings. */
export function h(tag, props, ...children) {
  const svg = SVG_TAGS.has(tag);
  const element = svg ? document.createElementNS(SVG, tag) : document.createElement(tag);
  for (const [name, value] of Object.entries(props ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name === "on") listen(element, value);
    else if (name === "key") element.dataset.key = value;
    else if (name === "style") {
      for (const [property, text] of Object.entries(value)) element.style.setProperty(property, text);
    } else if (name === "value") element.value = value;
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  append(element, children);
  return element;
}

function append(parent, children) {
  for (const child of children) {
    if (child === null || child === undefined || child === false) continue;
    if (Array.isArray(child)) append(parent, child);
    else parent.append(child instanceof Node ? child : String(child));
  }
}

function listen(element, listeners) {
  element.handlers ??= {};
  for (const [type, handler] of Object.entries(listeners)) {
    if (!(type in element.handlers)) {
      element.addEventListener(type, (event) => element.handlers[type]?.(event));
    }
    element.handlers[type] = handler;
  }
}

/** Change `old` into `fresh`, keeping elements, focus and selections wherever both agree. */
export function morph(old, fresh) {
  if (old.nodeType === Node.TEXT_NODE && fresh.nodeType === Node.TEXT_NODE) {
    if (old.data !== fresh.data) old.data = fresh.data;
    return old;
  }
  if (old.nodeName !== fresh.nodeName || keyOf(old) !== keyOf(fresh)) {
    old.replaceWith(fresh);
    return fresh;
  }
  morphAttributes(old, fresh);
  if (fresh.handlers) listen(old, fresh.handlers);
  morphChildren(old, fresh);
  return old;
}

const keyOf = (node) => node.dataset?.key;

// What a visitor has changed belongs to the visitor: values of fields, open details. A meter's value
// is data.
const KEPT = new Set(["open", "value", "checked"]);
const keeps = (element, name) => KEPT.has(name) && element.nodeName !== "METER";

function morphAttributes(old, fresh) {
  for (const { name, value } of fresh.attributes) {
    if (keeps(old, name) || old.getAttribute(name) === value) continue;
    // The policy forbids style attributes, and allows the same properties from scripts.
    if (name === "style") old.style.cssText = value;
    else old.setAttribute(name, value);
  }
  for (const { name } of [...old.attributes]) {
    if (!keeps(old, name) && !fresh.hasAttribute(name)) old.removeAttribute(name);
  }
}

function morphChildren(old, fresh) {
  const keyed = new Map();
  for (const child of old.childNodes) if (keyOf(child)) keyed.set(keyOf(child), child);
  let place = old.firstChild;
  for (const wanted of [...fresh.childNodes]) {
    const key = keyOf(wanted);
    const known = key ? keyed.get(key) : place && !keyOf(place) ? place : null;
    if (!known) {
      old.insertBefore(wanted, place);
      continue;
    }
    if (known !== place) old.insertBefore(known, place);
    const kept = morph(known, wanted);
    place = kept.nextSibling;
  }
  while (place) {
    const next = place.nextSibling;
    place.remove();
    place = next;
  }
}
