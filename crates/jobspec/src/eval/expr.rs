//! The evaluation of expressions.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::functions::{self, Argument, CallFault};
use super::value::{Type, Value};
use super::{Evaluator, Failed, Scope, Unknown, convert};
use crate::diag::{Diagnostic, Diagnostics, Source, Span, nearest};
use crate::hcl::{Binary, Call, Expr, ExprKind, For, Ident, ObjectKey, Part, Step, TraversalStep, Unary};
use crate::number::{NotANumber, Number};

type Outcome = Result<Value, Failed>;

/// The file an expression is from and the names it may use.
#[derive(Clone)]
pub(super) struct Place<'s> {
    pub(super) source: &'s Arc<Source>,
    pub(super) scope: Scope,
}

impl Evaluator<'_> {
    /// Evaluates an expression of the file `source` in `scope`. What is wrong is added to the messages.
    pub fn evaluate(&mut self, source: &Arc<Source>, expr: &Expr, scope: &Scope) -> Result<Value, Failed> {
        self.eval(&Place { source, scope: scope.clone() }, expr)
    }

    pub(super) fn eval(&mut self, at: &Place<'_>, expr: &Expr) -> Outcome {
        self.step(at.source, expr.span)?;
        match &*expr.kind {
            ExprKind::Null => Ok(Value::Null),
            ExprKind::Bool(b) => Ok(Value::Bool(*b)),
            ExprKind::Number(n) => Ok(Value::Number(n.clone())),
            ExprKind::String(text) => Ok(Value::String(Arc::clone(text))),
            ExprKind::Paren(inner) | ExprKind::Wrapped(inner) => self.eval(at, inner),
            ExprKind::Template(parts) => self.template(at, expr, parts),
            ExprKind::Tuple(items) => self.tuple(at, items, expr.span),
            ExprKind::Object(items) => self.object(at, items, expr.span),
            ExprKind::Name(_) | ExprKind::Attr(..) | ExprKind::Index(..) => self.traverse(at, expr),
            ExprKind::Splat(inner, steps, span) => self.splat(at, inner, steps, *span),
            ExprKind::Call(call) => self.call(at, call),
            ExprKind::Unary(operator, operand) => self.unary(at, *operator, operand),
            ExprKind::Binary(operator, left, right) => self.binary(at, *operator, left, right, expr.span),
            ExprKind::Conditional(condition, then, otherwise) => self.conditional(at, condition, then, otherwise),
            ExprKind::For(parts) => self.for_expression(at, parts, expr.span),
        }
    }

    fn tuple(&mut self, at: &Place<'_>, items: &[Expr], span: Span) -> Outcome {
        // All faults of the elements are reported, not only the first.
        let values: Vec<Outcome> = items.iter().map(|item| self.eval(at, item)).collect();
        let value = Value::tuple(values.into_iter().collect::<Result<_, _>>()?);
        self.grow(at.source, span, &value)?;
        Ok(value)
    }

    fn object(&mut self, at: &Place<'_>, items: &[(ObjectKey, Expr)], span: Span) -> Outcome {
        let mut out = BTreeMap::new();
        let mut failed = false;
        for (key, value) in items {
            let name = match key {
                ObjectKey::Name(name) => Ok(name.name.to_string()),
                ObjectKey::Expr(expr) => self.object_key(at, expr),
            };
            let value = self.eval(at, value);
            match (name, value) {
                (Ok(name), Ok(value)) => {
                    out.insert(name, value);
                }
                _ => failed = true,
            }
        }
        if failed {
            return Err(Failed);
        }
        let value = Value::object(out);
        self.grow(at.source, span, &value)?;
        Ok(value)
    }

    fn object_key(&mut self, at: &Place<'_>, expr: &Expr) -> Result<String, Failed> {
        match self.eval(at, expr)? {
            Value::Null => self.fail(at.source, expr.span, "Null value as key", "Can't use a null value as a key."),
            value => match convert::to_string(&value) {
                Ok(text) => Ok(text.to_string()),
                Err(why) => {
                    let detail = format!("Can't use this value as a key: {why}.");
                    self.fail(at.source, expr.span, "Incorrect key type", detail)
                }
            },
        }
    }

    fn template(&mut self, at: &Place<'_>, expr: &Expr, parts: &[Part]) -> Outcome {
        let mut out = String::new();
        let whole = self.parts(at, parts, &mut out);
        let value = Value::string(out);
        whole?;
        self.grow(at.source, expr.span, &value)?;
        Ok(value)
    }

    fn parts(&mut self, at: &Place<'_>, parts: &[Part], out: &mut String) -> Result<(), Failed> {
        let mut result = Ok(());
        for part in parts {
            let done = match part {
                Part::Literal(text) => {
                    out.push_str(text);
                    Ok(())
                }
                Part::Interpolation(expr) => self.interpolate(at, expr, out),
                Part::If { condition, then, otherwise } => match self.condition(at, condition) {
                    Ok(true) => self.parts(at, then, out),
                    Ok(false) => self.parts(at, otherwise, out),
                    Err(failed) => Err(failed),
                },
                Part::For { key, value, collection, body } => {
                    self.for_part(at, key.as_ref(), value, collection, body, out)
                }
            };
            if out.len() > super::MAX_STRING_BYTES {
                let value = Value::string(std::mem::take(out));
                self.grow(at.source, Span::default(), &value)?;
            }
            result = result.and(done);
        }
        result
    }

    fn interpolate(&mut self, at: &Place<'_>, expr: &Expr, out: &mut String) -> Result<(), Failed> {
        const SUMMARY: &str = "Invalid template interpolation value";
        match self.eval(at, expr)? {
            Value::Null => self.fail(
                at.source,
                expr.span,
                SUMMARY,
                "The expression result is null. Cannot include a null value in a string template.",
            ),
            value => match self.charged(at, expr.span, &value).map(|()| convert::to_string(&value))? {
                Ok(text) => {
                    out.push_str(&text);
                    Ok(())
                }
                Err(why) => {
                    let detail = format!("Cannot include the given value in a string template: {why}.");
                    self.fail(at.source, expr.span, SUMMARY, detail)
                }
            },
        }
    }

    /// Counts the work of looking at all of a value.
    fn charged(&mut self, at: &Place<'_>, span: Span, value: &Value) -> Result<(), Failed> {
        let weight = super::weigh(value).unwrap_or(super::MAX_VALUE_WEIGHT);
        self.charge(at.source, span, weight / 8)
    }

    fn for_part(
        &mut self,
        at: &Place<'_>,
        key: Option<&Ident>,
        value: &Ident,
        collection: &Expr,
        body: &[Part],
        out: &mut String,
    ) -> Result<(), Failed> {
        let pairs = self.pairs(at, collection)?;
        for (k, v) in pairs {
            self.step(at.source, collection.span)?;
            let inner = at.bind(key, value, k, v);
            self.parts(&inner, body, out)?;
        }
        Ok(())
    }

    fn condition(&mut self, at: &Place<'_>, expr: &Expr) -> Result<bool, Failed> {
        let value = self.eval(at, expr)?;
        if value.is_null() {
            return self.fail(
                at.source,
                expr.span,
                "Null condition",
                "The condition value is null. Conditions must either be true or false.",
            );
        }
        match convert::to_bool(&value) {
            Ok(b) => Ok(b),
            Err(_) => self.fail(
                at.source,
                expr.span,
                "Incorrect condition type",
                "The condition expression must be of type bool.",
            ),
        }
    }

    fn conditional(&mut self, at: &Place<'_>, condition: &Expr, then: &Expr, otherwise: &Expr) -> Outcome {
        let chosen = self.condition(at, condition);
        // Both sides are evaluated, since the type of the result is what both have in common; a fault of the side that
        // is not taken does not count.
        let chosen = chosen?;
        let then_value = self.attempt(at, then);
        let otherwise_value = self.attempt(at, otherwise);
        let (then_value, otherwise_value) = match (then_value, otherwise_value) {
            (Ok(a), Ok(b)) => (a, b),
            (Err(messages), _) if chosen => {
                self.diagnostics.append(messages);
                return Err(Failed);
            }
            (_, Err(messages)) if !chosen => {
                self.diagnostics.append(messages);
                return Err(Failed);
            }
            (Ok(value), _) | (_, Ok(value)) => return Ok(value),
            (Err(_), Err(_)) => return Err(Failed),
        };
        let value = if chosen { &then_value } else { &otherwise_value };
        self.charged(at, then.span, &then_value)?;
        self.charged(at, otherwise.span, &otherwise_value)?;
        if then_value.is_null() || otherwise_value.is_null() {
            return Ok(value.clone());
        }
        match unify_branches(&then_value, &otherwise_value) {
            Some(kind) => match convert::convert(value, &kind) {
                Ok(value) => Ok(value),
                Err(_) => Ok(value.clone()),
            },
            None => {
                let detail = format!(
                    "The true and false result expressions must have consistent types. The 'true' value is {}, but \
                     the 'false' value is {}.",
                    then_value.kind_name(),
                    otherwise_value.kind_name()
                );
                self.fail(at.source, then.span.to(otherwise.span), "Inconsistent conditional result types", detail)
            }
        }
    }

    /// Names, attributes and indexes: known values, or the text of the traversal.
    fn traverse(&mut self, at: &Place<'_>, expr: &Expr) -> Outcome {
        if let Some(steps) = expr.traversal()
            && let Some(TraversalStep::Name(root)) = steps.first()
            && at.scope.get(root).is_none()
        {
            if self.unknown == Unknown::Refused {
                let span = expr.root_span();
                return self.fail(at.source, span, "Variables not allowed", "Variables may not be used here.");
            }
            let text = literal_traversal(&steps);
            self.suspect(at, expr, root, steps.len(), &text);
            return Ok(Value::string(text));
        }
        if let Some(steps) = expr.traversal()
            && let [TraversalStep::Name(root), TraversalStep::Name(name), ..] = steps.as_slice()
            && self.unresolved.contains(&format!("{root}.{name}"))
        {
            return Err(Failed);
        }
        match &*expr.kind {
            ExprKind::Name(name) => match at.scope.get(name) {
                Some(value) => Ok(value.clone()),
                None => Ok(Value::string(format!("${{{name}}}"))),
            },
            ExprKind::Attr(inner, name) => {
                let value = self.eval(at, inner)?;
                self.attribute(at, &value, name)
            }
            ExprKind::Index(inner, key, span) => {
                let value = self.eval(at, inner);
                let key = self.eval(at, key);
                self.index(at, &value?, &key?, *span)
            }
            _ => Ok(Value::Null),
        }
    }

    /// A name that is nearly `var` or `local` is left as text like every other, but is hardly meant to be.
    fn suspect(&mut self, at: &Place<'_>, expr: &Expr, root: &str, steps: usize, text: &str) {
        let Some(near) = nearest(root, ["var", "local"]).filter(|_| steps > 1) else { return };
        let detail = format!(
            "There is no name \"{root}\", so this is left as the text \"{text}\" for run time. Did you mean \"{near}\"?"
        );
        self.diagnostics.push(Diagnostic::warning(at.source, expr.span, "Name is not known", detail));
    }

    fn attribute(&mut self, at: &Place<'_>, value: &Value, name: &Ident) -> Outcome {
        const SUMMARY: &str = "Unsupported attribute";
        if let Some(members) = value.members() {
            return match members.get(&*name.name) {
                Some(member) => Ok(member.clone()),
                None => {
                    let mut detail = format!("This object does not have an attribute named \"{}\".", name.name);
                    if let Some(near) = nearest(&name.name, members.keys().map(String::as_str)) {
                        detail.push_str(&format!(" Did you mean \"{near}\"?"));
                    }
                    self.fail(at.source, name.span, SUMMARY, detail)
                }
            };
        }
        let detail = match value {
            Value::Null => "This value is null, so it does not have any attributes.".to_owned(),
            other => format!("This value is a {}; it does not have any attributes.", other.kind_name()),
        };
        self.fail(at.source, name.span, SUMMARY, detail)
    }

    fn index(&mut self, at: &Place<'_>, value: &Value, key: &Value, span: Span) -> Outcome {
        let fault =
            |detail: &str| format!("The given key does not identify an element in this collection value{detail}.");
        if let Some(items) = value.items().filter(|_| !matches!(value, Value::Set(..))) {
            let Ok(number) = convert::to_number(key) else {
                return self.fail(at.source, span, "Invalid index", fault(": a number is required"));
            };
            let detail = match number.to_i64() {
                None if number.is_negative() => ": a negative number is not a valid index for a sequence",
                None => ": a whole number is required",
                Some(i) if i < 0 => ": a negative number is not a valid index for a sequence",
                Some(i) => match usize::try_from(i).ok().and_then(|i| items.get(i)) {
                    Some(item) => return Ok(item.clone()),
                    None => ": the given index is greater than or equal to the length of the collection",
                },
            };
            return self.fail(at.source, span, "Invalid index", fault(detail));
        }
        if let Some(members) = value.members() {
            let Ok(name) = convert::to_string(key) else {
                return self.fail(at.source, span, "Invalid index", fault(": string required"));
            };
            return match members.get(&*name) {
                Some(member) => Ok(member.clone()),
                None => self.fail(at.source, span, "Invalid index", fault("")),
            };
        }
        let detail = match value {
            Value::Null => "This value is null, so it does not have any indices.",
            _ => "This value does not have any indices.",
        };
        self.fail(at.source, span, "Invalid index", detail)
    }

    fn splat(&mut self, at: &Place<'_>, inner: &Expr, steps: &[Step], _marker: Span) -> Outcome {
        let source = self.eval(at, inner)?;
        let items = match (&source, source.items()) {
            (Value::Null, _) => Vec::new(),
            (_, Some(items)) => items.to_vec(),
            (other, None) => vec![other.clone()],
        };
        let mut out = Vec::new();
        for item in items {
            self.step(at.source, inner.span)?;
            let mut value = item;
            for step in steps {
                value = match step {
                    Step::Attr(name) => self.attribute(at, &value, name)?,
                    Step::Index(key, span) => {
                        let key = self.eval(at, key)?;
                        self.index(at, &value, &key, *span)?
                    }
                };
            }
            out.push(value);
        }
        let value = Value::tuple(out);
        self.grow(at.source, inner.span, &value)?;
        Ok(value)
    }

    fn unary(&mut self, at: &Place<'_>, operator: Unary, operand: &Expr) -> Outcome {
        let value = self.eval(at, operand)?;
        match operator {
            Unary::Not => Ok(Value::Bool(!self.operand_bool(at, operand, &value, "unary")?)),
            Unary::Minus => Ok(Value::Number(self.operand_number(at, operand, &value, "unary")?.negated())),
        }
    }

    fn operand_number(&mut self, at: &Place<'_>, expr: &Expr, value: &Value, side: &str) -> Result<Number, Failed> {
        let why = match value {
            Value::Null => "argument must not be null".to_owned(),
            value => match convert::to_number(value) {
                Ok(number) => return Ok(number),
                Err(why) => why,
            },
        };
        let detail = format!("Unsuitable value for {side} operand: {why}.");
        self.fail(at.source, expr.span, "Invalid operand", detail)
    }

    fn operand_bool(&mut self, at: &Place<'_>, expr: &Expr, value: &Value, side: &str) -> Result<bool, Failed> {
        let why = match value {
            Value::Null => "argument must not be null".to_owned(),
            value => match convert::to_bool(value) {
                Ok(b) => return Ok(b),
                Err(why) => why,
            },
        };
        let detail = format!("Unsuitable value for {side} operand: {why}.");
        self.fail(at.source, expr.span, "Invalid operand", detail)
    }

    fn binary(&mut self, at: &Place<'_>, operator: Binary, left: &Expr, right: &Expr, span: Span) -> Outcome {
        let a = self.eval(at, left);
        let b = self.eval(at, right);
        let (a, b) = (a?, b?);
        self.charged(at, span, &a)?;
        match operator {
            Binary::Eq => return Ok(Value::Bool(a.equals(&b))),
            Binary::Ne => return Ok(Value::Bool(!a.equals(&b))),
            Binary::Or | Binary::And => {
                let x = self.operand_bool(at, left, &a, "left");
                let y = self.operand_bool(at, right, &b, "right");
                let (x, y) = (x?, y?);
                return Ok(Value::Bool(if operator == Binary::Or { x || y } else { x && y }));
            }
            _ => {}
        }
        let x = self.operand_number(at, left, &a, "left");
        let y = self.operand_number(at, right, &b, "right");
        let (x, y) = (x?, y?);
        match arithmetic(operator, &x, &y) {
            Ok(value) => Ok(value),
            Err(NotANumber) => self.fail(
                at.source,
                span,
                "Operation failed",
                "This operation has no result, as in the division of zero or infinity by zero or infinity.",
            ),
        }
    }

    /// What a `for` walks: keys and values.
    fn pairs(&mut self, at: &Place<'_>, collection: &Expr) -> Result<Vec<(Value, Value)>, Failed> {
        let value = self.eval(at, collection)?;
        match pairs_of(&value) {
            Some(pairs) => Ok(pairs),
            None if value.is_null() => self.fail(
                at.source,
                collection.span,
                "Iteration over null value",
                "A null value cannot be used as the collection in a 'for' expression.",
            ),
            None => {
                let detail = format!(
                    "A value of type {} cannot be used as the collection in a 'for' expression.",
                    value.kind_name()
                );
                self.fail(at.source, collection.span, "Iteration over non-iterable value", detail)
            }
        }
    }

    fn for_expression(&mut self, at: &Place<'_>, parts: &For, span: Span) -> Outcome {
        let pairs = self.pairs(at, &parts.collection)?;
        let mut items = Vec::new();
        let mut members: BTreeMap<String, Value> = BTreeMap::new();
        let mut groups: BTreeMap<String, Vec<Value>> = BTreeMap::new();
        for (k, v) in pairs {
            self.step(at.source, span)?;
            let inner = at.bind(parts.key_name.as_ref(), &parts.value_name, k, v);
            if let Some(condition) = &parts.condition
                && !self.condition(&inner, condition)?
            {
                continue;
            }
            let Some(key) = &parts.key else {
                items.push(self.eval(&inner, &parts.value)?);
                continue;
            };
            let name = self.object_key(&inner, key)?;
            let value = self.eval(&inner, &parts.value)?;
            if parts.group {
                groups.entry(name).or_default().push(value);
                continue;
            }
            if members.contains_key(&name) {
                let detail = format!(
                    "Two different items produced the key {name:?} in this 'for' expression. If duplicates are \
                     expected, use the ellipsis (...) after the value expression to enable grouping by key."
                );
                return self.fail(at.source, key.span, "Duplicate object key", detail);
            }
            members.insert(name, value);
        }
        let value = match (&parts.key, parts.group) {
            (None, _) => Value::tuple(items),
            (Some(_), false) => Value::object(members),
            (Some(_), true) => Value::object(groups.into_iter().map(|(k, v)| (k, Value::tuple(v))).collect()),
        };
        self.grow(at.source, span, &value)?;
        Ok(value)
    }

    fn call(&mut self, at: &Place<'_>, call: &Call) -> Outcome {
        let name = &*call.name.name;
        if let Some(value) = self.lazy_call(at, call) {
            return value;
        }
        let Some(function) = functions::find(name) else {
            let mut detail = format!("There is no function named \"{name}\".");
            if let Some(near) = nearest(name, functions::names()) {
                detail.push_str(&format!(" Did you mean \"{near}\"?"));
            }
            return self.fail(at.source, call.name.span, "Call to unknown function", detail);
        };
        let args = self.arguments(at, call)?;
        if let Some((span, summary, detail)) = functions::arity_fault(function, &args, call) {
            return self.fail(at.source, span, summary, detail);
        }
        self.charge(at.source, call.head, functions::cost(function, &args))?;
        match functions::call(function, &args, self.host) {
            Ok(value) => {
                self.grow(at.source, call.head, &value)?;
                Ok(value)
            }
            Err(CallFault::Argument { index, why }) => {
                let span = args.get(index).map_or(call.head, |a| a.span);
                let parameter = function.parameter(index);
                let detail = format!("Invalid value for \"{parameter}\" parameter: {why}.");
                self.fail(at.source, span, "Invalid function argument", detail)
            }
            Err(CallFault::Call(why)) => {
                let detail = format!("Call to function \"{name}\" failed: {why}.");
                self.fail(at.source, call.head, "Error in function call", detail)
            }
        }
    }

    fn arguments(&mut self, at: &Place<'_>, call: &Call) -> Result<Vec<Argument>, Failed> {
        let values: Vec<(Span, Outcome)> = call.args.iter().map(|arg| (arg.span, self.eval(at, arg))).collect();
        let mut out = Vec::new();
        for (i, (span, value)) in values.into_iter().enumerate() {
            let value = value?;
            if !(call.expand && i + 1 == call.args.len()) {
                out.push(Argument { value, span });
                continue;
            }
            match value.items() {
                Some(items) => out.extend(items.iter().map(|v| Argument { value: v.clone(), span })),
                None => {
                    return self.fail(
                        at.source,
                        span,
                        "Invalid expanding argument value",
                        "The expanding argument (indicated by ...) must be of a tuple, list, or set type.",
                    );
                }
            }
        }
        Ok(out)
    }

    /// `try`, `can` and `convert` look at their arguments before they are values.
    fn lazy_call(&mut self, at: &Place<'_>, call: &Call) -> Option<Outcome> {
        match &*call.name.name {
            "can" if call.args.len() == 1 => {
                let worked = call.args.first().map(|arg| self.attempt(at, arg));
                Some(Ok(Value::Bool(matches!(worked, Some(Ok(_))))))
            }
            "try" => Some(self.first_that_works(at, call)),
            "convert" if call.args.len() == 2 => Some(self.convert_call(at, call)),
            _ => None,
        }
    }

    /// Evaluates with the messages kept apart.
    fn attempt(&mut self, at: &Place<'_>, expr: &Expr) -> Result<Value, Diagnostics> {
        let before = std::mem::take(&mut self.diagnostics);
        let result = self.eval(at, expr);
        let messages = std::mem::replace(&mut self.diagnostics, before);
        match result {
            Ok(value) => {
                // Only warnings are left then.
                self.diagnostics.append(messages);
                Ok(value)
            }
            Err(Failed) => Err(messages),
        }
    }

    fn first_that_works(&mut self, at: &Place<'_>, call: &Call) -> Outcome {
        let mut reasons = String::new();
        for arg in &call.args {
            match self.attempt(at, arg) {
                Ok(value) => return Ok(value),
                Err(messages) => {
                    for message in messages.iter() {
                        let place = message.compact();
                        let place = place.split(": ").next().unwrap_or("").to_owned();
                        let detail = message.detail.replace('\n', "\n  ");
                        reasons.push_str(&format!("\n- {} (at {place})\n  {detail}", message.summary));
                    }
                }
            }
        }
        let why = if call.args.is_empty() {
            "at least one argument is required".to_owned()
        } else {
            format!("no expression succeeded:{reasons}\n\nAt least one expression must produce a successful result")
        };
        let detail = format!("Call to function \"try\" failed: {why}.");
        self.fail(at.source, call.head, "Error in function call", detail)
    }

    fn convert_call(&mut self, at: &Place<'_>, call: &Call) -> Outcome {
        let [value, kind] = call.args.as_slice() else { return Err(Failed) };
        let wanted = crate::variables::type_expression(self, at.source, kind, true)?;
        let value_span = value.span;
        let value = self.eval(at, value)?;
        match convert::convert(&value, &wanted) {
            Ok(value) => Ok(value),
            Err(why) => {
                let detail = format!("Invalid value for \"value\" parameter: {why}.");
                self.fail(at.source, value_span, "Invalid function argument", detail)
            }
        }
    }
}

