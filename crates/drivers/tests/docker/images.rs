//! Images: pulls, logins, archives, removal.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use herdsman_drivers::{Driver, DriverEvent, EventSink, StartKey};
use serde_json::json;

use super::engine::{IMAGE, Node, docker, ready, shell};
use super::registry::{Behaviour, Registry};
use crate::support::{end, eventually};

/// `u:p` as a registry sees it.
const LOGIN: &str = "Basic dTpw";

fn present(image: &str) -> bool {
    docker(&["image", "inspect", image]).is_ok()
}

#[tokio::test(flavor = "multi_thread")]
async fn an_image_that_cannot_be_pulled_says_why() {
    if !ready() {
        return;
    }
    let (node, registry) = (Node::new(), Registry::start(Behaviour::default()).await);
    let driver = node.driver();
    let told = Arc::new(Mutex::new(Vec::new()));
    let mut spec = node.spec("t", json!({"image": "127.0.0.1:1/none:1"}));
    let events = Arc::clone(&told);
    spec.events = EventSink(Arc::new(move |e: DriverEvent| events.lock().unwrap().push(e.message)));
    let error = driver.start(spec).await.unwrap_err();
    assert!(error.recoverable, "the registry may come back: {error}");
    assert!(error.message.starts_with("Failed to pull `127.0.0.1:1/none:1`: Error response from daemon:"), "{error}");
    assert_eq!(*told.lock().unwrap(), ["Downloading image"]);

    let image = format!("{}/missing:1", registry.address);
    let error = driver.start(node.spec("t", json!({ "image": image }))).await.unwrap_err();
    assert!(!error.recoverable && error.message.contains("manifest unknown"), "{error}");
    assert!(node.containers().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn nomad_24991_a_stalled_pull_ends_in_time() {
    if !ready() {
        return;
    }
    let (node, registry) = (Node::new(), Registry::start(Behaviour { stalls: true, ..Behaviour::default() }).await);
    let image = format!("{}/slow:1", registry.address);
    let start = node.driver();
    let spec = node.spec("t", json!({ "image": image, "image_pull_timeout": "3s" }));
    let error = tokio::time::timeout(Duration::from_secs(30), start.start(spec)).await.expect("ends").unwrap_err();
    assert!(error.recoverable && error.message.contains("longer than 3s"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn pulls_of_one_image_are_one_pull() {
    if !ready() {
        return;
    }
    let behaviour = Behaviour { delay: Duration::from_millis(500), ..Behaviour::default() };
    let (node, registry) = (Node::new(), Registry::start(behaviour).await);
    let driver = Arc::new(node.driver());
    let run = |image: String, task: String| {
        let (driver, mut spec) = (Arc::clone(&driver), node.script(&task, "true"));
        spec.config["image"] = json!(image);
        async move { driver.start(spec).await.unwrap().0 }
    };
    let one = run(registry.add("single"), "single".to_owned()).await;
    let of_one = registry.manifests();
    assert!(of_one > 0);
    let image = registry.add("shared");
    let starts: Vec<_> = (0..4).map(|n| tokio::spawn(run(image.clone(), format!("t{n}")))).collect();
    let mut handles = vec![one];
    for start in starts {
        handles.push(start.await.unwrap());
    }
    assert_eq!(registry.manifests(), 2 * of_one, "four starts made more than one pull");
    for handle in &handles {
        assert!(end(&*driver, handle).await.success());
        driver.destroy(handle, false).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn logins_come_from_task_and_file() {
    if !ready() {
        return;
    }
    let (mut node, registry) =
        (Node::new(), Registry::start(Behaviour { login: Some(LOGIN.to_owned()), ..Behaviour::default() }).await);
    let start = async |node: &Node, image: String, auth: serde_json::Value, soft: bool| {
        let mut spec = node.script("t", "true");
        spec.config["image"] = json!(image);
        spec.config["auth"] = auth;
        spec.config["auth_soft_fail"] = json!(soft);
        let driver = node.driver();
        let (handle, _) = driver.start(spec).await?;
        assert!(end(&driver, &handle).await.success());
        driver.destroy(&handle, false).await.unwrap();
        Ok::<_, herdsman_drivers::StartError>(())
    };
    let none = json!(null);
    let error = start(&node, registry.add("a"), none.clone(), false).await.unwrap_err();
    assert!(!error.recoverable && error.message.contains("Failed to pull"), "{error}");
    start(&node, registry.add("b"), json!([{"username": "u", "password": "p"}]), false).await.unwrap();

    let file = node.dir.path().join("config.json");
    node.options.auth_config = Some(file.clone());
    let error = start(&node, registry.add("c"), none.clone(), false).await.unwrap_err();
    assert!(error.message.contains("config.json"), "{error}");
    let error = start(&node, registry.add("c"), none.clone(), true).await.unwrap_err();
    assert!(error.message.contains("Failed to pull"), "soft: without login, {error}");
    std::fs::write(&file, json!({"auths": {&registry.address: {"auth": "dTpw"}}}).to_string()).unwrap();
    start(&node, registry.add("d"), none, false).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn only_images_the_driver_brought_are_removed_when_idle() {
    if !ready() {
        return;
    }
    let (mut node, registry) = (Node::new(), Registry::start(Behaviour::default()).await);
    node.options.gc_image_delay = Duration::from_millis(300);
    let image = registry.add("idle");
    let driver = node.driver();
    let mut spec = node.script("brought", "sleep 2");
    spec.config["image"] = json!(image);
    let (brought, _) = driver.start(spec).await.unwrap();
    let (found, _) = driver.start(node.script("found", "true")).await.unwrap();
    end(&driver, &found).await;
    driver.destroy(&found, false).await.unwrap();
    end(&driver, &brought).await;
    assert!(present(&image), "removed although a container uses it");
    // A driver that comes later knows what the earlier one brought.
    drop(driver);
    let driver = node.driver();
    driver.recover(&brought).await.unwrap();
    driver.destroy(&brought, false).await.unwrap();
    eventually("the image is removed", || !present(&image)).await;
    assert!(present(IMAGE));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_archive_is_loaded() {
    if !ready() {
        return;
    }
    let node = Node::new();
    let (driver, name) = (node.driver(), format!("herdsman-test/{}:1", node.options.node_id.to_ascii_lowercase()));
    let mut spec = node.script("t", "true");
    docker(&["tag", IMAGE, &name]).unwrap();
    docker(&["save", "-o", spec.dirs.local.join("image.tar").to_str().unwrap(), &name]).unwrap();
    docker(&["rmi", &name]).unwrap();
    spec.config["image"] = json!(name);
    spec.config["load"] = json!("image.tar");
    let (handle, _) = driver.start(spec.clone()).await.unwrap();
    assert!(end(&driver, &handle).await.success());
    driver.destroy(&handle, false).await.unwrap();
    spec.config["load"] = json!("../../../etc/passwd");
    let error = driver.start(spec).await.unwrap_err();
    assert!(!error.recoverable && error.message.contains("etc/passwd"), "{error}");
    docker(&["rmi", &name]).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn the_image_names_the_stop_signal() {
    if !ready() {
        return;
    }
    let (node, registry) = (Node::new(), Registry::start(Behaviour::default()).await);
    let driver = node.driver();
    let mut spec = node.spec("t", shell("trap 'exit 7' USR1; echo up; while true; do sleep 0.1; done"));
    spec.config["image"] = json!(registry.add("signal"));
    spec.key = Some(StartKey { attempt: 3, ..spec.key.unwrap() });
    let (handle, _) = driver.start(spec).await.unwrap();
    eventually("the task is up", || node.log("t.stdout.0").contains("up")).await;
    driver.stop(&handle, Duration::from_secs(30), "").await.unwrap();
    assert_eq!(end(&driver, &handle).await.exit_code, 7);
    driver.destroy(&handle, false).await.unwrap();
}
