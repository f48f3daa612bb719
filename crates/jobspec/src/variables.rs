//! `variable`, `variables` and `locals`: types, values from outside, defaults, validation.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use crate::content::{BlockItem, BlockShape, Reader, Shape};
use crate::diag::{Diagnostic, Source, Span};
use crate::eval::convert::{self, convert};
use crate::eval::{Evaluator, Failed, Scope, Type, Unknown, Value};
use crate::hcl::{self, Expr, ExprKind, Ident, ObjectKey, Options, TraversalStep};

/// Most variables and locals in one file.
pub const MAX_VARIABLES: usize = 1_000;
/// Most names of a circle of locals in one message.
const MAX_CIRCLE_SHOWN: usize = 20;
/// Rounds in which locals that refer to each other are resolved.
const MAX_ROUNDS: usize = 100;

/// Values for variables, lowest precedence first: environment, files in order, flags in order.
#[derive(Clone, Debug, Default)]
pub struct Inputs {
    /// `NOMAD_VAR_<name>`: name without the prefix, and value. Names nobody declared are ignored.
    pub env: Vec<(String, String)>,
    /// Variable files: name and text.
    pub files: Vec<(String, String)>,
    /// `-var name=value`.
    pub flags: Vec<(String, String)>,
    /// Whether a value for a variable that nobody declared is an error; else it is a warning.
    pub strict: bool,
}

/// A declared variable.
struct Variable {
    span: Span,
    kind: Option<Type>,
    default: Option<(Value, Span)>,
    checks: Vec<Check>,
    /// Its declaration has a fault, so that a missing or unsuitable value is no other.
    faulty: bool,
}

/// A `validation` block.
struct Check {
    condition: Expr,
    message: Option<Expr>,
    header: Span,
}

/// A value from outside and the place it is from.
struct Given {
    value: Value,
    at: Option<(Arc<Source>, Span)>,
}

/// The blocks that declare names.
#[derive(Default)]
pub(crate) struct Declarations<'b> {
    pub variables: Vec<BlockItem<'b>>,
    pub shorthand: Vec<BlockItem<'b>>,
    pub locals: Vec<BlockItem<'b>>,
}

/// Evaluates all declarations and gives the scope of the job: `var` and `local`.
pub(crate) fn scope(
    evaluator: &mut Evaluator<'_>,
    source: &Arc<Source>,
    declared: &Declarations<'_>,
    inputs: &Inputs,
) -> Scope {
    let variables = declare(evaluator, source, declared);
    let given = collect(evaluator, source, &variables, inputs);
    let mut values = BTreeMap::new();
    for (name, variable) in &variables {
        let value = if variable.faulty { None } else { resolve(evaluator, source, name, variable, given.get(name)) };
        match value {
            Some(value) => {
                values.insert(name.clone(), value);
            }
            None => evaluator.unresolved("var", name),
        }
    }
    let scope = Scope::default().with("var", Value::object(values));
    locals(evaluator, source, &declared.locals, &scope)
}

fn declare(
    evaluator: &mut Evaluator<'_>,
    source: &Arc<Source>,
    declared: &Declarations<'_>,
) -> BTreeMap<String, Variable> {
    let mut out: BTreeMap<String, Variable> = BTreeMap::new();
    evaluator.set_unknown(Unknown::Refused);
    for block in &declared.variables {
        let Some(label) = block.labels.first() else { continue };
        let variable = variable_block(evaluator, source, block);
        insert(evaluator, source, &mut out, label, variable);
    }
    for block in &declared.shorthand {
        let mut reader = Reader { source, evaluator };
        let arguments = reader.any_arguments(&block.body);
        for argument in arguments {
            let value = evaluator.evaluate(source, &argument.expr, &Scope::default());
            let default = value.ok().map(|v| (v, argument.expr.span));
            let variable =
                Variable { span: argument.name.span, kind: None, default, checks: Vec::new(), faulty: false };
            insert(evaluator, source, &mut out, &argument.name, variable);
        }
    }
    evaluator.set_unknown(Unknown::Literal);
    out
}

