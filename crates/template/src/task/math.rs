//! Numbers. The last argument is the one that a pipe gives, so it comes first in the sum.

use super::failure;
use crate::builtin::CallError;
use crate::show::nested;
use serde_json::Value;

pub(super) fn call(name: &str, a: &[Value]) -> Option<Result<Value, CallError>> {
    let [b, a] = a else { return None };
    match name {
        "add" | "subtract" | "multiply" | "divide" | "modulo" | "minimum" | "maximum" => Some(sum(name, a, b)),
        _ => None,
    }
}

fn sum(name: &str, a: &Value, b: &Value) -> Result<Value, CallError> {
    let float = |v: &Value| v.as_f64().ok_or_else(|| failure(format!("{name}: {} is no number", nested(v))));
    if let (Some(a), Some(b)) = (a.as_i64(), b.as_i64()) {
        return integers(name, a, b);
    }
    let (a, b) = (float(a)?, float(b)?);
    let value = match name {
        "add" => a + b,
        "subtract" => a - b,
        "multiply" => a * b,
        "divide" => a / b,
        "minimum" => a.min(b),
        "maximum" => a.max(b),
        _ => return Err(failure(format!("{name}: whole numbers are needed"))),
    };
    // JSON has no infinity.
    serde_json::Number::from_f64(value)
        .map(Value::Number)
        .ok_or_else(|| failure(format!("{name}: the result is no number")))
}

/// Numbers that grow too large wrap round, as in Go.
fn integers(name: &str, a: i64, b: i64) -> Result<Value, CallError> {
    if b == 0 && matches!(name, "divide" | "modulo") {
        return Err(failure("runtime error: integer divide by zero"));
    }
    Ok(Value::from(match name {
        "add" => a.wrapping_add(b),
        "subtract" => a.wrapping_sub(b),
        "multiply" => a.wrapping_mul(b),
        "divide" => a.wrapping_div(b),
        "modulo" => a.wrapping_rem(b),
        "minimum" => a.min(b),
        _ => a.max(b),
    }))
}
