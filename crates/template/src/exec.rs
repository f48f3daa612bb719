//! Rendering: walks the tree with a value.

use crate::builtin::{self, CallError};
use crate::parse::{Command, Kind, List, Node, Operand, Pipe, Place};
use crate::show::{show, truth, type_name};
use crate::{MAX_CALLS, MAX_OUTPUT_BYTES, MAX_STEPS, Missing, Options, TemplateError};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt::Display;
use std::rc::Rc;

/// A value, or none where a field is missing.
type Held = Option<Rc<Value>>;

/// The longest quotation of the text in a message, characters.
const MAX_QUOTED: usize = 20;

/// How a body ended.
#[derive(PartialEq, Eq)]
enum Flow {
    Next,
    Break,
    Continue,
}

struct State<'s, 'f> {
    options: &'s Options<'f>,
    bodies: &'s BTreeMap<String, List>,
    out: String,
    /// The template whose body is being written, for messages.
    name: String,
    variables: Vec<(String, Held)>,
    calls: usize,
    steps: usize,
}

/// Writes the body of the empty name.
pub fn render(options: &Options<'_>, bodies: &BTreeMap<String, List>, data: &Value) -> Result<String, TemplateError> {
    // Without data a field is a missing one.
    let data = (!data.is_null()).then(|| Rc::new(data.clone()));
    let mut state = State {
        options,
        bodies,
        out: String::new(),
        name: options.name.to_string(),
        variables: vec![(String::new(), data.clone())],
        calls: 0,
        steps: 0,
    };
    if let Some(list) = bodies.get("") {
        state.list(list, &data)?;
    }
    Ok(state.out)
}

/// The commands of a pipe without its variables.
fn shown_commands(pipe: &Pipe) -> String {
    pipe.commands.iter().map(ToString::to_string).collect::<Vec<_>>().join(" | ")
}

/// Where messages about the value of a pipe point: its last command.
fn place_of(pipe: &Pipe) -> Place {
    let last = pipe.commands.last().and_then(|c| c.operands.first());
    last.map(|o| o.place).unwrap_or(pipe.place)
}