fn insert(
    evaluator: &mut Evaluator<'_>,
    source: &Arc<Source>,
    out: &mut BTreeMap<String, Variable>,
    label: &Ident,
    variable: Variable,
) {
    let fault = if !hcl::is_identifier(&label.name) {
        Some((
            "Invalid variable name",
            "A name must start with a letter or underscore and may contain only letters, digits, underscores, and \
             dashes."
                .to_owned(),
        ))
    } else if out.len() >= MAX_VARIABLES {
        Some(("Too many variables", format!("A job file may declare at most {MAX_VARIABLES} variables.")))
    } else {
        out.get(&*label.name).map(|first| {
            let at = source.position(first.span.start);
            let detail = format!("The variable \"{}\" was declared before, in line {}.", label.name, at.line);
            ("Duplicate variable", detail)
        })
    };
    match fault {
        Some((summary, detail)) => {
            let _: Result<(), Failed> = evaluator.fail(source, label.span, summary, detail);
        }
        None => {
            out.insert(label.name.to_string(), variable);
        }
    }
}

fn variable_block(evaluator: &mut Evaluator<'_>, source: &Arc<Source>, block: &BlockItem<'_>) -> Variable {
    let shape = Shape {
        attributes: vec!["type", "default", "description"],
        blocks: vec![BlockShape { name: "validation", labels: &[] }],
        dynamic: false,
    };
    let scope = Scope::default();
    let faults = evaluator.diagnostics.len();
    let content = Reader { source, evaluator }.content(&block.body, &shape, &scope);
    let mut variable = Variable { span: block.header, kind: None, default: None, checks: Vec::new(), faulty: false };
    for argument in &content.arguments {
        match &*argument.name.name {
            "type" => variable.kind = type_argument(evaluator, source, &argument.expr),
            "default" => {
                let value = evaluator.evaluate(source, &argument.expr, &scope).ok();
                variable.default = value.map(|v| (v, argument.expr.span));
            }
            _ => {
                let _ = evaluator.evaluate(source, &argument.expr, &scope);
            }
        }
    }
    if let (Some(kind), Some((value, span))) = (&variable.kind, &variable.default) {
        match convert(value, kind) {
            Ok(value) => variable.default = Some((value, *span)),
            Err(why) => {
                let detail =
                    format!("This default value is not compatible with the variable's type constraint: {why}.");
                let span = *span;
                let _: Result<(), Failed> = evaluator.fail(source, span, "Invalid default value for variable", detail);
            }
        }
    }
    variable.faulty = evaluator.diagnostics.len() > faults;
    let name = block.labels.first().map_or("", |l| &l.name);
    for validation in &content.blocks {
        variable.checks.extend(validation_block(evaluator, source, validation, name));
    }
    variable
}

fn validation_block(
    evaluator: &mut Evaluator<'_>,
    source: &Arc<Source>,
    block: &BlockItem<'_>,
    name: &str,
) -> Option<Check> {
    let shape = Shape { attributes: vec!["condition", "error_message"], ..Shape::default() };
    let content = Reader { source, evaluator }.content(&block.body, &shape, &Scope::default());
    let mut condition = None;
    let mut message = None;
    for argument in content.arguments {
        let expr = argument.expr.into_owned();
        if &*argument.name.name == "condition" { condition = Some(expr) } else { message = Some(expr) }
    }
    for (present, wanted) in [(condition.is_some(), "condition"), (message.is_some(), "error_message")] {
        if !present {
            let detail = format!("The argument \"{wanted}\" is required, but no definition was found.");
            let _: Result<(), Failed> =
                evaluator.fail(source, block.body.missing.head(), "Missing required argument", detail);
        }
    }
    let condition = condition?;
    let mut uses = Uses { name, own: false, foreign: Vec::new() };
    uses.walk(&condition);
    for span in &uses.foreign {
        let detail =
            format!("The condition for variable \"{name}\" can only refer to the variable itself, using var.{name}.");
        let _: Result<(), Failed> = evaluator.fail(source, *span, "Invalid reference in variable validation", detail);
    }
    if !uses.own {
        let detail =
            format!("The condition for variable \"{name}\" must refer to var.{name} in order to test incoming values.");
        let _: Result<(), Failed> =
            evaluator.fail(source, condition.span, "Invalid variable validation condition", detail);
    }
    (uses.own && uses.foreign.is_empty()).then_some(Check { condition, message, header: block.header })
}

/// Which variables a condition refers to.
struct Uses<'n> {
    name: &'n str,
    own: bool,
    foreign: Vec<Span>,
}

impl Uses<'_> {
    fn walk(&mut self, expr: &Expr) {
        if let Some(steps) = expr.traversal() {
            match steps.as_slice() {
                [TraversalStep::Name("var"), TraversalStep::Name(name), ..] if *name == self.name => self.own = true,
                [TraversalStep::Name("var" | "local"), ..] => self.foreign.push(expr.span),
                _ => {}
            }
            return;
        }
        expr.each_child(&mut |child| self.walk(child));
    }
}

