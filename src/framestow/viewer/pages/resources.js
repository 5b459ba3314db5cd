// Resources of the memory, by name: those in this page, or those of the server that sent it. The form of their bytes is
// that of framestow.viewer.columns.

const ARRAYS = {
  uint8: Uint8Array, int8: Int8Array, uint16: Uint16Array, int16: Int16Array, uint32: Uint32Array, int32: Int32Array,
  uint64: BigUint64Array, int64: BigInt64Array, float32: Float32Array, float64: Float64Array,
};
const MOST_BYTES = 96 * 2 ** 20; // of the resources that are kept
const cached = new Map(); // promises of resources, by name, the last used one last
let cachedBytes = 0;

export const ZEROS = -(2 ** 30);
export const LOST = ZEROS - 1;
export const FIRST_EXTRA = 2 ** 30;
// Of the endings of framestow.viewer.episode_table: those up to LAST_END are ends, RUNNING is none yet, later ones are cuts.
export const LAST_END = 2;
export const RUNNING = 3;

// Returns {values, arrays}; each array is {shape, data}.
export function readResource(name) {
  const found = cached.get(name) ?? load(name);
  cached.delete(name);
  cached.set(name, found);
  return found;
}

function load(name) {
  const found = fetchBytes(name).then(inflate).then(unpack);
  found.then(
    (resource) => {
      cachedBytes += resource.bytes;
      for (const [other, oldest] of cached) {
        if (cachedBytes <= MOST_BYTES || other === name) break;
        cached.delete(other);
        oldest.then(({ bytes }) => (cachedBytes -= bytes));
      }
    },
    () => cached.delete(name),
  );
  return found;
}

async function fetchBytes(name) {
  const inPage = document.getElementById(`resource:${name}`);
  if (inPage) return Uint8Array.from(atob(inPage.textContent.trim()), (letter) => letter.charCodeAt(0));
  const source = document.body.dataset.source;
  if (!source) throw new Error(`this page does not have ${name}`);
  const answer = await fetch(`${source}/${name}`, { cache: "no-store" });
  if (!answer.ok) throw new Error(await answer.text());
  return new Uint8Array(await answer.arrayBuffer());
}

async function inflate(bytes) {
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Response(stream).arrayBuffer();
}

function unpack(buffer) {
  const length = new DataView(buffer).getUint32(0, true);
  const header = JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, 4, length)));
  const arrays = {};
  for (const [name, [dtype, shape, offset]] of Object.entries(header.arrays)) {
    const size = shape.reduce((product, side) => product * side, 1);
    arrays[name] = { shape, data: new ARRAYS[dtype](buffer, 4 + length + offset, size) };
  }
  return { values: header.values, arrays, bytes: buffer.byteLength };
}

// A piece of an episode's frames. Each frame is stored as the exclusive-or with the frame before.
export async function readPiece(episode, number) {
  const piece = await readResource(`frames/${episode}/${number}`);
  if (!piece.isWhole) {
    for (const [name, { shape: [count, size], data }] of Object.entries(piece.arrays)) {
      if (!name.startsWith("frames.")) continue;
      for (let at = size; at < count * size; at++) data[at] ^= data[at - size];
    }
    piece.isWhole = true;
  }
  return piece;
}

// The bytes of row `row` of an array with two axes.
export function rowOf({ shape, data }, row) {
  return data.subarray(row * shape[1], (row + 1) * shape[1]);
}
