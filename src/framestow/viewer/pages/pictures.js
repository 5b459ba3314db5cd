// Draws one array of an observation: a picture with crisp pixels, or the numbers of a vector as bars.

// What an array is shown as:
//   (H, W), (H, W, 1), (1, H, W)  grey        (H, W, 3), (3, H, W)  colour
//   (n,)                          bars        any other             grey: last axis to the right, the others downwards
export function formOf({ shape }) {
  const [first, second, last] = shape;
  if (shape.length === 1) return { kind: "bars", width: first, height: 1 };
  if (shape.length === 3 && last === 3) return { kind: "colour", width: second, height: first, step: 3, plane: 1 };
  if (shape.length === 3 && first === 3) return { kind: "colour", width: last, height: second, step: 1, plane: second * last };
  if (shape.length === 3 && last === 1) return { kind: "grey", width: second, height: first };
  if (shape.length === 3 && (last === 2 || last === 4)) {
    return { kind: "grey", width: second * last, height: first, channels: last };
  }
  const width = shape[shape.length - 1];
  return { kind: "grey", width, height: shape.slice(0, -1).reduce((product, side) => product * side, 1) };
}

const READERS = {
  uint8: Uint8Array, int8: Int8Array, bool: Uint8Array, uint16: Uint16Array, int16: Int16Array, uint32: Uint32Array,
  int32: Int32Array, uint64: BigUint64Array, int64: BigInt64Array, float32: Float32Array, float64: Float64Array,
};

// The numbers of a frame, from its bytes.
export function numbersOf(bytes, { dtype }) {
  const own = bytes.slice().buffer;
  if (dtype === "float16") return Float64Array.from(new Uint16Array(own), halfFloat);
  const numbers = new READERS[dtype](own);
  return dtype.endsWith("64") && dtype !== "float64" ? Float64Array.from(numbers, Number) : numbers;
}

function halfFloat(bits) {
  const sign = bits & 0x8000 ? -1 : 1;
  const exponent = (bits >> 10) & 31;
  const fraction = bits & 1023;
  if (exponent === 31) return fraction ? NaN : sign * Infinity;
  return sign * (exponent ? (1 + fraction / 1024) * 2 ** (exponent - 15) : (fraction / 1024) * 2 ** -14);
}

// The range of numbers that a picture is scaled from: fixed for pixels, else the widest that was shown of the array.
export class Range {
  constructor(array) {
    this.isExact = array.dtype === "uint8" && array.shape.length > 1;
    const isUnit = array.is_scaled || array.dtype === "bool";
    this.isFixed = this.isExact || isUnit;
    [this.low, this.high] = this.isExact ? [0, 255] : isUnit ? [0, 1] : [Infinity, -Infinity];
    this.array = array;
  }

  widen(numbers) {
    if (this.isFixed) return;
    for (const value of numbers) {
      if (!Number.isFinite(value)) continue;
      if (value < this.low) this.low = value;
      if (value > this.high) this.high = value;
    }
  }

  get note() {
    if (this.isExact || this.array.dtype === "bool" || !(this.high >= this.low)) return "";
    const [low, high] = [shortNumber(this.low), shortNumber(this.high)];
    return this.array.shape.length === 1 ? `${low} to ${high}` : `${low} (dark) to ${high} (bright)`;
  }

  share(value) {
    if (!Number.isFinite(value)) return 0;
    const span = this.high - this.low;
    return span > 0 ? Math.min(1, Math.max(0, (value - this.low) / span)) : 0;
  }
}

export function shortNumber(value) {
  if (value === null || Number.isNaN(value)) return "–";
  if (Number.isInteger(value) && Math.abs(value) < 1e9) return value.toLocaleString("en-US");
  return String(Number(value.toPrecision(4)));
}

export function colourOf(name) {
  return getComputedStyle(document.body).getPropertyValue(name).trim();
}

// Shows a picture in a canvas, `times` as large as its pixels.
export function scaleCanvas(canvas, { width, height }, times) {
  canvas.style.width = `${width * times}px`;
  canvas.style.aspectRatio = `${width} / ${height}`;
}

// Draws the bytes of one frame into a canvas, a canvas pixel for each pixel. Returns nothing.
export function drawFrame(canvas, bytes, array, range) {
  const form = formOf(array);
  const numbers = numbersOf(bytes, array);
  range.widen(numbers);
  if (form.kind === "bars") drawBars(canvas, numbers, range);
  else drawPixels(canvas, numbers, form, range);
}

function drawPixels(canvas, numbers, form, range) {
  canvas.width = form.width;
  canvas.height = form.height;
  const context = canvas.getContext("2d");
  const picture = context.createImageData(form.width, form.height);
  const level = (at) => (range.isExact ? numbers[at] : Math.round(range.share(numbers[at]) * 255));
  for (let pixel = 0; pixel < form.width * form.height; pixel++) {
    const out = pixel * 4;
    if (form.kind === "colour") {
      const at = pixel * form.step;
      for (let channel = 0; channel < 3; channel++) picture.data[out + channel] = level(at + channel * form.plane);
    } else {
      picture.data.fill(level(form.channels ? besideEachOther(pixel, form) : pixel), out, out + 3);
    }
    picture.data[out + 3] = 255;
  }
  context.putImageData(picture, 0, 0);
}

// Where the pixel of a picture with several channels, which stand side by side, is in its array.
function besideEachOther(pixel, { width, channels }) {
  const row = Math.floor(pixel / width);
  const column = pixel % width;
  const columns = width / channels;
  return (row * columns + (column % columns)) * channels + Math.floor(column / columns);
}

function drawBars(canvas, numbers, range) {
  const ratio = window.devicePixelRatio || 1;
  const width = canvas.clientWidth || 160;
  const height = canvas.clientHeight || 96;
  canvas.width = width * ratio;
  canvas.height = height * ratio;
  const context = canvas.getContext("2d");
  context.scale(ratio, ratio);
  const space = width / numbers.length;
  const zero = height * (1 - range.share(Math.min(Math.max(0, range.low), range.high)));
  context.fillStyle = colourOf("--c0");
  numbers.forEach((value, number) => {
    const top = height * (1 - range.share(value));
    const bar = Math.max(1, space - (space > 3 ? 1 : 0));
    context.fillRect(number * space, Math.min(top, zero), bar, Math.max(1, Math.abs(zero - top)));
  });
  context.fillStyle = colourOf("--pale");
  context.fillRect(0, Math.min(zero, height - 1), width, 1);
}