fn type_argument(evaluator: &mut Evaluator<'_>, source: &Arc<Source>, expr: &Expr) -> Option<Type> {
    // In JSON a type is written as a string that holds the expression.
    if let ExprKind::String(text) = &*expr.kind {
        let inner = Source::new(source.name(), &**text);
        let span = expr.span;
        let parsed = hcl::parse_expression(&inner).ok()?;
        let mut quiet = Evaluator::new(&crate::eval::NoHost);
        return match type_expression(&mut quiet, &inner, &parsed, false) {
            Ok(kind) => Some(kind),
            Err(Failed) => {
                let detail = quiet.diagnostics.iter().next().map(|d| d.detail.clone()).unwrap_or_default();
                let _: Result<(), Failed> = evaluator.fail(source, span, "Invalid type specification", detail);
                None
            }
        };
    }
    type_expression(evaluator, source, expr, false).ok()
}

/// The type an expression spells: `string`, `list(number)`, `object({ a = bool })`.
pub(crate) fn type_expression(
    evaluator: &mut Evaluator<'_>,
    source: &Arc<Source>,
    expr: &Expr,
    any: bool,
) -> Result<Type, Failed> {
    const SUMMARY: &str = "Invalid type specification";
    match &*expr.kind {
        ExprKind::Name(name) => match &**name {
            "string" => Ok(Type::String),
            "number" => Ok(Type::Number),
            "bool" => Ok(Type::Bool),
            "any" if any => Ok(Type::Any),
            "any" => evaluator.fail(
                source,
                expr.span,
                SUMMARY,
                "The keyword \"any\" cannot be used in this type specification: an exact type is required. Leave the \
                 type out to accept any.",
            ),
            "list" | "set" | "map" => {
                let detail = format!("The {name} type constructor requires one argument specifying the element type.");
                evaluator.fail(source, expr.span, SUMMARY, detail)
            }
            other => {
                let detail = format!("The keyword \"{other}\" is not a valid type specification.");
                evaluator.fail(source, expr.span, SUMMARY, detail)
            }
        },
        ExprKind::Call(call) => {
            let arg = call.args.first();
            match (&*call.name.name, arg.map(|a| (&*a.kind, a))) {
                ("list" | "set" | "map", Some((_, arg))) if call.args.len() == 1 => {
                    let element = Box::new(type_expression(evaluator, source, arg, any)?);
                    Ok(match &*call.name.name {
                        "list" => Type::List(element),
                        "set" => Type::Set(element),
                        _ => Type::Map(element),
                    })
                }
                ("tuple", Some((ExprKind::Tuple(items), _))) => {
                    let kinds: Result<Vec<Type>, Failed> =
                        items.iter().map(|i| type_expression(evaluator, source, i, any)).collect();
                    kinds.map(Type::Tuple)
                }
                ("object", Some((ExprKind::Object(items), _))) => object_type(evaluator, source, items, any),
                ("optional", _) => evaluator.fail(
                    source,
                    expr.span.head().to(call.name.span),
                    SUMMARY,
                    "Optional attribute modifier is only for type constraints, not for exact types.",
                ),
                (other, _) => {
                    let detail = format!("\"{other}\" is not a type constructor with these arguments.");
                    evaluator.fail(source, call.name.span, SUMMARY, detail)
                }
            }
        }
        _ => evaluator.fail(source, expr.span, SUMMARY, "A type specification is either a primitive type keyword (bool, number, string) or a complex type constructor call, like list(string)."),
    }
}

fn object_type(
    evaluator: &mut Evaluator<'_>,
    source: &Arc<Source>,
    items: &[(ObjectKey, Expr)],
    any: bool,
) -> Result<Type, Failed> {
    let mut kinds = BTreeMap::new();
    let mut result = Ok(());
    for (key, kind) in items {
        let name = match key {
            ObjectKey::Name(name) => name.name.to_string(),
            ObjectKey::Expr(expr) => match &*expr.kind {
                ExprKind::String(text) => text.to_string(),
                _ => {
                    return evaluator.fail(
                        source,
                        expr.span,
                        "Invalid type specification",
                        "Object constructor map keys must be attribute names.",
                    );
                }
            },
        };
        match type_expression(evaluator, source, kind, any) {
            Ok(kind) => {
                kinds.insert(name, kind);
            }
            Err(failed) => result = Err(failed),
        }
    }
    result.map(|()| Type::Object(kinds))
}

