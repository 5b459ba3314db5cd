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

// A tile: a value above its name.
export function tileElement(value, name) {
  const tile = document.createElement("div");
  tile.append(textElement("b", value), textElement("span", name));
  return tile;
}
