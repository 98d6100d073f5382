//! The definitions of `definitions.txt`, parsed once. The file explains its own syntax. A mistake
//! in it is a bug of ours: the parser panics with the line.

use super::expression::{Binary, Expression, ExpressionValue, FUNCTIONS};
use crate::operator::OpInfo;
use crate::placement::ReduceOp;
use crate::{Dtype, Op};
use std::collections::BTreeMap;
use std::sync::OnceLock;

/// Definition of one operator by one entry.
#[derive(Debug)]
pub(super) struct Definition {
    pub conditions: Vec<Expression>,
    pub lines: Vec<Line>,
    /// Alternative result lists: the first one whose condition holds is taken.
    pub results: Vec<(Option<Expression>, Vec<LineOperand>)>,
}

/// A value of a definition.
#[derive(Clone, Debug)]
pub(super) enum LineOperand {
    Absent,
    /// An operand of the decomposed operator.
    Given(usize),
    /// Result `.1` of line `.0`.
    Line(usize, usize),
    Number(Expression),
}

/// A line that defines values: an instruction, or a choice between values.
#[derive(Debug)]
pub(super) struct Line {
    pub instruction: Result<LineInstruction, LineOperand>,
    /// Condition of the value; where it does not hold, the value is the other one.
    pub condition: Option<Expression>,
    pub otherwise: Option<LineOperand>,
}

#[derive(Debug)]
pub(super) struct LineInstruction {
    pub op: Op,
    pub operands: Vec<LineOperand>,
    /// The attributes that are given, with their positions.
    pub attrs: Vec<(usize, Expression)>,
    pub placed: Option<LinePlacements>,
}

/// Placements of an instruction's operands and results, and the dtype and shape of each result.
#[derive(Debug)]
pub(super) struct LinePlacements {
    pub operands: Vec<LinePlacement>,
    pub results: Vec<(LinePlacement, Expression, Expression)>,
    /// True if each member looks up its own range of indices.
    pub range: bool,
}

#[derive(Debug)]
pub(super) enum LinePlacement {
    Replicate,
    Partial(ReduceOp),
    /// Sharded as the first operand.
    Shard,
    /// Sharded along the same dimension, with this many indices for each member.
    Even(Expression),
}

/// The definitions of an operator, in the order in which they are tried.
pub(super) fn definitions(op: Op) -> &'static [Definition] {
    static ALL: OnceLock<Vec<Vec<Definition>>> = OnceLock::new();
    let all = ALL.get_or_init(|| {
        let mut all: Vec<Vec<Definition>> = Vec::new();
        for entry in entries(include_str!("definitions.txt")) {
            for header in &entry.headers {
                let definition = Reader::new(header).definition(&entry.lines);
                let place = header.op.place();
                if all.len() <= place {
                    all.resize_with(place + 1, Vec::new);
                }
                if let Some(list) = all.get_mut(place) {
                    list.push(definition);
                }
            }
        }
        all
    });
    all.get(op.place()).map_or(&[], Vec::as_slice)
}

/// An operator of an entry, and the substitutions for it.
struct DefinitionHeader {
    op: Op,
    words: BTreeMap<&'static str, &'static str>,
}

struct DefinitionEntry {
    headers: Vec<DefinitionHeader>,
    lines: Vec<&'static str>,
}

fn entries(text: &'static str) -> Vec<DefinitionEntry> {
    let mut entries: Vec<DefinitionEntry> = Vec::new();
    for line in
        text.lines().filter(|line| !line.trim().is_empty() && !line.trim_start().starts_with('#'))
    {
        if line.starts_with(' ') {
            expected(entries.last_mut(), line).lines.push(line.trim());
            continue;
        }
        let mut words = line.split(' ');
        let name = words.next().unwrap_or_default();
        let op = expected(Op::from_name(name), line);
        let pairs = words.map(|pair| expected(pair.split_once('='), line));
        let header = DefinitionHeader { op, words: pairs.chain([("op", name)]).collect() };
        match entries.last_mut().filter(|entry| entry.lines.is_empty()) {
            Some(entry) => entry.headers.push(header),
            None => entries.push(DefinitionEntry { headers: vec![header], lines: Vec::new() }),
        }
    }
    entries
}

