//! A small image registry in this process.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use sha2::{Digest, Sha256};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use super::engine::{docker, root_tar};

const MANIFEST: &str = "application/vnd.docker.distribution.manifest.v2+json";

/// How the registry behaves.
#[derive(Default)]
pub struct Behaviour {
    /// `Basic …` that must be sent.
    pub login: Option<String>,
    /// Never answers.
    pub stalls: bool,
    /// How long it keeps a layer waiting.
    pub delay: Duration,
}

pub struct Registry {
    pub address: String,
    shared: Arc<Shared>,
    task: tokio::task::JoinHandle<()>,
}

struct Shared {
    behaviour: Behaviour,
    /// Path to type and content.
    content: Mutex<BTreeMap<String, (String, Vec<u8>)>>,
    manifests: AtomicUsize,
    /// Full names of the images.
    names: Mutex<Vec<String>>,
}

impl Drop for Registry {
    fn drop(&mut self) {
        self.task.abort();
        for image in self.shared.names.lock().unwrap().iter() {
            let _ = docker(&["rmi", "-f", image]);
        }
    }
}

fn digest(bytes: &[u8]) -> String {
    let hex: String = Sha256::digest(bytes).iter().map(|b| format!("{b:02x}")).collect();
    format!("sha256:{hex}")
}

impl Registry {
    pub async fn start(behaviour: Behaviour) -> Registry {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let (content, names) = (Mutex::default(), Mutex::default());
        let shared = Arc::new(Shared { behaviour, content, manifests: AtomicUsize::new(0), names });
        let serving = Arc::clone(&shared);
        let task = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serve(stream, Arc::clone(&serving)));
            }
        });
        Registry { address, shared, task }
    }

    /// Adds an image and returns its full name.
    pub fn add(&self, name: &str) -> String {
        let layer = root_tar(&format!("{name} of {}", self.address));
        let config = serde_json::json!({
            "architecture": "amd64", "os": "linux", "config": {"StopSignal": "SIGUSR1"},
            "rootfs": {"type": "layers", "diff_ids": [digest(&layer)]},
        })
        .to_string()
        .into_bytes();
        let manifest = serde_json::json!({
            "schemaVersion": 2, "mediaType": MANIFEST,
            "config": {"mediaType": "application/vnd.docker.container.image.v1+json", "size": config.len(), "digest": digest(&config)},
            "layers": [{"mediaType": "application/vnd.docker.image.rootfs.diff.tar", "size": layer.len(), "digest": digest(&layer)}],
        })
        .to_string()
        .into_bytes();
        let mut content = self.shared.content.lock().unwrap();
        let octets = "application/octet-stream".to_owned();
        content.insert(format!("/v2/{name}/blobs/{}", digest(&layer)), (octets.clone(), layer));
        content.insert(format!("/v2/{name}/blobs/{}", digest(&config)), (octets, config));
        for reference in [digest(&manifest), "1".to_owned(), "latest".to_owned()] {
            content.insert(format!("/v2/{name}/manifests/{reference}"), (MANIFEST.to_owned(), manifest.clone()));
        }
        let name = format!("{}/{name}:1", self.address);
        self.shared.names.lock().unwrap().push(name.clone());
        name
    }

    /// How often a manifest was asked for.
    pub fn manifests(&self) -> usize {
        self.shared.manifests.load(Ordering::SeqCst)
    }
}

/// Answers one request.
async fn serve(mut stream: TcpStream, shared: Arc<Shared>) {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let Ok(byte) = stream.read_u8().await else { return };
        head.push(byte);
        if head[0] == 0x16 || head.len() > 64 << 10 {
            return; // TLS, which this registry does not speak.
        }
    }
    if shared.behaviour.stalls {
        tokio::time::sleep(Duration::from_secs(3600)).await;
    }
    let head = String::from_utf8_lossy(&head).into_owned();
    let mut words = head.split(' ');
    let (method, path) = (words.next().unwrap_or_default(), words.next().unwrap_or_default().to_owned());
    let login = head.lines().find_map(|l| l.strip_prefix("Authorization: ")).map(str::trim);
    let answer = |status: &str, kind: &str, extra: &str, length: usize| {
        format!(
            "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\n\
             Docker-Distribution-Api-Version: registry/2.0\r\n{extra}Connection: close\r\n\r\n"
        )
    };
    if shared.behaviour.login.is_some() && login != shared.behaviour.login.as_deref() {
        let body = br#"{"errors":[{"code":"UNAUTHORIZED","message":"authentication required"}]}"#;
        let challenge = "WWW-Authenticate: Basic realm=\"test\"\r\n";
        let _ =
            stream.write_all(answer("401 Unauthorized", "application/json", challenge, body.len()).as_bytes()).await;
        let _ = stream.write_all(body).await;
        return;
    }
    if path.contains("/manifests/") {
        shared.manifests.fetch_add(1, Ordering::SeqCst);
    }
    let found = if path == "/v2/" {
        Some(("application/json".to_owned(), b"{}".to_vec()))
    } else {
        shared.content.lock().unwrap().get(&path).cloned()
    };
    let (text, body) = match found {
        Some((kind, body)) => {
            let extra = format!("Docker-Content-Digest: {}\r\n", digest(&body));
            (answer("200 OK", &kind, &extra, body.len()), body)
        }
        None => {
            let body = br#"{"errors":[{"code":"MANIFEST_UNKNOWN","message":"manifest unknown"}]}"#.to_vec();
            (answer("404 Not Found", "application/json", "", body.len()), body)
        }
    };
    if path.contains("/blobs/") {
        tokio::time::sleep(shared.behaviour.delay).await;
    }
    let _ = stream.write_all(text.as_bytes()).await;
    if method != "HEAD" {
        let _ = stream.write_all(&body).await;
    }
    let _ = stream.shutdown().await;
}
