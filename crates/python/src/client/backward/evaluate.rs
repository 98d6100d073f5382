//! The gradients of an instruction's operands, by its row's formulas. Evaluating one only emits instructions.

use super::term::{Term, int, inverse, listed, places, product, range, reduces, size, swapped};
use super::vjp;
use crate::client::emission::autocast::Suspended;
use crate::client::emission::convert::scalar_object;
use crate::client::emission::emit::{self, Arg, Vars};
use crate::client::session::errors;
use crate::client::tape::formula::{Expr, Formulas, Function, Infix};
use crate::client::tape::{self, Node, Place, SharedNode, generated_formulas, generic, saved};
use crate::client::value::Tensor;
use crate::client::value::dtype;
use crate::client::value::variable::{Edge, Input, Var};
use gt_protocol::{Attr, Dims, Meta, Op, Scalar};
use pyo3::prelude::*;
use pyo3::types::PyTuple;
use smallvec::{SmallVec, smallvec};

/// Values that the formulas of several operands share, kept once computed.
#[derive(Default)]
pub(crate) struct SharedTerms {
    /// Values of shared expressions.
    terms: SmallVec<[(u8, Term); 4]>,
    /// Results of one instruction that computes the gradients of several operands.
    products: Option<Vars>,
}

/// The backward pass through one recorded instruction.
pub(crate) struct Evaluation<'a> {
    py: Python<'a>,
    op: Op,
    node: &'a SharedNode,
    /// Gradient that has arrived at each output.
    grads: &'a [Option<Var>],
    formulas: &'static Formulas,
    /// The operand whose gradient is computed.
    position: usize,
    /// Values that the operands' gradients share.
    common: SharedTerms,
    /// Item that was asked for last, and the sum of the sizes before it: a long list is counted
    /// once, not anew for each item.
    counted: (usize, i64),
}

impl<'a> Evaluation<'a> {
    pub(crate) fn new(
        py: Python<'a>,
        op: Op,
        node: &'a SharedNode,
        grads: &'a [Option<Var>],
    ) -> Self {
        Self::with_shared(py, op, node, grads, SharedTerms::default())
    }

    /// Starts an evaluation that reuses the terms computed for gradients of other operands.
    pub(crate) fn with_shared(
        py: Python<'a>,
        op: Op,
        node: &'a SharedNode,
        grads: &'a [Option<Var>],
        common: SharedTerms,
    ) -> Self {
        let formulas = generated_formulas::of(op);
        let counted = (op.info().fixed_operands(), 0);
        Self { py, op, node, grads, formulas, position: 0, common, counted }
    }

    /// Returns the shared terms, for the gradients of other operands.
    pub(crate) fn into_shared(self) -> SharedTerms {
        self.common
    }

    /// The gradient of an operand; `None` where it has none, or where no gradient that it depends
    /// on has arrived.
    pub(crate) fn gradient(&mut self, position: usize) -> PyResult<Option<Var>> {
        let Some(formula) = self.formulas.at(position) else { return Ok(None) };
        let _same_dtypes = Suspended::new(); // the forward's dtypes, whatever autocast region the pass runs in
        let occurs = |output: usize| formula.grads >> output.min(15) & 1 != 0;
        let arrived = |output: usize, grad: &Option<_>| grad.is_some() && occurs(output);
        if !self.grads.iter().enumerate().any(|(output, grad)| arrived(output, grad)) {
            return Ok(None);
        }
        if self.op.info().has_list() {
            self.common.terms.clear(); // shared terms of one item do not hold for the next
        }
        self.position = position;
        Ok(match self.term(formula.root)? {
            Term::Absent => None,
            term => Some(term.tensor()),
        })
    }

