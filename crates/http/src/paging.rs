//! Lists: filter, order, page. Source: `compat/wire-notes.md` section 4.
//!
//! A list is filtered on the full object, then turned round if asked for, then cut into pages. A page token is the key of
//! the first item of the next page.

use crate::error::HttpError;
use crate::request::Request;
use herdsman_expr::filter::Filter;
use serde_json::Value;

/// How a list route treats the common parameters.
#[derive(Debug, Clone, Copy)]
pub struct ListRules {
    /// Whether `reverse` is honoured.
    pub reverse: bool,
}

/// One page of a list, and the token of the next.
#[derive(Debug, Clone, PartialEq)]
pub struct Page<T> {
    pub items: Vec<T>,
    pub next_token: Option<String>,
}

/// Cuts the page that a request asks for out of all items, which are in the list's ordinary order.
///
/// `key` gives the token of an item; `object` gives the full object that filters look at.
///
/// # Errors
/// The filter or the page size cannot be understood.
pub fn page<T>(
    request: &Request,
    rules: ListRules,
    items: impl IntoIterator<Item = T>,
    key: impl Fn(&T) -> String,
    object: impl Fn(&T) -> Value,
) -> Result<Page<T>, HttpError> {
    let expression = match request.params.text("filter") {
        "" => None,
        text => Some(Filter::parse(text).map_err(|e| {
            HttpError::bad_request(format!("failed to create result paginator: failed to read filter expression: {e}"))
        })?),
    };
    let bad_size = || HttpError::bad_request("Expect a number for `per_page` query string parameter");
    let per_page = match request.params.number("per_page").map_err(|_| bad_size())? {
        None => usize::MAX,
        Some(n) if n < 0 => return Err(HttpError::bad_request("per_page must not be negative")),
        Some(0) => usize::MAX,
        Some(n) => usize::try_from(n).unwrap_or(usize::MAX),
    };
    let mut all: Vec<T> = items.into_iter().collect();
    if rules.reverse && request.params.text("reverse") == "true" {
        all.reverse();
    }
    let token = request.params.text("next_token");
    let mut page = Page { items: Vec::new(), next_token: None };
    let mut begun = token.is_empty();
    for item in all {
        if !begun {
            begun = key(&item) == token;
            if !begun {
                continue;
            }
        }
        if let Some(expression) = &expression {
            let matches = expression
                .matches(&object(&item))
                .map_err(|e| HttpError::bad_request(format!("failed to read result page: {e}")))?;
            if !matches {
                continue;
            }
        }
        if page.items.len() == per_page {
            page.next_token = Some(key(&item));
            break;
        }
        page.items.push(item);
    }
    Ok(page)
}
