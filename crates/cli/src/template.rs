//! `-t`: answers through Go templates. A field nobody knows is an error that names it.

use herdsman_template::{Missing, Options, Template};
use serde_json::Value;

/// Renders a template for an answer.
///
/// # Errors
/// The template cannot be read, or an action of it fails.
pub fn render(text: &str, value: &Value) -> Result<String, String> {
    let options = Options { missing: Missing::Error, ..Options::default() };
    let template = Template::parse(text, options).map_err(|e| e.to_string())?;
    template.render(value).map_err(|e| e.to_string())
}
