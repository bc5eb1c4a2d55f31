#[allow(unused_macros)] macro_rules! @HOLE@ {
    (seen $number:expr, $value:expr) => { @HOLE@!(record $number, ::std::format!("{:?}", &$value)) };
    (like $like:expr; $number:expr, $value:expr) => { match &$value { value => { if false { let _ = *value == $like; } @HOLE@!(seen $number, *value) } } };
    (liked $like:expr; $number:expr, $value:expr) => { match &$value { value => { if false { let _ = $like == *value; } @HOLE@!(seen $number, *value) } } };
    (truth $number:expr, $value:expr) => { @HOLE@!(record $number, ::std::format!("{:?}", !!($value))) };
    (record $number:expr, $text:expr) => {{
        fn plain(text: &str) -> ::std::option::Option<::std::string::String> {
            let mut out = ::std::string::String::new();
            let mut word = ::std::string::String::new();
            let mut rest = text.chars().peekable();
            while let ::std::option::Option::Some(c) = rest.next() {
                if c.is_alphabetic() {
                    word.push(c);
                    if rest.peek().map_or(false, |d| d.is_alphanumeric()) { continue; }
                    match word.as_str() { "true" => out.push_str("True"), "false" => out.push_str("False"), "None" => out.push_str("None"), "Some" | "Ok" => {}, _ => return ::std::option::Option::None }
                    word.clear();
                } else if c == '"' {
                    out.push('"');
                    loop {
                        let mut d = rest.next()?;
                        if d == '"' { break; }
                        if d == '\\' {
                            d = match rest.next()? { 'n' => '\n', 't' => '\t', 'r' => '\r', '0' => '\0',
                                'u' => { let code: ::std::string::String = rest.by_ref().skip(1).take_while(|e| *e != '}').collect(); ::std::char::from_u32(u32::from_str_radix(&code, 16).ok()?)? }
                                other => other };
                        }
                        if d.is_ascii() && !d.is_ascii_control() && d != '"' && d != '\\' { out.push(d); } else { out.push_str(&::std::format!("\\U{:08x}", d as u32)); }
                    }
                    out.push('"');
                } else if c.is_ascii_digit() || c == '-' {
                    let mut number = ::std::string::String::from(c);
                    while rest.peek().map_or(false, |d| d.is_ascii_digit() || ".-+e".contains(*d)) { number.push(rest.next()?); }
                    let digits = number.trim_start_matches('-').as_bytes();
                    let is_octal = digits.len() > 1 && digits[0] == b'0' && digits[1].is_ascii_digit();
                    let is_apart = out.trim_end().chars().last().map_or(true, |d| "[(,".contains(d));
                    if is_octal || !is_apart || number.parse::<f64>().is_err() { return ::std::option::Option::None; }
                    out.push_str(&number);
                } else if "[](), ".contains(c) { out.push(c); } else { return ::std::option::Option::None; }
            }
            ::std::option::Option::Some(out)
        }
        let line = plain(&$text).filter(|each| each.len() <= 65536);
        let line = line.unwrap_or_else(|| "?".into());
        let mut file = ::std::fs::OpenOptions::new().append(true).create(true).open(@RECORDS@).unwrap();
        ::std::io::Write::write_all(&mut file, ::std::format!("{} {}\n", $number, line).as_bytes()).unwrap();
    }};
}