impl<'s> State<'s, '_> {
    fn fault(&self, place: Place, what: &dyn Display, why: &str) -> TemplateError {
        let mut quoted: String = what.to_string();
        if !quoted.starts_with("{{") && quoted.chars().count() > MAX_QUOTED {
            quoted = quoted.chars().take(MAX_QUOTED).collect::<String>() + "...";
        }
        let (file, name) = (self.options.name, &self.name);
        TemplateError(format!(
            "template: {file}:{}:{}: executing {name:?} at <{quoted}>: {why}",
            place.line, place.column
        ))
    }

    /// Counts work; an end to it is better than none.
    fn charge(&mut self, cost: usize, place: Place) -> Result<(), TemplateError> {
        self.steps = self.steps.saturating_add(cost);
        if self.steps > MAX_STEPS {
            return Err(self.fault(place, &"...", &format!("more than {MAX_STEPS} steps")));
        }
        Ok(())
    }

    fn write(&mut self, text: &str, place: Place) -> Result<(), TemplateError> {
        if self.out.len() + text.len() > MAX_OUTPUT_BYTES {
            return Err(self.fault(place, &"...", &format!("more than {MAX_OUTPUT_BYTES} bytes of output")));
        }
        self.out.push_str(text);
        Ok(())
    }

    fn list(&mut self, list: &'s List, dot: &Held) -> Result<Flow, TemplateError> {
        for node in list {
            let flow = self.node(node, dot)?;
            if flow != Flow::Next {
                return Ok(flow);
            }
        }
        Ok(Flow::Next)
    }

    /// A body with its own variables.
    fn scoped(&mut self, list: &'s List, dot: &Held) -> Result<Flow, TemplateError> {
        let mark = self.variables.len();
        let flow = self.list(list, dot)?;
        self.variables.truncate(mark);
        Ok(flow)
    }

    fn node(&mut self, node: &'s Node, dot: &Held) -> Result<Flow, TemplateError> {
        match node {
            Node::Text(text) => {
                self.charge(1, Place::default())?;
                self.write(text, Place::default())?;
            }
            Node::Action(pipe) => {
                let value = self.pipe(pipe, dot)?;
                if pipe.variables.is_empty() {
                    let text = show(value.as_deref().unwrap_or(&Value::Null));
                    self.write(&text, pipe.place)?;
                }
            }
            Node::If { pipe, then, otherwise } => {
                let mark = self.variables.len();
                let value = self.pipe(pipe, dot)?;
                let chosen = if value.as_deref().is_some_and(truth) { then } else { otherwise };
                let flow = self.scoped(chosen, dot)?;
                self.variables.truncate(mark);
                return Ok(flow);
            }
            Node::With { pipe, then, otherwise } => {
                let mark = self.variables.len();
                let value = self.pipe(pipe, dot)?;
                let flow = if value.as_deref().is_some_and(truth) {
                    self.scoped(then, &value)?
                } else {
                    self.scoped(otherwise, dot)?
                };
                self.variables.truncate(mark);
                return Ok(flow);
            }
            Node::Range { pipe, body, otherwise } => return self.range(pipe, body, otherwise, dot),
            Node::Template { name, pipe, place } => self.template(name, pipe.as_ref(), *place, dot)?,
            Node::Break => return Ok(Flow::Break),
            Node::Continue => return Ok(Flow::Continue),
        }
        Ok(Flow::Next)
    }

    fn range(
        &mut self,
        pipe: &'s Pipe,
        body: &'s List,
        otherwise: &'s List,
        dot: &Held,
    ) -> Result<Flow, TemplateError> {
        let mark = self.variables.len();
        let value = self.pipe_value(pipe, dot)?;
        // The variables exist before the first round, so that they outlive it no more than the range.
        if !pipe.assign {
            for name in &pipe.variables {
                self.variables.push((name.clone(), None));
            }
        }
        let rounds = self.rounds(value.as_deref(), pipe)?;
        let mut ended = Flow::Next;
        if rounds.is_empty() {
            ended = self.scoped(otherwise, dot)?;
        }
        for (key, item) in rounds {
            self.charge(1, pipe.place)?;
            let (key, item) = (Some(Rc::new(key)), Some(Rc::new(item)));
            match pipe.variables.as_slice() {
                [only] => self.set_known(pipe, only, item.clone())?,
                [first, second] => {
                    self.set_known(pipe, first, key)?;
                    self.set_known(pipe, second, item.clone())?;
                }
                _ => {}
            }
            if self.scoped(body, &item)? == Flow::Break {
                break;
            }
        }
        self.variables.truncate(mark);
        Ok(ended)
    }

    /// What a range goes over: keys and values.
    fn rounds(&mut self, value: Option<&Value>, pipe: &Pipe) -> Result<Vec<(Value, Value)>, TemplateError> {
        match value {
            None | Some(Value::Null) => Ok(Vec::new()),
            Some(Value::Array(items)) => {
                self.charge(items.len(), pipe.place)?;
                Ok(items.iter().enumerate().map(|(at, item)| (Value::from(at), item.clone())).collect())
            }
            Some(Value::Object(members)) => {
                self.charge(members.len(), pipe.place)?;
                let mut sorted: Vec<_> = members.iter().map(|(k, v)| (Value::from(k.clone()), v.clone())).collect();
                sorted.sort_by(|a, b| a.0.as_str().cmp(&b.0.as_str()));
                Ok(sorted)
            }
            Some(Value::Number(n)) if n.is_i64() || n.is_u64() => {
                let count = n.as_i64().unwrap_or(i64::MAX);
                if pipe.variables.len() > 1 {
                    return Err(self.fault(
                        place_of(pipe),
                        &shown_commands(pipe),
                        &format!("can't use {count} to iterate over more than one variable"),
                    ));
                }
                self.charge(usize::try_from(count).unwrap_or(0), pipe.place)?;
                Ok((0..count).map(|at| (Value::from(at), Value::from(at))).collect())
            }
            Some(other) => Err(self.fault(
                place_of(pipe),
                &shown_commands(pipe),
                &format!("range can't iterate over {}", show(other)),
            )),
        }
    }

    fn template(&mut self, name: &str, pipe: Option<&'s Pipe>, place: Place, dot: &Held) -> Result<(), TemplateError> {
        let what = match pipe {
            Some(pipe) => format!("{{{{template {name:?} {pipe}}}}}"),
            None => format!("{{{{template {name:?}}}}}"),
        };
        let Some(list) = self.bodies.get(name).filter(|_| !name.is_empty()) else {
            return Err(self.fault(place, &what, &format!("template {name:?} not defined")));
        };
        let value = match pipe {
            Some(pipe) => self.pipe(pipe, dot)?,
            None => None,
        };
        if self.calls >= MAX_CALLS {
            return Err(self.fault(place, &what, &format!("exceeded maximum template depth ({MAX_CALLS})")));
        }
        self.calls += 1;
        let outer = std::mem::replace(&mut self.variables, vec![(String::new(), value.clone())]);
        let name = std::mem::replace(&mut self.name, name.to_string());
        self.list(list, &value)?;
        self.name = name;
        self.variables = outer;
        self.calls -= 1;
        Ok(())
    }

    /// Gives a variable another value; false when there is none of that name.
    fn set(&mut self, name: &str, value: Held) -> bool {
        let known = self.variables.iter_mut().rev().find(|(n, _)| n == name);
        known.map(|known| known.1 = value).is_some()
    }

    fn set_known(&mut self, pipe: &Pipe, name: &str, value: Held) -> Result<(), TemplateError> {
        if self.set(name, value) { Ok(()) } else { Err(self.undefined(pipe, name)) }
    }

    fn undefined(&self, pipe: &Pipe, name: &str) -> TemplateError {
        let last = pipe.commands.last().map(|c| c.place).unwrap_or(pipe.place);
        self.fault(last, &shown_commands(pipe), &format!("undefined variable: ${name}"))
    }

    /// The value of a pipe; its variables take it.
    fn pipe(&mut self, pipe: &'s Pipe, dot: &Held) -> Result<Held, TemplateError> {
        let value = self.pipe_value(pipe, dot)?;
        for name in &pipe.variables {
            if pipe.assign {
                if !self.set(name, value.clone()) {
                    return Err(self.undefined(pipe, name));
                }
            } else {
                self.variables.push((name.clone(), value.clone()));
            }
        }
        Ok(value)
    }

    fn pipe_value(&mut self, pipe: &'s Pipe, dot: &Held) -> Result<Held, TemplateError> {
        let mut value: Option<Held> = None;
        for command in &pipe.commands {
            value = Some(self.command(command, dot, value)?);
        }
        Ok(value.flatten())
    }

    /// A command with the value of the one before as its last argument.
    fn command(&mut self, command: &'s Command, dot: &Held, last: Option<Held>) -> Result<Held, TemplateError> {
        self.charge(1, command.place)?;
        let Some((first, rest)) = command.operands.split_first() else { return Ok(None) };
        if let Kind::Function(name) = &first.kind {
            return self.call(name, command, rest, dot, last);
        }
        let extra = !rest.is_empty() || last.is_some();
        match &first.kind {
            Kind::Nil => Err(self.fault(first.place, first, "nil is not a command")),
            Kind::Field(names) if extra => {
                let name = names.last().map(String::as_str).unwrap_or_default();
                self.operand(first, dot)?;
                Err(self.fault(first.place, first, &format!("{name} is not a method but has arguments")))
            }
            Kind::Variable(..)
            | Kind::Chain(..)
            | Kind::Bool(_)
            | Kind::Number(..)
            | Kind::Text(_)
            | Kind::Dot
            | Kind::Pipe(_)
                if extra =>
            {
                Err(self.fault(first.place, first, &format!("can't give argument to non-function {first}")))
            }
            _ => self.operand(first, dot),
        }
    }

    fn operand(&mut self, operand: &'s Operand, dot: &Held) -> Result<Held, TemplateError> {
        self.charge(1, operand.place)?;
        match &operand.kind {
            Kind::Dot => Ok(dot.clone()),
            Kind::Nil => Ok(Some(Rc::new(Value::Null))),
            Kind::Bool(b) => Ok(Some(Rc::new(Value::Bool(*b)))),
            Kind::Number(value, _) => Ok(Some(Rc::new(value.clone()))),
            Kind::Text(text) => Ok(Some(Rc::new(Value::String(text.clone())))),
            Kind::Field(names) => self.fields(operand, dot.clone(), names),
            Kind::Variable(name, names) => {
                let value = self.variables.iter().rev().find(|(n, _)| n == name).and_then(|(_, v)| v.clone());
                self.fields(operand, value, names)
            }
            Kind::Chain(inner, names) => {
                let value = self.operand(inner, dot)?;
                self.fields(operand, value, names)
            }
            Kind::Pipe(pipe) => self.pipe(pipe, dot),
            Kind::Function(name) => {
                let name = name.clone();
                let command = Command { operands: Vec::new(), place: operand.place };
                self.finish_call(&name, &command, operand, Vec::new())
            }
        }
    }

    fn fields(&mut self, operand: &Operand, from: Held, names: &[String]) -> Result<Held, TemplateError> {
        if names.is_empty() {
            return Ok(from);
        }
        let Some(start) = from else {
            return match (self.options.missing, names.first()) {
                (Missing::Error, Some(name)) => {
                    Err(self.fault(operand.place, operand, &format!("nil data; no entry for key {name:?}")))
                }
                _ => Ok(None),
            };
        };
        let mut now: &Value = &start;
        for name in names {
            now = match now {
                Value::Object(members) => match members.get(name) {
                    Some(next) => next,
                    None if self.options.missing == Missing::NoValue => return Ok(None),
                    None => {
                        let why = format!("can't evaluate field {name} in type object");
                        return Err(self.fault(operand.place, operand, &why));
                    }
                },
                Value::Null => {
                    let why = format!("nil pointer evaluating interface {{}}.{name}");
                    return Err(self.fault(operand.place, operand, &why));
                }
                _ => {
                    let why = format!("can't evaluate field {name} in type interface {{}}");
                    return Err(self.fault(operand.place, operand, &why));
                }
            };
        }
        let size = match now {
            Value::Array(items) => items.len(),
            Value::Object(members) => members.len(),
            _ => 1,
        };
        let found = now.clone();
        self.charge(size, operand.place)?;
        Ok(Some(Rc::new(found)))
    }

    fn call(
        &mut self,
        name: &str,
        command: &'s Command,
        rest: &'s [Operand],
        dot: &Held,
        last: Option<Held>,
    ) -> Result<Held, TemplateError> {
        if matches!(name, "and" | "or") {
            return self.short_circuit(name, command, rest, dot, last);
        }
        let mut arguments = Vec::with_capacity(rest.len() + 1);
        for operand in rest {
            arguments.push(self.operand(operand, dot)?);
        }
        arguments.extend(last);
        self.finish_call(name, command, command, arguments)
    }

    fn finish_call(
        &mut self,
        name: &str,
        command: &Command,
        what: &dyn Display,
        arguments: Vec<Held>,
    ) -> Result<Held, TemplateError> {
        let nothing = Rc::new(Value::Null);
        let arguments: Vec<Rc<Value>> =
            arguments.into_iter().map(|a| a.unwrap_or_else(|| Rc::clone(&nothing))).collect();
        let given: Vec<&Value> = arguments.iter().map(Rc::as_ref).collect();
        if let ("printf", Some(other)) = (name, given.first().filter(|v| !v.is_string())) {
            let (place, text) = match command.operands.get(1) {
                Some(operand) => (operand.place, operand.to_string()),
                None => (command.place, what.to_string()),
            };
            return Err(self.fault(place, &text, &format!("expected string; found {}", show(other))));
        }
        if let ("call", Some(other)) = (name, given.first().filter(|v| !v.is_null())) {
            let text = command.operands.get(1).map_or_else(|| show(other), ToString::to_string);
            let why = format!("error calling call: non-function {text} of type {}", type_name(other));
            return Err(self.fault(command.place, what, &why));
        }
        if builtin::has(name) {
            return match builtin::call(name, &given) {
                Ok(value) => Ok(Some(Rc::new(value))),
                Err(CallError::Usage(why)) => Err(self.fault(command.place, &name, &why)),
                Err(CallError::Failed(why)) => {
                    Err(self.fault(command.place, what, &format!("error calling {name}: {why}")))
                }
            };
        }
        let owned: Vec<Value> = given.into_iter().cloned().collect();
        match self.options.functions.invoke(name, &owned) {
            Some(Ok(value)) => Ok(Some(Rc::new(value))),
            Some(Err(CallError::Usage(why))) => Err(self.fault(command.place, what, &why)),
            Some(Err(CallError::Failed(why))) => {
                Err(self.fault(command.place, what, &format!("error calling {name}: {why}")))
            }
            None => Err(self.fault(command.place, what, &format!("{name:?} is not a defined function"))),
        }
    }

    /// `and` and `or` evaluate no more than they need.
    fn short_circuit(
        &mut self,
        name: &str,
        command: &'s Command,
        rest: &'s [Operand],
        dot: &Held,
        last: Option<Held>,
    ) -> Result<Held, TemplateError> {
        if rest.is_empty() && last.is_none() {
            return Err(self.fault(
                command.place,
                &name,
                &format!("wrong number of args for {name}: want at least 1 got 0"),
            ));
        }
        let decides = |value: &Held| value.as_deref().is_some_and(truth) == (name == "or");
        let mut value = None;
        for operand in rest {
            value = self.operand(operand, dot)?;
            if decides(&value) {
                return Ok(value);
            }
        }
        Ok(last.unwrap_or(value))
    }
}