    fn term(&mut self, place: u8) -> PyResult<Term> {
        let node = self.node;
        Ok(match expr(self.formulas, place) {
            Expr::Grad(output) => {
                let grad = self.grads.get(usize::from(*output)).and_then(Option::as_ref);
                grad.map_or(Term::Absent, |grad| Term::Tensor(grad.clone()))
            }
            Expr::Operand(position) => self.operand(usize::from(*position))?,
            Expr::Item => self.operand(self.position)?,
            Expr::Position => int(self.position - self.op.info().fixed_operands()),
            Expr::Rest(first) => Term::Items(self.operands_from((*first).into())?),
            Expr::Output(output) => {
                match saved::at(self.py, node, Place::Output((*output).into()))? {
                    Some(var) => Term::Tensor(var),
                    None => unreachable!("output {output} of {} is not saved", self.op.info().name),
                }
            }
            Expr::Attr(attr) => self.attr(usize::from(*attr)),
            Expr::CreateGraph => Term::Number(Scalar::Bool(tape::grad_enabled())),
            Expr::Absent => Term::Absent,
            Expr::Bool(value) => Term::Number(Scalar::Bool(*value)),
            Expr::Int(value) => Term::Number(Scalar::Int(*value)),
            Expr::Float(value) => Term::Number(Scalar::Float(*value)),
            Expr::Word(word) => Term::Word(word),
            Expr::Dtype(dtype) => Term::Dtype(*dtype),
            Expr::Shared(inner) => return self.shared(*inner),
            Expr::If(test, yes, no) => {
                let chosen = if self.term(*test)?.truth() { *yes } else { *no };
                self.term(chosen)?
            }
            Expr::IsAbsent(inner) => {
                Term::Number(Scalar::Bool(matches!(self.term(*inner)?, Term::Absent)))
            }
            Expr::Infix(infix, left, right) => self.infix(*infix, *left, *right)?,
            Expr::Negative(inner) => match self.term(*inner)? {
                Term::Tensor(var) => self.emit_one(Op::Neg, &[Arg::Var(&var)])?,
                term => term.negative(),
            },
            Expr::List(items) => self.list(items)?,
            Expr::Range(inner, start, end) => {
                Term::Dims(range(&self.term(*inner)?.dims(), *start, *end))
            }
            Expr::Result(inner, output) => match self.term(*inner)? {
                Term::Several(vars) => match vars.into_iter().nth(usize::from(*output)) {
                    Some(var) => Term::Tensor(var),
                    None => unreachable!("no result {output}"),
                },
                term => Term::Tensor(term.tensor()),
            },
            Expr::Call(op, operands, attrs) => self.call(*op, operands, attrs)?,
            Expr::Apply(function, operands) => self.apply(*function, operands)?,
            Expr::Python(name, operands) => self.python(name, operands)?,
            Expr::Vjp(op) => self.product(*op)?,
            Expr::NotImplemented => return Err(self.not_implemented()?),
        })
    }

    fn shared(&mut self, place: u8) -> PyResult<Term> {
        if let Some((_, term)) = self.common.terms.iter().find(|(kept, _)| *kept == place) {
            return Ok(term.clone());
        }
        let term = self.term(place)?;
        self.common.terms.push((place, term.clone()));
        Ok(term)
    }

    /// The operand's value at the time of the call: a saved value, a number, or nothing.
    fn operand(&self, position: usize) -> PyResult<Term> {
        if let Some(var) = saved::at(self.py, self.node, Place::Operand(position))? {
            return Ok(Term::Tensor(var));
        }
        let Some(input) = self.node.inputs.get(position) else { return Ok(Term::Absent) };
        let name = self.op.info().name;
        assert!(input.meta.is_none(), "operand {position} of {name} is not saved");
        Ok(input.scalar.map_or(Term::Absent, Term::Number))
    }

    fn operands_from(&self, first: usize) -> PyResult<Vec<Term>> {
        (first..self.node.inputs.len()).map(|position| self.operand(position)).collect()
    }

