//! Parser from a line to an instruction.

use super::{
    Names, ParseError,
    literal::{parse_bool, parse_float, parse_scalar},
    scan::Scanner,
};
use crate::instruction::{Attr, Id, Instruction, Operand};
use crate::operator::{AttrInfo, AttrKind, Op, OperandKind};
use crate::value::{Dims, Dtype};
use crate::wire::{FRAME_WORDS_MAX, LIST_MAX, PAYLOAD_BYTES_MAX, TEXT_BYTES_MAX, has_payload};

/// Limit of an id's number, which has 56 bits beside its output's eight.
const NUMBER_LIMIT: u64 = 1 << 56;

/// The instruction of a line, or `None` where the line is empty or a comment. `payload` receives
/// the bytes, if there are any. The form `TENSOR[3] := ADD TENSOR[0] TENSOR[2]` is accepted too.
pub fn parse<'a>(
    line: &str,
    names: &mut dyn Names,
    payload: &'a mut Vec<u8>,
) -> Result<Option<Instruction<'a>>, ParseError> {
    payload.clear();
    let mut scanner = Scanner::new(line);
    scanner.skip_blanks();
    if scanner.at_end() {
        return Ok(None);
    }
    let mut parser = Parser::head(scanner)?;
    loop {
        parser.scanner.skip_blanks();
        if parser.scanner.at_end() {
            break;
        }
        parser.word(names, payload)?;
    }
    parser.check_operands()?;
    parser.check_attrs()?;
    let mut instruction = parser.instruction;
    instruction.payload = payload;
    Ok(Some(instruction))
}

struct Parser<'l> {
    scanner: Scanner<'l>,
    instruction: Instruction<'static>,
    has_tag: bool,
    has_payload: bool,
}

impl<'l> Parser<'l> {
    /// Parses results and operator.
    fn head(mut scanner: Scanner<'l>) -> Result<Self, ParseError> {
        let mut instruction = Instruction::new(Op::Free);
        while let Some(id) = id(&mut scanner)? {
            instruction.outputs.push(id);
            scanner.skip_blanks();
        }
        let equals = scanner.take(":=") || scanner.take("=");
        if !equals && !instruction.outputs.is_empty() {
            return Err(scanner.error(scanner.position(), "`=` or another result"));
        }
        scanner.skip_blanks();
        let start = scanner.position();
        let word = scanner.word();
        let Some(op) = Op::from_name(word).or_else(|| capitals(word)) else {
            return Err(scanner.error(start, "an operator of ops.toml"));
        };
        instruction.op = op;
        let (info, count) = (op.info(), instruction.outputs.len());
        if !info.fits_outputs(count) {
            let results = if info.outputs == 1 { "result" } else { "results" };
            return Err(scanner.error(start, format!("{} {results} before {word}", info.outputs)));
        }
        instruction.attrs.resize(info.attrs.len(), Attr::Absent);
        Ok(Self { scanner, instruction, has_tag: false, has_payload: false })
    }

    /// Parses one operand, attribute, signal, tag or payload.
    fn word(&mut self, names: &mut dyn Names, payload: &mut Vec<u8>) -> Result<(), ParseError> {
        let start = self.scanner.position();
        if let Some(id) = id(&mut self.scanner)? {
            return self.operand(start, Operand::Value(id));
        }
        if self.scanner.take("@") {
            return self.signal(start, names);
        }
        if self.scanner.take("~") {
            if std::mem::replace(&mut self.has_tag, true) {
                return Err(self.scanner.error(start, "one source position"));
            }
            self.instruction.tag = self.scanner.number("a source position below 2^32")?;
            return self.boundary();
        }
        let word = self.scanner.word();
        if self.scanner.take("=") {
            if word == "payload" {
                return self.payload(start, payload);
            }
            return self.attr(start, word);
        }
        match word {
            "_" => self.operand(start, Operand::Absent),
            word => match parse_scalar(word) {
                Some(scalar) => self.operand(start, Operand::Scalar(scalar)),
                None => Err(self.scanner.error(start, "an operand, `name=value`, `@` or `~`")),
            },
        }
    }

