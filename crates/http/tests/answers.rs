//! What holds for every answer: methods, compression, indentation, blocking, pages, cross-origin rules.

use crate::support::{Cluster, job, send};
use bytes::Bytes;
use flate2::read::GzDecoder;
use http_body_util::Full;
use serde_json::json;
use std::io::Read;
use std::time::Duration;

fn with_headers(method: &str, path: &str, headers: &[(&str, &str)]) -> hyper::Request<Full<Bytes>> {
    let builder = hyper::Request::builder().method(method).uri(path).header("host", "test");
    let builder = headers.iter().fold(builder, |b, (k, v)| b.header(*k, *v));
    builder.body(Full::new(Bytes::new())).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn large_answers_are_compressed_for_those_who_ask() {
    let cluster = Cluster::start().await;
    cluster.register(job("a")).await;
    let plain = cluster.get("/v1/job/a").await;
    assert_eq!(plain.header("content-encoding"), None);
    assert_eq!(plain.header("vary"), Some("Accept-Encoding"));
    let packed = send(&cluster.api, with_headers("GET", "/v1/job/a", &[("accept-encoding", "gzip")])).await;
    assert_eq!(packed.header("content-encoding"), Some("gzip"));
    let mut text = String::new();
    GzDecoder::new(&packed.body[..]).read_to_string(&mut text).unwrap();
    assert_eq!(text, plain.text());
}

#[tokio::test(flavor = "multi_thread")]
async fn people_get_indented_answers() {
    let cluster = Cluster::start().await;
    assert_eq!(cluster.get("/v1/regions").await.text(), "[\"global\"]");
    assert_eq!(cluster.get("/v1/regions?pretty").await.text(), "[\n    \"global\"\n]\n");
    assert_eq!(cluster.get("/v1/regions?pretty=0").await.text(), "[\"global\"]");
}

#[tokio::test(flavor = "multi_thread")]
async fn only_some_routes_are_open_to_pages_from_elsewhere() {
    let cluster = Cluster::with_node().await;
    assert_eq!(cluster.send("HEAD", "/v1/jobs", None).await.status, 405);
    assert_eq!(cluster.send("OPTIONS", "/v1/jobs", None).await.status, 405);
    let elsewhere = [("origin", "https://example.com"), ("access-control-request-method", "GET")];
    let asked = send(&cluster.api, with_headers("OPTIONS", "/v1/client/stats", &elsewhere)).await;
    assert_eq!(asked.status, 204);
    assert_eq!(asked.header("access-control-allow-origin"), Some("*"));
    assert_eq!(asked.header("access-control-allow-methods"), Some("GET"));
    let vars = send(&cluster.api, with_headers("GET", "/v1/vars", &elsewhere[..1])).await;
    assert_eq!((vars.status, vars.header("access-control-allow-origin")), (200, Some("*")));
    let jobs = send(&cluster.api, with_headers("GET", "/v1/jobs", &elsewhere[..1])).await;
    assert_eq!((jobs.status, jobs.header("access-control-allow-origin")), (200, None));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_blocking_read_wakes_when_its_object_changes() {
    let cluster = Cluster::start().await;
    let made = cluster.register(job("a")).await;
    let index = cluster.get("/v1/job/a").await.index();
    assert!(index > 0 && index >= made["JobModifyIndex"].as_u64().unwrap());
    // Nothing changes: the answer comes when the time is over, with what there is.
    let same = cluster.get(&format!("/v1/job/b?index={}&wait=20ms", index + 1000)).await;
    assert_eq!((same.status, same.text().as_str()), (404, "job not found"));
    let path = format!("/v1/job/a?index={index}&wait=60s");
    let (woken, _) = tokio::join!(cluster.get(&path), async {
        tokio::time::sleep(Duration::from_millis(20)).await;
        // Another job is no reason to wake.
        cluster.register(job("b")).await;
        let mut changed = job("a");
        changed["Priority"] = json!(61);
        cluster.register(changed).await
    });
    assert!(woken.index() > index);
    assert_eq!(woken.json()["Priority"], 61);
    // A job that is not there yet is waited for too.
    let future = cluster.get("/v1/job/c").await.index();
    let path = format!("/v1/job/c?index={future}&wait=60s");
    let (made, _) = tokio::join!(cluster.get(&path), async {
        tokio::time::sleep(Duration::from_millis(20)).await;
        cluster.register(job("c")).await
    });
    assert_eq!((made.status, made.json()["ID"].as_str()), (200, Some("c")));
}

#[tokio::test(flavor = "multi_thread")]
async fn lists_are_cut_into_pages() {
    let cluster = Cluster::start().await;
    for id in ["a", "b", "c/d", "e"] {
        cluster.register(job(id)).await;
    }
    let ids = |a: &crate::support::Answer| -> Vec<String> {
        a.json().as_array().unwrap().iter().map(|j| j["ID"].as_str().unwrap().to_string()).collect()
    };
    let first = cluster.get("/v1/jobs?per_page=2").await;
    assert_eq!(ids(&first), ["a", "b"]);
    assert_eq!(first.header("x-nomad-nexttoken"), Some("default.c/d"));
    let second = cluster.get("/v1/jobs?per_page=2&next_token=default.c/d").await;
    assert_eq!((ids(&second), second.header("x-nomad-nexttoken")), (vec!["c/d".to_string(), "e".to_string()], None));
    assert_eq!(ids(&cluster.get("/v1/jobs?per_page=1&reverse=true").await), ["e"]);
    assert_eq!(ids(&cluster.get("/v1/jobs?prefix=c").await), ["c/d"]);
    assert_eq!(
        ids(&cluster.get("/v1/jobs?filter=ID%20%21%3D%20%22a%22%20and%20Priority%20%3D%3D%2050").await),
        ["b", "c/d", "e"]
    );
    // Ids with slashes, escaped and plain.
    assert_eq!(cluster.get("/v1/job/c%2Fd").await.json()["ID"], "c/d");
    assert_eq!(cluster.get("/v1/job/c/d/summary").await.json()["JobID"], "c/d");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_root_leads_to_a_page_that_says_where_to_look() {
    let cluster = Cluster::start().await;
    let root = cluster.get("/?a=b").await;
    assert_eq!((root.status, root.header("location")), (307, Some("/ui/?a=b")));
    let page = cluster.get("/ui/").await;
    assert_eq!((page.status, page.header("content-type")), (200, Some("text/html; charset=utf-8")));
    assert!(page.text().contains("herdsman job status"));
    assert_eq!(cluster.get("/ui/jobs/a").await.status, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_body_too_large_is_refused() {
    let cluster = Cluster::start().await;
    let body = "x".repeat(herdsman_http::pipeline::MAX_BODY_BYTES + 1);
    assert_eq!(cluster.send("PUT", "/v1/jobs", Some(body)).await.status, 413);
}

#[tokio::test(flavor = "multi_thread")]
async fn metrics_come_in_both_forms() {
    let cluster = Cluster::start().await;
    cluster.register(job("a")).await;
    let json = cluster.get("/v1/metrics").await.json();
    let names: Vec<&str> = json["Gauges"].as_array().unwrap().iter().filter_map(|g| g["Name"].as_str()).collect();
    assert!(names.contains(&"nomad.nomad.job_summary.queued") && names.contains(&"nomad.runtime.alloc_bytes"));
    assert_eq!(json["Samples"][0]["Name"], "nomad.http.request");
    assert_eq!(json["Counters"][0]["Name"], "nomad.http.requests");
    let text = cluster.get("/v1/metrics?format=prometheus").await;
    assert!(text.text().contains("# HELP nomad_http_request "), "{}", text.text());
    assert_eq!(text.header("content-type"), Some("text/plain; version=0.0.4; charset=utf-8"));
}