    /// The gradient of this operand, taken from the one instruction `op` that computes the
    /// gradients of all operands that need one.
    fn product(&mut self, op: Op) -> PyResult<Term> {
        let passes_on = |input: &Input| !matches!(input.edge, None | Some(Edge::Nowhere));
        let wanted = || (0..).zip(&self.node.inputs).filter(|(_, input)| passes_on(input));
        let position = wanted().position(|(place, _)| place == self.position);
        let Some(position) = position else { return Ok(Term::Absent) };
        if self.common.products.is_none() {
            let places = wanted().map(|(place, _)| place);
            let attrs = vjp::attrs(self.op, self.node, places);
            let grad = |grad: &Option<Var>| grad.clone().map_or(Term::Absent, Term::Tensor);
            let mut terms = self.operands_from(0)?;
            terms.truncate(terms.len() - generic::saved_operands(self.op, &self.node.attrs));
            terms.extend(self.grads.iter().map(grad));
            for output in generic::saved_results(self.op, &self.node.attrs) {
                terms.push(match saved::at(self.py, self.node, Place::Output(output))? {
                    // The second derivative is taken with respect to the operands only.
                    Some(var) => Term::Tensor(Var::new(self.py, var.value(self.py)?, None)),
                    None => Term::Absent,
                });
            }
            let args: SmallVec<[Arg<'_>; 4]> = terms.iter().map(arg).collect();
            self.common.products = Some(emit::emit(self.py, op, &args, attrs)?);
        }
        let product = self.common.products.as_ref().and_then(|products| products.get(position));
        Ok(product.map_or(Term::Absent, |product| Term::Tensor(product.clone())))
    }

    fn attr(&self, place: usize) -> Term {
        let row = self.op.info().attrs.get(place);
        match (row, self.node.attrs.get(place)) {
            (Some(row), Some(attr)) => Term::of_attr(attr, row.kind),
            // The attribute was added to the row after its release.
            (_, None) => Term::Absent,
            (None, _) => unreachable!("{} has no attribute {place}", self.op.info().name),
        }
    }

    fn terms(&mut self, places: &[u8]) -> PyResult<SmallVec<[Term; 4]>> {
        places.iter().map(|place| self.term(*place)).collect()
    }

    fn infix(&mut self, infix: Infix, left: u8, right: u8) -> PyResult<Term> {
        let (left, right) = (self.term(left)?, self.term(right)?);
        // PyTorch's order, with a tensor before a number.
        let turned = infix.op().info().commutes && matches!(left, Term::Number(_));
        match (&left, &right) {
            (Term::Tensor(_), _) | (_, Term::Tensor(_)) if turned => {
                self.emit_one(infix.op(), &[arg(&right), arg(&left)])
            }
            (Term::Tensor(_), _) | (_, Term::Tensor(_)) => {
                self.emit_one(infix.op(), &[arg(&left), arg(&right)])
            }
            (left, right) => Ok(Term::infix(infix, left, right)),
        }
    }

    fn emit_one(&self, op: Op, args: &[Arg<'_>]) -> PyResult<Term> {
        emit::one(self.py, op, args).map(Term::Tensor)
    }

    fn list(&mut self, items: &[u8]) -> PyResult<Term> {
        let mut dims = SmallVec::<[i64; 8]>::new();
        for item in items {
            match self.term(*item)? {
                Term::Dims(more) => dims.extend_from_slice(&more),
                term => dims.push(term.int()),
            }
        }
        Ok(Term::Dims(listed(dims)))
    }

    fn call(&mut self, op: Op, operands: &[u8], attrs: &[u8]) -> PyResult<Term> {
        let mut terms: SmallVec<[Term; 4]> = SmallVec::new();
        for place in operands {
            match self.term(*place)? {
                Term::Items(items) => terms.extend(items),
                term => terms.push(term),
            }
        }
        let mut values: SmallVec<[Attr; 2]> = SmallVec::new();
        for (place, row) in attrs.iter().zip(op.info().attrs) {
            values.push(self.term(*place)?.to_attr(row));
        }
        if let [Term::Tensor(var)] = terms.as_slice()
            && changes_nothing(op, &values, &var.meta(self.py))
        {
            return Ok(Term::Tensor(var.clone()));
        }
        let args: SmallVec<[Arg<'_>; 4]> = terms.iter().map(arg).collect();
        let results = emit::emit(self.py, op, &args, values)?;
        Ok(if op.info().has_several_outputs() {
            Term::Several(results)
        } else {
            Term::Tensor(emit::only(results)?)
        })
    }

    /// The shape and dtype of an expression; an operand or output need not be saved for it.
    fn meta(&mut self, place: u8) -> PyResult<Meta> {
        let node = self.node;
        let meta = match expr(self.formulas, place) {
            Expr::Operand(position) => meta_of(node, (*position).into()),
            Expr::Item => meta_of(node, self.position),
            Expr::Output(output) => node.outputs.get(usize::from(*output)).map(|meta| ***meta),
            _ => match self.term(place)? {
                Term::Tensor(var) => Some(var.meta(self.py)),
                // A number that stands for an operand.
                term => Some(Meta::new(term.number().dtype(), Dims::EMPTY)),
            },
        };
        Ok(meta.unwrap_or_else(|| unreachable!("expression {place} has no shape")))
    }

    fn apply(&mut self, function: Function, operands: &[u8]) -> PyResult<Term> {
        let (first, second) = match *operands {
            [first] => (first, first),
            [first, second] => (first, second),
            _ => unreachable!("{function:?} of {} arguments", operands.len()),
        };
        Ok(match function {
            Function::Shape => Term::Dims(self.meta(first)?.dims),
            Function::Dtype => Term::Dtype(self.meta(first)?.dtype),
            Function::Rank => int(self.meta(first)?.dims.len()),
            Function::Elements => Term::Number(Scalar::Int(self.meta(first)?.elements())),
            Function::Size => {
                let dims = self.meta(first)?.dims;
                size(&dims, self.term(second)?.int())
            }
            Function::Product => product(&self.term(first)?.dims()),
            Function::Count => {
                let (dims, dim) = (self.term(first)?.dims(), self.term(second)?);
                let reduced = reduces(&dim, dims.len());
                let sizes = dims.iter().enumerate().filter(|(place, _)| reduced(*place));
                product(&listed(sizes.map(|(_, size)| *size)))
            }
            Function::Kept => {
                let (dims, dim) = (self.term(first)?.dims(), self.term(second)?);
                let reduced = reduces(&dim, dims.len());
                let sizes = dims.iter().enumerate();
                Term::Dims(listed(sizes.map(|(place, n)| if reduced(place) { 1 } else { *n })))
            }
            Function::Last => {
                Term::Dims(listed(places(self.term(first)?.dims().len()).rev().map(|d| -1 - d)))
            }
            Function::Swapped => Term::Dims(swapped(self.term(first)?.int())),
            Function::Inverse => Term::Dims(inverse(&self.term(first)?.dims())),
            Function::Before => self.before(first)?,
            Function::Max => {
                let (first, second) = (self.term(first)?, self.term(second)?);
                if Term::infix(Infix::Lt, &first, &second).truth() { second } else { first }
            }
            Function::IsNumber => {
                Term::Number(Scalar::Bool(matches!(self.term(first)?, Term::Number(_))))
            }
            Function::Detach => match self.term(first)? {
                Term::Tensor(var) => Term::Tensor(Var::new(self.py, var.value(self.py)?, None)),
                number => number,
            },
            Function::SumTo => {
                let (grad, dims) = (self.term(first)?.tensor(), self.term(second)?.dims());
                Term::Tensor(sum_to(self.py, grad, &dims)?)
            }
        })
    }

    /// The sum of the sizes, along a dimension, of the items before this one. An empty vector,
    /// which may stand among any items, counts as 0.
    fn before(&mut self, dim: u8) -> PyResult<Term> {
        let dim = self.term(dim)?.int();
        let (first, mut start) = match self.counted {
            counted if counted.0 <= self.position => counted,
            _ => (self.op.info().fixed_operands(), 0),
        };
        for position in first..self.position {
            let dims = meta_of(self.node, position).map_or(Dims::EMPTY, |meta| meta.dims);
            if Some(dims.len()) == self.node.outputs.first().map(|meta| meta.dims.len()) {
                start += size(&dims, dim).int();
            }
        }
        self.counted = (self.position, start);
        Ok(Term::Number(Scalar::Int(start)))
    }

    fn python(&mut self, name: &str, operands: &[u8]) -> PyResult<Term> {
        let terms = self.terms(operands)?;
        let objects: Vec<Bound<'_, PyAny>> =
            terms.into_iter().map(|term| object(self.py, term)).collect::<PyResult<_>>()?;
        let function = self.py.import("gt.gradients")?.getattr(name)?;
        let result = function.call1(PyTuple::new(self.py, objects)?)?;
        Ok(Term::Tensor(result.cast_into::<Tensor>()?.get().var.clone()))
    }

    fn not_implemented(&self) -> PyResult<PyErr> {
        let info = self.op.info();
        // The instruction's attribute names the overload for operators without a row.
        let overload = info.attr_index("overload").and_then(|place| self.node.attrs.get(place));
        let aten = if let Some(Attr::Text(overload)) = overload {
            let refused = self.py.import("gt.aten.refused")?.getattr("derivative")?;
            let name: Option<String> = refused.call1((overload.as_ref(),))?.extract()?;
            if let Some(name) = name {
                return Ok(errors::derivative_not_implemented(self.py, &name));
            }
            overload
        } else {
            info.aten
        };
        let name = aten.split('.').next().filter(|name| !name.is_empty()).unwrap_or(info.name);
        let text = format!("derivative for aten::{name} is not implemented");
        Ok(errors::not_differentiable(self.py, text))
    }
}

fn expr(formulas: &'static Formulas, place: u8) -> &'static Expr {
    match formulas.nodes.get(usize::from(place)) {
        Some(expr) => expr,
        None => unreachable!("expression {place} of {}", formulas.nodes.len()),
    }
}

fn meta_of(node: &Node, position: usize) -> Option<Meta> {
    node.inputs.get(position).and_then(|input| input.meta.as_ref()).map(|meta| ***meta)
}

fn arg(term: &Term) -> Arg<'_> {
    match term {
        Term::Absent => Arg::Absent,
        Term::Tensor(var) => Arg::Var(var),
        term => Arg::Scalar(term.number()),
    }
}

/// Returns true if an operator returns its only operand, of `meta`, unchanged.
fn changes_nothing(op: Op, attrs: &[Attr], meta: &Meta) -> bool {
    match (op, attrs) {
        (Op::Cast, [Attr::Dtype(dtype)]) => *dtype == meta.dtype,
        (_, [Attr::Ints(dims)]) => {
            op.info().strided.is_some_and(|strided| strided.sized) && *dims == meta.dims
        }
        (_, _) => false,
    }
}

/// Sums the dimensions in which `wanted` was broadcast to the gradient's shape.
pub(crate) fn sum_to(py: Python<'_>, grad: Var, wanted: &Dims) -> PyResult<Var> {
    let _same_dtypes = Suspended::new();
    let grad_dims = grad.meta(py).dims;
    let added = grad_dims.len().saturating_sub(wanted.len());
    let target = |place: usize| place.checked_sub(added).and_then(|place| wanted.get(place));
    let summed =
        |place: usize| grad_dims.get(place) != Some(&1) && target(place).is_none_or(|&n| n == 1);
    let dims = listed(
        places(grad_dims.len()).zip(0..).filter(|(_, place)| summed(*place)).map(|(d, _)| d),
    );
    let mut grad = grad;
    if !dims.is_empty() {
        let attrs = [Attr::Ints(dims), Attr::Bool(added == 0), Attr::Absent];
        grad =
            emit::only(emit::emit(py, Op::Sum, &[Arg::Var(&grad)], attrs.into_iter().collect())?)?;
    }
    if grad.meta(py).dims == *wanted {
        return Ok(grad);
    }
    emit::only(emit::emit(py, Op::Reshape, &[Arg::Var(&grad)], smallvec![Attr::Ints(*wanted)])?)
}

/// Converts a term to the Python object that a Python function receives.
fn object(py: Python<'_>, term: Term) -> PyResult<Bound<'_, PyAny>> {
    Ok(match term {
        Term::Absent => py.None().into_bound(py),
        Term::Tensor(var) => Tensor::wrap(py, var)?.into_any(),
        Term::Number(number) => scalar_object(py, number)?,
        Term::Dims(dims) => PyTuple::new(py, dims.as_slice())?.into_any(),
        Term::Dtype(name) => dtype::object(py, name)?.into_bound(py).into_any(),
        Term::Word(word) => word.into_pyobject(py)?.into_any(),
        Term::Several(vars) => tuple(py, vars.into_iter().map(Term::Tensor))?,
        Term::Items(items) => tuple(py, items)?,
    })
}

fn tuple(py: Python<'_>, terms: impl IntoIterator<Item = Term>) -> PyResult<Bound<'_, PyAny>> {
    let objects: Vec<Bound<'_, PyAny>> =
        terms.into_iter().map(|term| object(py, term)).collect::<PyResult<_>>()?;
    Ok(PyTuple::new(py, objects)?.into_any())
}
