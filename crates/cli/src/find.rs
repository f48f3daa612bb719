//! Finding what people name by the beginning of its id.

use crate::command::{Attempt, Call, Failure};
use crate::format::{id, id_prefix};
use crate::view::{View, members, or_none};
use herdsman_client::{Client, Query, encode_segment};
use serde_json::Value;

/// A job that was found.
pub struct FoundJob {
    pub id: String,
    pub namespace: String,
    /// The whole id was given.
    pub exact: bool,
}

impl FoundJob {
    /// `/v1/job/<id>`.
    pub fn path(&self) -> String {
        format!("/v1/job/{}", encode_segment(&self.id))
    }

    /// A query in the job's namespace.
    pub fn query(&self) -> Query {
        Query { namespace: Some(self.namespace.clone()), ..Query::none() }
    }
}

/// A query in the namespace of what an answer tells of.
pub fn in_space_of(noun: &Value) -> Query {
    Query { namespace: Some(noun.text("Namespace").to_string()), ..Query::none() }
}

/// Matches shown when a prefix names several things.
const MAX_SHOWN: u32 = 20;

impl Call<'_> {
    /// The job with this id, or the only one whose id begins so.
    ///
    /// # Errors
    /// None or several do.
    pub async fn find_job(&self, client: &Client, prefix: &str) -> Result<FoundJob, Failure> {
        let query = Query { prefix: prefix.to_string(), per_page: MAX_SHOWN, ..Query::none() };
        let (jobs, _): (Value, _) = client.get("/v1/jobs", &query).await.attempt("Error querying job prefix")?;
        let all = members(&jobs);
        let whole: Vec<&Value> = all.iter().filter(|j| j.text("ID") == prefix).collect();
        let found = |job: &Value| FoundJob {
            id: job.text("ID").to_string(),
            namespace: job.text("Namespace").to_string(),
            exact: job.text("ID") == prefix,
        };
        match (whole.as_slice(), all) {
            ([one], _) => Ok(found(one)),
            (_, []) => Err(Failure::new(format!("No job(s) with prefix or ID {prefix:?} found"))),
            (_, [one]) => Ok(found(one)),
            _ => {
                let table = crate::job::status::list_text(all, &self.times(), client.options().namespace == "*");
                Err(Failure::new(format!("Prefix {prefix:?} matched multiple jobs\n\n{table}")))
            }
        }
    }

    /// The whole allocation with this id, or the only one whose id begins so.
    ///
    /// # Errors
    /// None or several do.
    pub async fn find_allocation(&self, client: &Client, prefix: &str) -> Result<Value, Failure> {
        let all = by_prefix(client, "/v1/allocations", prefix, "allocation").await?;
        match members(&all) {
            [] => Err(Failure::new(format!("No allocation(s) with prefix or id {prefix:?} found"))),
            [one] => {
                let path = format!("/v1/allocation/{}", encode_segment(one.text("ID")));
                let (value, _) = client.get(&path, &in_space_of(one)).await.attempt("Error querying allocation")?;
                Ok(value)
            }
            several => {
                let table = crate::alloc::list_text(several, self.verbose(), &self.times());
                Err(Failure::new(format!("Prefix matched multiple allocations\n\n{table}")))
            }
        }
    }

    /// The whole node with this id, or the only one whose id begins so.
    ///
    /// # Errors
    /// None or several do.
    pub async fn find_node(&self, client: &Client, prefix: &str) -> Result<Value, Failure> {
        let all = by_prefix(client, "/v1/nodes", prefix, "node").await?;
        match members(&all) {
            [] => Err(Failure::new(format!("No node(s) with prefix {prefix:?} found"))),
            [one] => read_node(client, one.text("ID")).await,
            several => {
                let table = crate::node::list_text(several, self.verbose(), &crate::node::Columns::default());
                Err(Failure::new(format!("Prefix matched multiple nodes\n\n{table}")))
            }
        }
    }

    /// The deployment with this id, or the only one whose id begins so.
    ///
    /// # Errors
    /// None or several do.
    pub async fn find_deployment(&self, client: &Client, prefix: &str) -> Result<Value, Failure> {
        let all = by_prefix(client, "/v1/deployments", prefix, "deployment").await?;
        match members(&all) {
            [] => Err(Failure::new(format!(
                "Error retrieving deployment: Deployment ID {prefix:?} matched no deployments"
            ))),
            [one] => Ok(one.clone()),
            several => {
                let table = crate::deployment::list_text(several, self.verbose(), false);
                Err(Failure::new(format!("Prefix matched multiple deployments\n\n{table}")))
            }
        }
    }

    /// The evaluation with this id, or the only one whose id begins so, with what is related to it.
    ///
    /// # Errors
    /// None or several do.
    pub async fn find_evaluation(&self, client: &Client, prefix: &str) -> Result<Value, Failure> {
        let all = by_prefix(client, "/v1/evaluations", prefix, "evaluation").await?;
        match members(&all) {
            [] => Err(Failure::new(format!("No evaluation(s) with prefix or id {prefix:?} found"))),
            [one] => {
                let path = format!("/v1/evaluation/{}", encode_segment(one.text("ID")));
                let query = in_space_of(one).with("related", "true");
                let (value, _) = client.get(&path, &query).await.attempt("Error querying evaluation")?;
                Ok(value)
            }
            several => {
                let table = crate::eval::list_text(several, self.verbose());
                Err(Failure::new(format!("Prefix matched multiple evaluations\n\n{table}")))
            }
        }
    }
}