/// Values from outside, the last source winning.
fn collect(
    evaluator: &mut Evaluator<'_>,
    source: &Arc<Source>,
    variables: &BTreeMap<String, Variable>,
    inputs: &Inputs,
) -> BTreeMap<String, Given> {
    let mut given = BTreeMap::new();
    for (name, text) in &inputs.env {
        if let Some(variable) = variables.get(name) {
            let label = format!("environment variable NOMAD_VAR_{name}");
            given.extend(literal(evaluator, &label, text, variable).map(|g| (name.clone(), g)));
        }
    }
    for (file, text) in &inputs.files {
        variable_file(evaluator, file, text, variables, inputs.strict, &mut given);
    }
    for (name, text) in &inputs.flags {
        match variables.get(name) {
            Some(variable) => {
                let label = format!("-var {name}");
                given.extend(literal(evaluator, &label, text, variable).map(|g| (name.clone(), g)));
            }
            None => {
                let detail = format!(
                    "A \"{name}\" variable was passed in the command line but was not found in known variables. To \
                     declare variable \"{name}\", place this block in your job file: variable \"{name}\" {{}}"
                );
                undeclared(evaluator, source, None, "Undefined -var variable", detail, inputs.strict);
            }
        }
    }
    given
}

fn undeclared(
    evaluator: &mut Evaluator<'_>,
    _source: &Arc<Source>,
    at: Option<(Arc<Source>, Span)>,
    summary: &str,
    detail: String,
    strict: bool,
) {
    let mut diagnostic = Diagnostic::nowhere(summary, detail);
    diagnostic.at = at;
    if !strict {
        diagnostic.severity = crate::diag::Severity::Warning;
    }
    evaluator.diagnostics.push(diagnostic);
}

/// A value given as text: taken as it is for texts, numbers and variables without a type, else an expression.
fn literal(evaluator: &mut Evaluator<'_>, label: &str, text: &str, variable: &Variable) -> Option<Given> {
    let source = Source::new(label, text);
    let whole = Span::new(0, text.len());
    if matches!(variable.kind, None | Some(Type::String | Type::Number)) {
        return Some(Given { value: Value::string(text), at: Some((source, whole)) });
    }
    let expr = match hcl::parse_expression(&source) {
        Ok(expr) => expr,
        Err(messages) => {
            evaluator.diagnostics.append(messages);
            return None;
        }
    };
    evaluator.set_unknown(Unknown::Refused);
    let value = evaluator.evaluate(&source, &expr, &Scope::default());
    evaluator.set_unknown(Unknown::Literal);
    value.ok().map(|value| Given { value, at: Some((source, whole)) })
}

fn variable_file(
    evaluator: &mut Evaluator<'_>,
    name: &str,
    text: &str,
    variables: &BTreeMap<String, Variable>,
    strict: bool,
    given: &mut BTreeMap<String, Given>,
) {
    let source = Source::new(name, text);
    let parsed =
        if name.ends_with(".json") { hcl::parse_json(&source) } else { hcl::parse(&source, Options::default()) };
    let file = match parsed {
        Ok(file) => file,
        Err(messages) => return evaluator.diagnostics.append(messages),
    };
    if let hcl::BodyKind::Native { blocks, .. } = &file.body.kind
        && let Some(block) = blocks.iter().find(|b| &*b.kind.name == "variable")
    {
        let label = block.labels.first().map_or("", |l| &l.name);
        let detail = format!(
            "A variable file assigns values; it cannot declare variables. To declare variable \"{label}\", place \
                 this block in the job file. To set its value, write {label} = <value>."
        );
        let _: Result<(), Failed> =
            evaluator.fail(&source, block.header, "Variable declaration in a variable file", detail);
        return;
    }
    let arguments = Reader { source: &source, evaluator }.any_arguments(&file.body);
    evaluator.set_unknown(Unknown::Refused);
    for argument in arguments {
        let key = argument.name.name.to_string();
        let value = evaluator.evaluate(&source, &argument.expr, &Scope::default());
        let at = Some((Arc::clone(&source), argument.expr.span));
        if variables.contains_key(&key) {
            given.extend(value.ok().map(|value| (key, Given { value, at })));
        } else {
            let detail = format!(
                "A \"{key}\" variable was set but was not found in known variables. To declare variable \"{key}\", \
                 place this block in your job files: variable \"{key}\" {{}}"
            );
            undeclared(
                evaluator,
                &source,
                Some((Arc::clone(&source), argument.name.span)),
                "Undefined variable",
                detail,
                strict,
            );
        }
    }
    evaluator.set_unknown(Unknown::Literal);
}