impl<'s> Place<'s> {
    fn bind(&self, key: Option<&Ident>, value: &Ident, k: Value, v: Value) -> Place<'s> {
        let scope = match key {
            Some(key) => self.scope.with(Arc::clone(&key.name), k),
            None => self.scope.clone(),
        };
        Place { source: self.source, scope: scope.with(Arc::clone(&value.name), v) }
    }
}

impl Expr {
    /// Where the first name of a traversal stands.
    fn root_span(&self) -> Span {
        match &*self.kind {
            ExprKind::Attr(inner, _) | ExprKind::Index(inner, _, _) => inner.root_span(),
            _ => self.span,
        }
    }
}

/// Keys and values of a collection, in order; `None` if it is none.
pub(crate) fn pairs_of(value: &Value) -> Option<Vec<(Value, Value)>> {
    if let Some(members) = value.members() {
        return Some(members.iter().map(|(k, v)| (Value::string(k), v.clone())).collect());
    }
    let items = value.items()?;
    let set = matches!(value, Value::Set(..));
    let pair = |(i, v): (usize, &Value)| (if set { v.clone() } else { Value::count(i) }, v.clone());
    Some(items.iter().enumerate().map(pair).collect())
}

/// The type of a conditional: what both sides convert to. Objects of different shape and tuples of different length
/// stay what they are, as the peer lets them.
fn unify_branches(a: &Value, b: &Value) -> Option<Type> {
    match convert::unify(&[a.kind(), b.kind()]) {
        Some(kind) => Some(kind),
        None => match (a, b) {
            (Value::Object(_) | Value::Map(..), Value::Object(_) | Value::Map(..)) => Some(Type::Any),
            (Value::Tuple(_) | Value::List(..), Value::Tuple(_) | Value::List(..)) => Some(Type::Any),
            _ => None,
        },
    }
}