/// A node by its whole id.
///
/// # Errors
/// There is none, or the agent cannot be asked.
pub async fn read_node(client: &Client, node: &str) -> Result<Value, Failure> {
    let path = format!("/v1/node/{}", encode_segment(node));
    let (value, _) = client.get(&path, &Query::none()).await.attempt("Error querying node info")?;
    Ok(value)
}

async fn by_prefix(client: &Client, path: &str, prefix: &str, noun: &str) -> Result<Value, Failure> {
    if prefix.len() < 2 {
        return Err(Failure::new(format!(
            "Identifier must contain at least two characters: {prefix:?} names no {noun}"
        )));
    }
    let query = Query { prefix: id_prefix(prefix), ..Query::none() };
    let (all, _): (Value, _) = client.get(path, &query).await.attempt(&format!("Error querying {noun}"))?;
    // An odd last digit was left out of the question: it still counts.
    let kept: Vec<Value> = members(&all).iter().filter(|v| v.text("ID").starts_with(prefix)).cloned().collect();
    Ok(Value::Array(kept))
}

/// The task of an allocation that a command means: the one named, or the only one.
/// Source: `goldens/cli/115-alloc-logs-notask.txt`.
///
/// # Errors
/// The allocation has no such task, or several and none is named.
pub fn task_of(allocation: &Value, named: Option<&str>) -> Result<String, Failure> {
    let group = crate::alloc::group_of(allocation);
    let tasks: Vec<String> = group.list("Tasks").iter().map(|t| t.text("Name").to_string()).collect();
    let short = id(allocation.text("ID"), false);
    match (named, tasks.as_slice()) {
        (Some(name), _) if tasks.iter().any(|t| t == name) => Ok(name.to_string()),
        (Some(name), several) => {
            let list: Vec<String> = several.iter().map(|t| format!("  * {t}")).collect();
            Err(Failure::new(format!("Could not find task named: {name}, found:\n{}", list.join("\n"))))
        }
        (None, [only]) => Ok(only.clone()),
        (None, []) => {
            Err(Failure::new(format!("Could not find allocated task group: {}", or_none(allocation.text("TaskGroup")))))
        }
        (None, several) => {
            let list: Vec<String> = several.iter().map(|t| format!("  * {t}")).collect();
            Err(Failure::new(format!(
                "Allocation {short:?} is running the following tasks:\n{}\n\nPlease specify the task.",
                list.join("\n")
            )))
        }
    }
}