/// The value of a variable, checked.
fn resolve(
    evaluator: &mut Evaluator<'_>,
    source: &Arc<Source>,
    name: &str,
    variable: &Variable,
    given: Option<&Given>,
) -> Option<Value> {
    let (value, at) = match given {
        Some(given) => (given.value.clone(), given.at.clone()),
        None => match &variable.default {
            Some((value, span)) => (value.clone(), Some((Arc::clone(source), *span))),
            None => {
                let detail = format!(
                    "A used variable must be set or have a default value. Set it with -var '{name}=…', in a variable \
                     file, or as NOMAD_VAR_{name}."
                );
                let summary = format!("Unset variable \"{name}\"");
                let _: Result<(), Failed> = evaluator.fail(source, variable.span, &summary, detail);
                return None;
            }
        },
    };
    let value = match variable.kind.as_ref().map(|kind| convert(&value, kind)) {
        None => value,
        Some(Ok(value)) => value,
        Some(Err(why)) => {
            let detail = format!("The value given for variable \"{name}\" does not fit its type: {why}.");
            evaluator.diagnostics.push(placed("Invalid value for variable", detail, at));
            return None;
        }
    };
    let scope = Scope::default().with("var", Value::object(BTreeMap::from([(name.to_owned(), value.clone())])));
    for check in &variable.checks {
        validate(evaluator, source, check, &scope, given.is_some(), &at);
    }
    Some(value)
}

fn placed(summary: &str, detail: String, at: Option<(Arc<Source>, Span)>) -> Diagnostic {
    Diagnostic { at, ..Diagnostic::nowhere(summary, detail) }
}

fn validate(
    evaluator: &mut Evaluator<'_>,
    source: &Arc<Source>,
    check: &Check,
    scope: &Scope,
    given: bool,
    at: &Option<(Arc<Source>, Span)>,
) {
    // Both are evaluated by the caller's evaluator, so its limits hold; files stay what the caller allows.
    let Ok(result) = evaluator.evaluate(source, &check.condition, scope) else { return };
    let held = match convert::to_bool(&result) {
        Ok(held) => held,
        Err(why) => {
            let detail = format!("Invalid validation condition result value: {why}.");
            let _: Result<(), Failed> =
                evaluator.fail(source, check.condition.span, "Invalid variable validation result", detail);
            return;
        }
    };
    let message = check.message.as_ref().map(|m| (evaluator.evaluate(source, m, scope), m.span));
    let text = match message {
        Some((Ok(Value::String(text)), _)) if !text.trim().is_empty() => text,
        Some((Ok(_), span)) => {
            let _: Result<(), Failed> = evaluator.fail(
                source,
                span,
                "Invalid validation error message",
                "The error message must be a text that is not blank.",
            );
            return;
        }
        _ => return,
    };
    if held {
        return;
    }
    let from = source.position(check.header.start);
    let to = source.position(check.header.end);
    let detail = format!(
        "{text}\n\nThis was checked by the validation rule at {}:{},{}-{}.",
        source.name(),
        from.line,
        from.column,
        to.column
    );
    let summary = if given { "Invalid value for variable" } else { "Invalid value for default variable" };
    evaluator.diagnostics.push(placed(summary, detail, at.clone()));
}