    fn operand(&mut self, start: usize, operand: Operand) -> Result<(), ParseError> {
        let info = self.instruction.op.info();
        let position = self.instruction.operands.len();
        let limit = if info.has_list() { FRAME_WORDS_MAX } else { info.fixed_operands() };
        if position >= limit {
            return Err(self.scanner.error(start, format!("at most {limit} operands")));
        }
        let kind = info.operands.get(position).map(|row| row.kind);
        if operand == Operand::Absent && kind == Some(OperandKind::Required) {
            return Err(self.scanner.error(start, "an operand that is not absent"));
        }
        if self.scanner.take("!") {
            if position >= 16 || !matches!(operand, Operand::Value(_)) {
                let expected = "`!` behind a value, one of the first 16 operands";
                return Err(self.scanner.error(start, expected));
            }
            self.instruction.consumes |= 1 << position;
        }
        self.instruction.operands.push(operand);
        self.boundary()
    }

    fn signal(&mut self, start: usize, names: &mut dyn Names) -> Result<(), ParseError> {
        if self.instruction.signal != 0 {
            return Err(self.scanner.error(start, "one signal"));
        }
        let rest = self.scanner.rest();
        let id = if rest.starts_with('"') {
            names.signal_id(&self.scanner.quoted(TEXT_BYTES_MAX)?)
        } else {
            match self.scanner.word() {
                word if word.starts_with(|c: char| c.is_ascii_digit()) => word.parse().ok(),
                word => names.signal_id(word),
            }
        };
        match id {
            Some(id) if id != 0 => self.instruction.signal = id,
            Some(_) | None => return Err(self.scanner.error(start, "a signal that is known")),
        }
        self.boundary()
    }

    fn payload(&mut self, start: usize, payload: &mut Vec<u8>) -> Result<(), ParseError> {
        if !has_payload(self.instruction.op) {
            return Err(self.scanner.error(start, "no payload: this operator carries none"));
        }
        if std::mem::replace(&mut self.has_payload, true) {
            return Err(self.scanner.error(start, "one payload"));
        }
        if !self.scanner.take("0x") {
            return Err(self.scanner.error(start, "the payload's bytes (0x…), not a reference"));
        }
        let digits = self.scanner.run(|c| c.is_ascii_hexdigit());
        if digits.len() > 2 * PAYLOAD_BYTES_MAX || !digits.len().is_multiple_of(2) {
            let expected = format!("whole bytes, at most {PAYLOAD_BYTES_MAX}");
            return Err(self.scanner.error(start, expected));
        }
        let mut nibbles = digits.chars().filter_map(|digit| digit.to_digit(16));
        while let (Some(high), Some(low)) = (nibbles.next(), nibbles.next()) {
            payload.extend(u8::try_from(high << 4 | low));
        }
        self.boundary()
    }

    fn attr(&mut self, start: usize, name: &str) -> Result<(), ParseError> {
        let info = self.instruction.op.info();
        let place = info
            .attr_index(name)
            .and_then(|index| info.attrs.get(index).zip(self.instruction.attrs.get_mut(index)));
        let Some((row, place)) = place else {
            let known: Vec<&str> = info.attrs.iter().map(|row| row.name).collect();
            let known = if known.is_empty() { "no attribute".to_owned() } else { known.join(", ") };
            return Err(self
                .scanner
                .error(start, format!("an attribute of {}: {known}", info.name)));
        };
        if *place != Attr::Absent {
            return Err(self.scanner.error(start, format!("{name} once")));
        }
        *place = value(&mut self.scanner, row)?;
        self.boundary()
    }

    /// Checks that a blank, a comment or the end follows a word.
    fn boundary(&self) -> Result<(), ParseError> {
        if self.scanner.at_end() || self.scanner.rest().starts_with([' ', '\t', '\r', '\n']) {
            return Ok(());
        }
        Err(self.scanner.error(self.scanner.position(), "a blank"))
    }

    /// Optional operands at the end may be left out.
    fn check_operands(&mut self) -> Result<(), ParseError> {
        let info = self.instruction.op.info();
        let missing = info.operands.iter().take(info.fixed_operands());
        for row in missing.skip(self.instruction.operands.len()) {
            if row.kind == OperandKind::Required {
                let expected = format!("the operand {} of {}", row.name, info.name);
                return Err(self.scanner.error(self.scanner.position(), expected));
            }
            self.instruction.operands.push(Operand::Absent);
        }
        Ok(())
    }

    fn check_attrs(&self) -> Result<(), ParseError> {
        let info = self.instruction.op.info();
        for (attr, row) in self.instruction.attrs.iter().zip(info.attrs) {
            if matches!(attr, Attr::Absent) && !row.optional {
                let expected = format!("the attribute {} of {}", row.name, info.name);
                return Err(self.scanner.error(self.scanner.position(), expected));
            }
        }
        Ok(())
    }
}