fn arithmetic(operator: Binary, x: &Number, y: &Number) -> Result<Value, NotANumber> {
    let order = x.compare(y);
    Ok(match operator {
        Binary::Lt => Value::Bool(order.is_lt()),
        Binary::Le => Value::Bool(order.is_le()),
        Binary::Gt => Value::Bool(order.is_gt()),
        Binary::Ge => Value::Bool(order.is_ge()),
        Binary::Add => Value::Number(x.add(y)?),
        Binary::Sub => Value::Number(x.sub(y)?),
        Binary::Mul => Value::Number(x.mul(y)?),
        Binary::Div => Value::Number(x.div(y)?),
        _ => Value::Number(x.rem(y)?),
    })
}

/// `${a.b["c"][0]}`
fn literal_traversal(steps: &[TraversalStep<'_>]) -> String {
    let mut out = String::from("${");
    for (i, step) in steps.iter().enumerate() {
        match step {
            TraversalStep::Name(name) => {
                if i > 0 {
                    out.push('.');
                }
                out.push_str(name);
            }
            TraversalStep::Key(key) => {
                out.push_str(&format!("[\"{}\"]", key.replace('\\', "\\\\").replace('"', "\\\"")))
            }
            TraversalStep::Number(number) => out.push_str(&format!("[{number}]")),
        }
    }
    out.push('}');
    out
}