/// Locals may refer to each other in any order: rounds until nothing changes.
fn locals(evaluator: &mut Evaluator<'_>, source: &Arc<Source>, blocks: &[BlockItem<'_>], outer: &Scope) -> Scope {
    // The last definition of a name wins.
    let mut pending: BTreeMap<String, Expr> = BTreeMap::new();
    for block in blocks {
        let arguments = Reader { source, evaluator }.any_arguments(&block.body);
        for argument in arguments {
            if pending.len() >= MAX_VARIABLES {
                let detail = format!("A job file may declare at most {MAX_VARIABLES} locals.");
                let _: Result<(), Failed> = evaluator.fail(source, argument.name.span, "Too many locals", detail);
                break;
            }
            pending.insert(argument.name.name.to_string(), argument.expr.into_owned());
        }
    }
    let mut known: BTreeMap<String, Value> = BTreeMap::new();
    for _ in 0..MAX_ROUNDS {
        let before = pending.len();
        for (name, expr) in std::mem::take(&mut pending) {
            if expr.uses_local(&|used| used == name || !known.contains_key(used)) {
                pending.insert(name, expr);
                continue;
            }
            let scope = outer.with("local", Value::object(known.clone()));
            // A fault is recorded; the name stays unknown.
            match evaluator.evaluate(source, &expr, &scope) {
                Ok(value) => {
                    known.insert(name, value);
                }
                Err(Failed) => evaluator.unresolved("local", &name),
            }
        }
        if pending.len() == before {
            break;
        }
    }
    let scope = outer.with("local", Value::object(known));
    // What is left refers in a circle, to something that is left itself, or to something that is not there.
    let uses: BTreeMap<&str, BTreeSet<String>> =
        pending.iter().map(|(name, expr)| (name.as_str(), expr.locals_used(&pending))).collect();
    for circle in circles(&uses) {
        let Some((expr, first)) = circle.last().and_then(|name| pending.get(*name)).zip(circle.first()) else {
            continue;
        };
        let left_out = circle.len().saturating_sub(MAX_CIRCLE_SHOWN);
        let shown = circle.iter().take(MAX_CIRCLE_SHOWN).map(|name| format!("local.{name}"));
        let more = (left_out > 0).then(|| format!("({left_out} more)"));
        let way = shown.chain(more).chain([format!("local.{first}")]).collect::<Vec<_>>().join(" -> ");
        // The peer's message where the circle closes, and what it means.
        let told = evaluator.diagnostics.len();
        let _ = evaluator.evaluate(source, expr, &scope);
        for message in evaluator.diagnostics.since(told) {
            let advice = "Give one of them a value that needs none of the others.";
            message.detail.push_str(&format!(" The value needs itself: {way}. {advice}"));
        }
    }
    for (name, expr) in &pending {
        if uses.get(name.as_str()).is_none_or(BTreeSet::is_empty) {
            // Evaluating says what is missing.
            let _ = evaluator.evaluate(source, expr, &scope);
        }
        evaluator.unresolved("local", name);
    }
    scope
}

/// The circles in which names refer to each other, each once and from its first name on.
fn circles<'a>(uses: &'a BTreeMap<&'a str, BTreeSet<String>>) -> Vec<Vec<&'a str>> {
    let mut found = Vec::new();
    let mut told: BTreeSet<&str> = BTreeSet::new();
    for start in uses.keys().copied() {
        if told.contains(start) {
            continue;
        }
        if let Some(circle) = way_back(uses, start)
            && circle.iter().all(|name| told.insert(name))
        {
            found.push(circle);
        }
    }
    found
}

/// The shortest way from a name back to itself.
fn way_back<'a>(uses: &'a BTreeMap<&'a str, BTreeSet<String>>, start: &'a str) -> Option<Vec<&'a str>> {
    // Names reached, and from which other they were.
    let mut from: BTreeMap<&str, &str> = BTreeMap::new();
    let mut waiting = VecDeque::from([start]);
    while let Some(name) = waiting.pop_front() {
        for used in uses.get(name).into_iter().flatten() {
            if used == start {
                let mut way = vec![name];
                while let Some(before) = way.last().filter(|last| **last != start).and_then(|last| from.get(last)) {
                    way.push(before);
                }
                way.reverse();
                return Some(way);
            }
            if !from.contains_key(used.as_str()) {
                from.insert(used, name);
                waiting.push_back(used);
            }
        }
    }
    None
}

impl Expr {
    /// Names of locals among these that the expression uses.
    fn locals_used(&self, among: &BTreeMap<String, Expr>) -> BTreeSet<String> {
        let used = RefCell::new(BTreeSet::new());
        self.uses_local(&|name| {
            if among.contains_key(name) {
                used.borrow_mut().insert(name.to_string());
            }
            false
        });
        used.into_inner()
    }

    /// Whether the expression uses a local for which `test` holds.
    fn uses_local(&self, test: &dyn Fn(&str) -> bool) -> bool {
        if let Some(steps) = self.traversal()
            && let [TraversalStep::Name("local"), TraversalStep::Name(name), ..] = steps.as_slice()
        {
            return test(name);
        }
        let mut found = false;
        self.each_child(&mut |child| found = found || child.uses_local(test));
        found
    }
}
