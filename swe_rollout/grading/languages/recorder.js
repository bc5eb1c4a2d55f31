const literal = (value, depth) => {
  if (value === null) return "None";
  switch (typeof value) {
    case "bigint": return String(value);
    case "boolean": return value ? "True" : "False";
    case "string": return text(value);
    case "number": {
      if (!Number.isFinite(value)) throw 0;
      return String(value);
    }
  }
  if (typeof value !== "object" || depth > 8) throw 0;
  if (Array.isArray(value)) return "[" + Array.from(value, (each) => literal(each, depth + 1)).join(", ") + "]";
  // Such as maps and dates, and what `==` converts by methods of its own.
  if (Object.getPrototypeOf(value) !== null && value + "" !== "[object Object]") throw 0;
  const items = Object.entries(value).filter((item) => item[1] !== undefined);
  return "{" + items.map((item) => text(item[0]) + ": " + literal(item[1], depth + 1)).join(", ") + "}";
};
const text = (value) => {
  let found = "'";
  for (const each of value) {
    const code = each.codePointAt(0);
    if (code < 32 || code > 126 || each === "'" || each === "\\")
      found += "\\U" + code.toString(16).padStart(8, "0");
    else found += each;
  }
  return found + "'";
};
const write = fs.appendFileSync;
const record = (number, line) => write(path, number + " " + (line.length > 65536 ? "?" : line) + "\n");
const plain = (value) => { try { return literal(value, 0); } catch (error) { return "?"; } };
return {
  seen(number, value) { record(number, plain(value)); return true; },
  truth(number, value) {
    const single = value === null || value === true || value === false;
    record(number, single ? plain(value) : value ? "1" : "0");
    return true;
  },
};