/// Unwraps a required part of a definition.
#[track_caller]
#[allow(clippy::panic, reason = "reads our own file, all of which a test reads")]
fn expected<T>(found: Option<T>, text: &str) -> T {
    match found {
        Some(found) => found,
        None => panic!("definitions.txt: {text}"),
    }
}

/// Parser of an entry for one of its operators.
struct Reader<'h> {
    header: &'h DefinitionHeader,
    info: &'static OpInfo,
    values: BTreeMap<&'static str, LineOperand>,
    expressions: BTreeMap<&'static str, Expression>,
    lines: Vec<Line>,
}

impl<'h> Reader<'h> {
    fn new(header: &'h DefinitionHeader) -> Self {
        let (values, expressions) = (BTreeMap::new(), BTreeMap::new());
        Self { header, info: header.op.info(), values, expressions, lines: Vec::new() }
    }

    fn definition(mut self, lines: &[&'static str]) -> Definition {
        let (mut conditions, mut results) = (Vec::new(), Vec::new());
        for &line in lines {
            let mut tokens = Tokens::new(line);
            if tokens.take("when") {
                conditions.push(self.braced(&mut tokens));
            } else if tokens.take("->") {
                let mut list = Vec::new();
                while let Some(value) = self.operand(&mut tokens) {
                    list.push(value);
                }
                results.push((self.condition(&mut tokens), list));
            } else if line.starts_with('%') {
                self.values_of(&mut tokens);
            } else {
                let name = tokens.next();
                assert!(tokens.take("="), "definitions.txt: {line}");
                let expression = self.braced(&mut tokens);
                self.expressions.insert(name, expression);
            }
            assert!(tokens.rest().is_empty(), "definitions.txt: {} in {line}", tokens.rest());
        }
        Definition { conditions, lines: self.lines, results }
    }

    /// `%a %b = topk $self k={k}`
    fn values_of(&mut self, tokens: &mut Tokens) {
        let mut names = Vec::new();
        while !tokens.take("=") {
            names.push(expected(tokens.next().strip_prefix('%'), tokens.line));
        }
        let instruction = match self.operand(tokens) {
            Some(value) => Err(value),
            None => Ok(self.instruction(tokens)),
        };
        let condition = self.condition(tokens);
        let otherwise = tokens.take("else").then(|| expected(self.operand(tokens), tokens.line));
        let line = self.lines.len();
        self.lines.push(Line { instruction, condition, otherwise });
        for (output, name) in names.into_iter().enumerate() {
            self.values.insert(name, LineOperand::Line(line, output));
        }
    }

    fn condition(&self, tokens: &mut Tokens) -> Option<Expression> {
        tokens.take("if").then(|| self.braced(tokens))
    }

    fn operand(&self, tokens: &mut Tokens) -> Option<LineOperand> {
        let word = tokens.peek();
        let found = if let Some(name) = word.strip_prefix('%') {
            expected(self.values.get(name).cloned(), tokens.line)
        } else if let Some(name) = word.strip_prefix('$') {
            LineOperand::Given(expected(self.position(name), tokens.line))
        } else if word == "_" {
            LineOperand::Absent
        } else if word.starts_with('{') {
            return Some(LineOperand::Number(self.braced(tokens)));
        } else {
            LineOperand::Number(Expression::Literal(number(word)?))
        };
        tokens.next();
        Some(found)
    }

    fn position(&self, name: &str) -> Option<usize> {
        self.info.operands.iter().position(|operand| operand.name == name)
    }

    fn instruction(&self, tokens: &mut Tokens) -> LineInstruction {
        let word = tokens.next();
        let name = self.header.words.get(word).copied().unwrap_or(word);
        let op = expected(Op::from_name(name), tokens.line);
        let mut operands = Vec::new();
        while let Some(operand) = self.operand(tokens) {
            operands.push(operand);
        }
        let mut attrs = Vec::new();
        while let Some((name, value)) = tokens.peek().split_once('=') {
            let place = expected(op.info().attr_index(name), tokens.line);
            tokens.skip(name.len() + 1);
            let value = if value.starts_with('{') {
                self.braced(tokens)
            } else {
                let word = tokens.next();
                Expression::Literal(expected(literal(word), tokens.line))
            };
            attrs.push((place, value));
        }
        let placed = tokens.take("on").then(|| self.placed(tokens));
        LineInstruction { op, operands, attrs, placed }
    }

    /// `shard, replicate -> partial(sum) {dtype} {shape}`
    fn placed(&self, tokens: &mut Tokens) -> LinePlacements {
        let mut operands = vec![self.place(tokens)];
        while tokens.take(",") {
            operands.push(self.place(tokens));
        }
        assert!(tokens.take("->"), "definitions.txt: {}", tokens.line);
        let mut results = Vec::new();
        loop {
            results.push((self.place(tokens), self.braced(tokens), self.braced(tokens)));
            if !tokens.take(",") {
                return LinePlacements { operands, results, range: tokens.take("range") };
            }
        }
    }

    fn place(&self, tokens: &mut Tokens) -> LinePlacement {
        if tokens.take("replicate") {
            LinePlacement::Replicate
        } else if tokens.take("partial(sum)") {
            LinePlacement::Partial(ReduceOp::Sum)
        } else if tokens.take("partial(max)") {
            LinePlacement::Partial(ReduceOp::Max)
        } else {
            assert!(tokens.take("shard"), "definitions.txt: {}", tokens.line);
            if !tokens.take("(") {
                return LinePlacement::Shard;
            }
            let each = self.braced(tokens);
            assert!(tokens.take(")"), "definitions.txt: {}", tokens.line);
            LinePlacement::Even(each)
        }
    }

    fn braced(&self, tokens: &mut Tokens) -> Expression {
        assert!(tokens.take("{"), "definitions.txt: {}", tokens.line);
        let expression = self.choice(tokens);
        assert!(tokens.take("}"), "definitions.txt: {} in {}", tokens.rest(), tokens.line);
        expression
    }

    /// `a if condition else b`
    fn choice(&self, tokens: &mut Tokens) -> Expression {
        let value = self.binary(tokens, 0);
        if !tokens.take("if") {
            return value;
        }
        let condition = self.binary(tokens, 0);
        assert!(tokens.take("else"), "definitions.txt: {}", tokens.line);
        Expression::If(Box::new([condition, value, self.choice(tokens)]))
    }

    /// Parses operators of this level and of levels that bind more closely, from left to right.
    fn binary(&self, tokens: &mut Tokens, level: usize) -> Expression {
        let Some(operators) = OPERATORS.get(level) else { return self.unary(tokens) };
        let mut left = self.binary(tokens, level + 1);
        while let Some((_, operator, turned)) =
            operators.iter().find(|(symbol, ..)| tokens.take(symbol))
        {
            let right = self.binary(tokens, level + 1);
            let operands = if *turned { [right, left] } else { [left, right] };
            left = Expression::Binary(*operator, Box::new(operands));
        }
        left
    }

    fn unary(&self, tokens: &mut Tokens) -> Expression {
        if tokens.take("not") {
            // `not` binds less closely than a comparison.
            return Expression::Not(Box::new(self.binary(tokens, COMPARISONS)));
        }
        if tokens.take("(") {
            let inner = self.choice(tokens);
            assert!(tokens.take(")"), "definitions.txt: {}", tokens.line);
            return inner;
        }
        let word = tokens.name();
        if !tokens.take("(") {
            return self.named(word, tokens.line);
        }
        let function = FUNCTIONS.iter().find(|(name, _)| *name == word);
        let mut args = Vec::new();
        while !tokens.take(")") {
            args.push(self.choice(tokens));
            tokens.take(",");
        }
        Expression::Function(expected(function, tokens.line).1, args)
    }

    /// A name of the entry, an attribute or an operand, or else a word of a choice.
    fn named(&self, word: &'static str, line: &str) -> Expression {
        let word = self.header.words.get(word).copied().unwrap_or(word);
        if let Some(expression) = self.expressions.get(word) {
            return expression.clone();
        }
        match word {
            "dims" => return Expression::Dims,
            "members" => return Expression::Members,
            "outputs" => return Expression::Outputs,
            "result" => return Expression::Result,
            _ => {}
        }
        if let Some(place) = self.info.attr_index(word) {
            return Expression::Attr(place);
        }
        if let Some(position) = self.position(word) {
            return Expression::Operand(position);
        }
        Expression::Literal(expected(literal(word), line))
    }
}

/// Symbols by precedence level; `true` exchanges the operator's operands.
static OPERATORS: &[&[(&str, Binary, bool)]] = &[
    &[("or", Binary::Or, false)],
    &[("and", Binary::And, false)],
    &[
        ("==", Binary::Equal, false),
        ("<=", Binary::LessOrEqual, false),
        (">=", Binary::LessOrEqual, true),
        ("<", Binary::Less, false),
        (">", Binary::Less, true),
    ],
    &[("+", Binary::Add, false), ("-", Binary::Subtract, false)],
    &[("*", Binary::Multiply, false), ("/", Binary::Divide, false)],
];
/// The precedence level of comparisons.
const COMPARISONS: usize = 2;

/// A number, a bool, a dtype, an empty list, or else a word of a choice.
fn literal(word: &'static str) -> Option<ExpressionValue> {
    let dtype = || Dtype::from_short(word).map(ExpressionValue::Dtype);
    let is_word = !word.is_empty() && word.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    match word {
        "true" => Some(ExpressionValue::Bool(true)),
        "false" => Some(ExpressionValue::Bool(false)),
        "[]" => Some(std::iter::empty().collect()),
        _ => number(word).or_else(dtype).or_else(|| is_word.then_some(ExpressionValue::Word(word))),
    }
}

fn number(word: &str) -> Option<ExpressionValue> {
    if !word.starts_with(|c: char| c.is_ascii_digit()) {
        return None;
    }
    let integer = word.parse().ok().map(ExpressionValue::Int);
    integer.or_else(|| word.parse().ok().map(ExpressionValue::Float))
}

/// The tokens of a line, from left to right.
struct Tokens {
    line: &'static str,
    rest: &'static str,
}

impl Tokens {
    fn new(line: &'static str) -> Self {
        Self { line, rest: line }
    }

    fn rest(&self) -> &'static str {
        self.rest.trim_start()
    }

    fn skip(&mut self, bytes: usize) {
        self.rest = self.rest().get(bytes..).unwrap_or_default();
    }

    /// The next word, up to a blank.
    fn peek(&self) -> &'static str {
        self.rest().split(' ').next().unwrap_or_default()
    }

    fn next(&mut self) -> &'static str {
        let word = self.peek();
        self.skip(word.len());
        word
    }

    /// The next name or number.
    fn name(&mut self) -> &'static str {
        let rest = self.rest();
        let end = rest.find(|c: char| !(c.is_ascii_alphanumeric() || c == '_' || c == '.'));
        let word = rest.get(..end.unwrap_or(rest.len())).unwrap_or_default();
        self.skip(word.len());
        word
    }

    /// Takes `symbol` if it is next; a word must match as a whole.
    fn take(&mut self, symbol: &str) -> bool {
        let Some(after) = self.rest().strip_prefix(symbol) else { return false };
        let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
        if symbol.ends_with(is_word) && after.starts_with(is_word) {
            return false;
        }
        self.skip(symbol.len());
        true
    }
}
