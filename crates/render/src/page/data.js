// The data of a process: a head in JSON, and columns of LEB128 numbers that the head lists.

/** Decodes the numbers of a column into the narrowest array that can hold them. */
function decoded(bytes, at, { count, most }) {
  const Kind = most < 256 ? Uint8Array : most < 65536 ? Uint16Array
    : most < 4294967296 ? Uint32Array : Float64Array;
  const numbers = new Kind(count);
  for (let i = 0; i < count; i += 1) {
    let byte = bytes[at++];
    let number = byte & 127;
    for (let scale = 128; byte > 127; scale *= 128) {
      byte = bytes[at++];
      number += (byte & 127) * scale;
    }
    numbers[i] = number;
  }
  return numbers;
}

/** Returns the columns by name. */
function columnsOf(list, bytes) {
  const columns = {};
  let at = 0;
  for (const column of list) {
    columns[column.name] = column.name === "utf8" ? bytes.subarray(at, at + column.length)
      : decoded(bytes, at, column);
    at += column.length;
  }
  return columns;
}

/** Returns a function from numbers to texts, which are decoded on first use. */
function textsOf({ text: lengths, utf8 }) {
  const starts = new Uint32Array(lengths.length + 1);
  lengths.forEach((length, i) => { starts[i + 1] = starts[i] + length; });
  const decoder = new TextDecoder();
  const known = new Array(lengths.length);
  return (number) => {
    known[number] ??= decoder.decode(utf8.subarray(starts[number], starts[number + 1]));
    return known[number];
  };
}

/** Returns the data embedded in the page; null if it has to be requested from a server. */
async function dataInside() {
  const head = byId("data").textContent;
  if (head === "") return null;
  const text = byId("columns").textContent;
  const packed = Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("deflate-raw"));
  const bytes = new Uint8Array(await new Response(stream).arrayBuffer());
  byId("columns").remove();
  return new Model(JSON.parse(head), bytes);
}

/** Parses the data sent by a server: the length of the head, the head, the columns. */
function unframed(buffer) {
  const length = new DataView(buffer).getUint32(0, true);
  const head = new TextDecoder().decode(new Uint8Array(buffer, 4, length));
  return { head: JSON.parse(head), bytes: new Uint8Array(buffer, 4 + length) };
}

function dataFrom(buffer) {
  const { head, bytes } = unframed(buffer);
  return new Model(head, bytes);
}
