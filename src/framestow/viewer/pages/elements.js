// Elements of the page.

export function byId(id) {
  return document.getElementById(id);
}

export function textElement(tag, text, kind = "") {
  const element = document.createElement(tag);
  element.textContent = text;
  element.className = kind;
  return element;
}
