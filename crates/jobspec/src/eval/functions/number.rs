//! Functions of numbers.

use num_bigint::BigUint;

use super::{Answer, Args, CallFault, bad, failed};
use crate::eval::value::{Type, Value};
use crate::number::Number;

/// Most numbers `range` makes.
const MAX_RANGE: usize = 1024;

pub(super) fn abs(args: &Args<'_>) -> Answer {
    Ok(Value::Number(args.number(0).abs()))
}

pub(super) fn ceil(args: &Args<'_>) -> Answer {
    Ok(Value::Number(args.number(0).ceil()))
}

pub(super) fn floor(args: &Args<'_>) -> Answer {
    Ok(Value::Number(args.number(0).floor()))
}

fn native(value: f64, name: &str) -> Answer {
    match Number::from_f64(value) {
        Some(number) => Ok(Value::Number(number)),
        None => failed(format!("{name} has no result for these numbers")),
    }
}

pub(super) fn log(args: &Args<'_>) -> Answer {
    let (number, base) = (args.number(0).to_f64(), args.number(1).to_f64());
    native(number.ln() / base.ln(), "log")
}

pub(super) fn pow(args: &Args<'_>) -> Answer {
    native(args.number(0).to_f64().powf(args.number(1).to_f64()), "pow")
}

pub(super) fn signum(args: &Args<'_>) -> Answer {
    Ok(Value::int(args.int(0)?.signum()))
}

fn numbers(args: &Args<'_>) -> Vec<Number> {
    args.all()
        .iter()
        .filter_map(|v| match v {
            Value::Number(n) => Some(n.clone()),
            _ => None,
        })
        .collect()
}

pub(super) fn max(args: &Args<'_>) -> Answer {
    match numbers(args).into_iter().reduce(|a, b| if b.compare(&a).is_gt() { b } else { a }) {
        Some(n) => Ok(Value::Number(n)),
        None => failed("must pass at least one number"),
    }
}

pub(super) fn min(args: &Args<'_>) -> Answer {
    match numbers(args).into_iter().reduce(|a, b| if b.compare(&a).is_lt() { b } else { a }) {
        Some(n) => Ok(Value::Number(n)),
        None => failed("must pass at least one number"),
    }
}

pub(super) fn parseint(args: &Args<'_>) -> Answer {
    let Value::String(text) = args.value(0) else {
        return bad(0, format!("first argument must be a string, not {}", args.value(0).kind_name()));
    };
    let base = match args.number(1).to_i64() {
        Some(base @ 2..=62) => base as u32,
        _ => return bad(1, "base must be a whole number between 2 and 62 inclusive"),
    };
    let (negative, digits) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    match parse_digits(digits, base) {
        Some(value) => Ok(Value::Number(Number::from_big(negative && value.bits() > 0, value))),
        None => bad(0, format!("cannot parse {text:?} as a base {base} integer")),
    }
}

/// Digits up to base 62; below 37 the case of letters does not count.
fn parse_digits(digits: &str, base: u32) -> Option<BigUint> {
    if digits.is_empty() || digits.len() > crate::number::MAX_NUMBER_LEN {
        return None;
    }
    let mut value = BigUint::from(0u8);
    for c in digits.bytes() {
        let digit = match c {
            b'0'..=b'9' => u32::from(c - b'0'),
            b'a'..=b'z' => u32::from(c - b'a') + 10,
            b'A'..=b'Z' if base <= 36 => u32::from(c - b'A') + 10,
            b'A'..=b'Z' => u32::from(c - b'A') + 36,
            _ => return None,
        };
        if digit >= base {
            return None;
        }
        value = value * base + digit;
    }
    Some(value)
}

pub(super) fn range(args: &Args<'_>) -> Answer {
    let given = numbers(args);
    let zero = Number::from_i64(0);
    let (start, end) = match given.as_slice() {
        [end] => (zero.clone(), end.clone()),
        [start, end] | [start, end, _] => (start.clone(), end.clone()),
        _ => return failed("must have one, two, or three arguments"),
    };
    let down = end.compare(&start).is_lt();
    let step = match given.get(2) {
        Some(step) => step.clone(),
        None => Number::from_i64(if down { -1 } else { 1 }),
    };
    if given.len() == 3 && !step.is_zero() && step.is_negative() != down && start != end {
        let (sign, order) = if down { ("less", "negative") } else { ("greater", "positive") };
        return bad(2, format!("end is {sign} than start, so step must be {order}"));
    }
    let mut out = Vec::new();
    let mut at = start;
    while if down { at.compare(&end).is_gt() } else { at.compare(&end).is_lt() } {
        if out.len() >= MAX_RANGE {
            return failed(format!(
                "more than {MAX_RANGE} values were generated; either decrease the difference between start and end \
                 or use a smaller step"
            ));
        }
        let next = at.add(&step).map_err(|_| CallFault::Call("the numbers must be finite".to_owned()))?;
        out.push(Value::Number(std::mem::replace(&mut at, next)));
    }
    Ok(Value::list(Type::Number, out))
}