/// An operator in capitals, the form in the project's first documents.
fn capitals(word: &str) -> Option<Op> {
    let is_capital = |c: char| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_';
    if word.chars().all(is_capital) { Op::from_name(&word.to_ascii_lowercase()) } else { None }
}

/// Parses `%3`, `%7.1` or `TENSOR[3]`, if one is next.
fn id(scanner: &mut Scanner<'_>) -> Result<Option<Id>, ParseError> {
    let start = scanner.position();
    let bracket = scanner.take("TENSOR[");
    if !bracket && !scanner.take("%") {
        return Ok(None);
    }
    let expected = "a value's number below 2^56, and an output's below 256";
    let number: u64 = scanner.number(expected)?;
    let output = if scanner.take(".") { scanner.number(expected)? } else { 0_u8 };
    if number >= NUMBER_LIMIT || (bracket && !scanner.take("]")) {
        return Err(scanner.error(start, expected));
    }
    Ok(Some(Id::number(number, output)))
}

/// Parses an attribute's value in the form of its kind.
fn value(scanner: &mut Scanner<'_>, row: &AttrInfo) -> Result<Attr, ParseError> {
    let start = scanner.position();
    match row.kind {
        AttrKind::Text => return Ok(Attr::Text(scanner.quoted(TEXT_BYTES_MAX)?.into())),
        AttrKind::Ints => return ints(scanner),
        AttrKind::List => return list(scanner),
        AttrKind::Bool
        | AttrKind::Int
        | AttrKind::Float
        | AttrKind::Scalar
        | AttrKind::Dtype
        | AttrKind::Choice(_) => {}
    }
    let word = scanner.word();
    let (attr, expected) = match row.kind {
        AttrKind::Bool => (parse_bool(word).map(Attr::Bool), "true or false".to_owned()),
        AttrKind::Int => (word.parse().ok().map(Attr::Int), "an integer".to_owned()),
        AttrKind::Float => (parse_float(word).map(Attr::Float), "a float".to_owned()),
        AttrKind::Scalar => {
            (parse_scalar(word).map(Attr::Scalar), "a bool, an integer or a float".to_owned())
        }
        AttrKind::Dtype => {
            let names = Dtype::ALL.map(Dtype::short).join(", ");
            (Dtype::from_short(word).map(Attr::Dtype), format!("a dtype: {names}"))
        }
        AttrKind::Choice(words) => {
            let index = words.iter().position(|known| *known == word);
            let attr = index.and_then(|index| u8::try_from(index).ok()).map(Attr::Choice);
            (attr, format!("one of {}", words.join(", ")))
        }
        AttrKind::Text | AttrKind::Ints | AttrKind::List => (None, "a value".to_owned()),
    };
    attr.ok_or_else(|| scanner.error(start, expected))
}

/// Parses `[0,1]`, as long as a shape at most.
fn ints(scanner: &mut Scanner<'_>) -> Result<Attr, ParseError> {
    let mut dims = Dims::EMPTY;
    let expected = "a list of at most 8 integers: [0,1]";
    integers(scanner, expected, &mut |value| dims.push(value))?;
    Ok(Attr::Ints(dims))
}

/// Parses the same form with a higher limit.
fn list(scanner: &mut Scanner<'_>) -> Result<Attr, ParseError> {
    let mut values = Vec::new();
    let expected = format!("a list of at most {LIST_MAX} integers: [0,1]");
    integers(scanner, &expected, &mut |value| {
        values.push(value);
        values.len() <= LIST_MAX
    })?;
    Ok(Attr::List(values.into()))
}

/// Parses `[0,1]`; `push` returns false if the number exceeds the limit.
fn integers(
    scanner: &mut Scanner<'_>,
    expected: &str,
    push: &mut dyn FnMut(i64) -> bool,
) -> Result<(), ParseError> {
    let start = scanner.position();
    if !scanner.take("[") {
        return Err(scanner.error(start, expected));
    }
    if scanner.take("]") {
        return Ok(());
    }
    loop {
        let value = scanner.run(|c| c == '-' || c.is_ascii_digit()).parse();
        if !value.is_ok_and(&mut *push) {
            return Err(scanner.error(start, expected));
        }
        if scanner.take("]") {
            return Ok(());
        }
        if !scanner.take(",") {
            return Err(scanner.error(start, expected));
        }
        scanner.skip_blanks();
    }
}
