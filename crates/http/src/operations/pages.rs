//! The root of the server, and a plain page at the place where pages are looked for.

use crate::answer::{Answer, Content};
use crate::error::HttpError;
use crate::pipeline::Call;
use bytes::Bytes;

/// `GET /`: to the pages, with the query kept. Source: `goldens/api/037-root-redirect.json`.
///
/// # Errors
/// None.
pub async fn root(call: Call) -> Result<Answer, HttpError> {
    let to = match call.request.query.as_str() {
        "" => "/ui/".to_string(),
        query => format!("/ui/?{query}"),
    };
    let mut answer = html(307, format!("<a href=\"{}\">Temporary Redirect</a>.\n\n", escape(&to)));
    answer.headers.push(("Location", to));
    Ok(answer)
}

/// `GET /ui/…`: says where to look.
///
/// # Errors
/// None.
pub async fn page(call: Call) -> Result<Answer, HttpError> {
    let facts = call.api.agent().facts();
    let text = format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>Herdsman</title></head>\n<body>\n\
         <h1>Herdsman {version}</h1>\n<p>Agent {name}, region {region}. This version has no pages for a browser.</p>\n\
         <ul><li>On the command line: <code>herdsman job status</code>, <code>herdsman node status</code>, \
         <code>herdsman alloc status ID</code></li>\n<li>Over HTTP: <a href=\"/v1/jobs?pretty\">/v1/jobs</a>, \
         <a href=\"/v1/nodes?pretty\">/v1/nodes</a>, <a href=\"/v1/allocations?pretty\">/v1/allocations</a>, \
         <a href=\"/v1/agent/health?pretty\">/v1/agent/health</a></li></ul>\n</body></html>\n",
        version = escape(&facts.version),
        name = escape(&facts.name),
        region = escape(&facts.region),
    );
    Ok(html(200, text)
        .with_header("Content-Security-Policy", "default-src 'none'; form-action 'none'; frame-ancestors 'none'")
        .with_header("X-Content-Type-Options", "nosniff"))
}

fn html(status: u16, text: String) -> Answer {
    Answer { status, headers: Vec::new(), content: Content::Bytes(Bytes::from(text)) }
        .with_header("Content-Type", "text/html; charset=utf-8")
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}
