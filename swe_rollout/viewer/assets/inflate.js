// Raw DEFLATE (RFC 1951), for browsers without DecompressionStream.

const inflate = (() => {
  const LENGTHS = [3, 4, 5, 6, 7, 8, 9, 10, 11, 13, 15, 17, 19, 23, 27, 31, 35, 43, 51, 59, 67, 83, 99, 115, 131, 163, 195, 227, 258];
  const LENGTH_BITS = [0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3, 4, 4, 4, 4, 5, 5, 5, 5, 0];
  const DISTANCES = [1, 2, 3, 4, 5, 7, 9, 13, 17, 25, 33, 49, 65, 97, 129, 193, 257, 385, 513, 769, 1025, 1537, 2049, 3073, 4097, 6145, 8193, 12289, 16385, 24577];
  const ORDER = [16, 17, 18, 0, 8, 7, 9, 6, 10, 5, 11, 4, 12, 3, 13, 2, 14, 1, 15];

  /** A canonical code: how many codes of each length there are, and their symbols in order. */
  function codeOf(lengths) {
    const counts = new Uint16Array(16);
    for (const length of lengths) counts[length] += 1;
    counts[0] = 0;
    const starts = new Uint16Array(17);
    for (let length = 1; length < 16; length += 1) starts[length + 1] = starts[length] + counts[length];
    const symbols = new Uint16Array(lengths.length);
    lengths.forEach((length, symbol) => { if (length) symbols[starts[length]++] = symbol; });
    return { counts, symbols };
  }

  const FIXED = codeOf(Array.from({ length: 288 }, (_, i) => (i < 144 ? 8 : i < 256 ? 9 : i < 280 ? 7 : 8)));
  const FIXED_DISTANCES = codeOf(new Array(30).fill(5));

  return (input) => {
    let at = 0, held = 0, holds = 0, size = 0;
    let out = new Uint8Array(Math.max(1024, input.length * 4));

    const bits = (number) => {
      while (holds < number) {
        if (at >= input.length) throw new Error("the data of this page is cut off");
        held |= input[at++] << holds;
        holds += 8;
      }
      const value = held & ((1 << number) - 1);
      held >>>= number;
      holds -= number;
      return value;
    };
    const room = (more) => {
      if (size + more <= out.length) return;
      const larger = new Uint8Array(Math.max(out.length * 2, size + more));
      larger.set(out);
      out = larger;
    };
    const symbol = ({ counts, symbols }) => {
      let code = 0, first = 0, index = 0;
      for (let length = 1; length < 16; length += 1) {
        code |= bits(1);
        const here = counts[length];
        if (code - here < first) return symbols[index + code - first];
        index += here;
        first = (first + here) << 1;
        code <<= 1;
      }
      throw new Error("the data of this page is damaged");
    };
    const codes = () => {
      const literals = bits(5) + 257, distances = bits(5) + 1, used = bits(4) + 4;
      const short = new Array(19).fill(0);
      for (let i = 0; i < used; i += 1) short[ORDER[i]] = bits(3);
      const code = codeOf(short), lengths = [];
      while (lengths.length < literals + distances) {
        const found = symbol(code);
        if (found < 16) lengths.push(found);
        else if (found === 16) lengths.push(...new Array(3 + bits(2)).fill(lengths.at(-1)));
        else lengths.push(...new Array(found === 17 ? 3 + bits(3) : 11 + bits(7)).fill(0));
      }
      return [codeOf(lengths.slice(0, literals)), codeOf(lengths.slice(literals))];
    };
    const block = (literals, distances) => {
      for (;;) {
        const found = symbol(literals);
        if (found < 256) { room(1); out[size++] = found; continue; }
        if (found === 256) return;
        const length = LENGTHS[found - 257] + bits(LENGTH_BITS[found - 257]);
        const far = symbol(distances);
        const distance = DISTANCES[far] + bits(far < 4 ? 0 : (far >> 1) - 1);
        room(length);
        for (let i = 0; i < length; i += 1, size += 1) out[size] = out[size - distance];
      }
    };

    for (let last = 0; !last;) {
      last = bits(1);
      const kind = bits(2);
      if (kind === 0) {
        held = holds = 0;
        const length = input[at] | (input[at + 1] << 8);
        at += 4;
        room(length);
        out.set(input.subarray(at, at + length), size);
        at += length;
        size += length;
      } else if (kind === 1) block(FIXED, FIXED_DISTANCES);
      else block(...codes());
    }
    return out.subarray(0, size);
  };
})();
