//! Logins at image registries: from the task, from a `config.json`, from a
//! `docker-credential-*` program.

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE};
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt;

use super::options::DockerOptions;
use crate::config::Config;

/// How long a credential program may take.
const HELPER_LIMIT: Duration = Duration::from_secs(30);
/// How large a `config.json` may be.
const MAX_CONFIG: u64 = 4 << 20;
/// What the registry of images without one is called in login files.
const DEFAULT_REGISTRY_KEY: &str = "https://index.docker.io/v1/";
/// The registry of images without one.
pub(crate) const DEFAULT_REGISTRY: &str = "docker.io";

/// A login.
#[derive(Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Login {
    pub username: String,
    pub password: String,
    pub identity_token: String,
    pub server: String,
}

impl std::fmt::Debug for Login {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Login").field("username", &self.username).field("server", &self.server).finish_non_exhaustive()
    }
}

impl Login {
    /// As the engine takes it in a header.
    pub fn header(&self) -> String {
        let mut value = json!({ "username": self.username, "password": self.password, "serveraddress": self.server });
        if !self.identity_token.is_empty() {
            value = json!({ "identitytoken": self.identity_token, "serveraddress": self.server });
        }
        URL_SAFE.encode(value.to_string())
    }
}

/// The login for a registry, if there is one. The task's own comes first, then
/// the file, then the program.
pub(crate) async fn find(
    options: &DockerOptions,
    task: Option<Config<'_>>,
    registry: &str,
) -> Result<Option<Login>, String> {
    if let Some(auth) = task {
        let login = Login {
            username: auth.text_or_empty("username"),
            password: auth.text_or_empty("password"),
            identity_token: String::new(),
            server: auth.text("server_address").filter(|s| !s.is_empty()).unwrap_or_else(|| server_key(registry)),
        };
        if !login.username.is_empty() || !login.password.is_empty() {
            return Ok(Some(login));
        }
    }
    if let Some(path) = &options.auth_config
        && let Some(login) = from_file(path, registry).await?
    {
        return Ok(Some(login));
    }
    match &options.auth_helper {
        Some(helper) => from_helper(helper, registry).await,
        None => Ok(None),
    }
}

fn server_key(registry: &str) -> String {
    if registry == DEFAULT_REGISTRY { DEFAULT_REGISTRY_KEY.to_owned() } else { registry.to_owned() }
}

/// The host of a key of a login file: without scheme and path.
fn host_of(key: &str) -> &str {
    let rest = key.strip_prefix("https://").or_else(|| key.strip_prefix("http://")).unwrap_or(key);
    let host = rest.split('/').next().unwrap_or(rest);
    if host == "index.docker.io" || host == "registry-1.docker.io" { DEFAULT_REGISTRY } else { host }
}

async fn from_file(path: &Path, registry: &str) -> Result<Option<Login>, String> {
    let failed = |why: &dyn std::fmt::Display| {
        format!("Failed to find docker auth for registry {registry:?}: {}: {why}", path.display())
    };
    let meta = std::fs::metadata(path).map_err(|e| failed(&e))?;
    if meta.len() > MAX_CONFIG {
        return Err(failed(&format!("larger than {MAX_CONFIG} bytes")));
    }
    let text = std::fs::read(path).map_err(|e| failed(&e))?;
    let config: Value = serde_json::from_slice(&text).map_err(|e| failed(&e))?;
    let per_registry = config.get("credHelpers").and_then(Value::as_object);
    let helper = per_registry.and_then(|m| m.iter().find(|(k, _)| host_of(k) == registry)).map(|(_, v)| v);
    if let Some(helper) = helper.and_then(Value::as_str) {
        return from_helper(helper, registry).await;
    }
    let auths = config.get("auths").and_then(Value::as_object);
    if let Some((_, entry)) = auths.and_then(|m| m.iter().find(|(k, _)| host_of(k) == registry))
        && let Some(login) = from_entry(entry, registry).map_err(|e| failed(&e))?
    {
        return Ok(Some(login));
    }
    match config.get("credsStore").and_then(Value::as_str) {
        Some(helper) => from_helper(helper, registry).await,
        None => Ok(None),
    }
}

/// An entry of `auths`: `auth` with both in one, or both apart.
fn from_entry(entry: &Value, registry: &str) -> Result<Option<Login>, String> {
    let text = |key: &str| entry.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
    let mut login = Login {
        username: text("username"),
        password: text("password"),
        identity_token: text("identitytoken"),
        server: server_key(registry),
    };
    let auth = text("auth");
    if !auth.is_empty() {
        let decoded = STANDARD.decode(auth.trim()).ok().and_then(|b| String::from_utf8(b).ok());
        let decoded = decoded.ok_or_else(|| format!("the auth of {registry} is not base64 of user:password"))?;
        let (user, password) =
            decoded.split_once(':').ok_or_else(|| format!("the auth of {registry} lacks a colon"))?;
        login.username = user.to_owned();
        login.password = password.trim_end_matches('\0').to_owned();
    }
    let empty = login.username.is_empty() && login.identity_token.is_empty();
    Ok((!empty).then_some(login))
}

async fn from_helper(helper: &str, registry: &str) -> Result<Option<Login>, String> {
    if helper.is_empty() || helper.contains('/') {
        return Err(format!("auth helper {helper:?}: expected the part of a program's name after docker-credential-"));
    }
    ask_program(&format!("docker-credential-{helper}"), registry).await
}

async fn ask_program(program: &str, registry: &str) -> Result<Option<Login>, String> {
    /// What such a program says when it knows no login for a registry.
    const NOT_FOUND: &str = "credentials not found";
    let failed = |why: &dyn std::fmt::Display| format!("{program} failed for registry {registry:?}: {why}");
    let mut command = tokio::process::Command::new(program);
    command.arg("get").stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
    let mut child = command.spawn().map_err(|e| failed(&e))?;
    if let Some(mut stdin) = child.stdin.take() {
        // A program that reads nothing may be right all the same.
        let _ = stdin.write_all(server_key(registry).as_bytes()).await;
    }
    let output = tokio::time::timeout(HELPER_LIMIT, child.wait_with_output()).await;
    let output = output.map_err(|_| failed(&"no answer in time"))?.map_err(|e| failed(&e))?;
    let said = String::from_utf8_lossy(&output.stdout);
    if !output.status.success() {
        let errors = String::from_utf8_lossy(&output.stderr);
        if said.contains(NOT_FOUND) || errors.contains(NOT_FOUND) {
            return Ok(None);
        }
        return Err(failed(&format!("{}{}", said.trim(), errors.trim())));
    }
    let answer: Value = serde_json::from_str(&said).map_err(|e| failed(&e))?;
    let text = |key: &str| answer.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
    let mut login = Login { username: text("Username"), server: server_key(registry), ..Login::default() };
    // A token instead of a password goes by this name.
    if login.username == "<token>" {
        login.identity_token = text("Secret");
    } else {
        login.password = text("Secret");
    }
    Ok(Some(login))
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn find_in(text: &str, registry: &str) -> Result<Option<Login>, String> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("config.json");
        std::fs::write(&path, text).unwrap();
        from_file(&path, registry).await
    }

    #[tokio::test]
    async fn finds_a_login_by_host() {
        let text = format!(
            r#"{{"auths": {{"https://index.docker.io/v1/": {{"auth": "{}"}}, "reg:5000": {{"username": "u", "password": "p"}}, "none": {{}}}}}}"#,
            STANDARD.encode("hub:secret:2")
        );
        let hub = find_in(&text, "docker.io").await.unwrap().unwrap();
        assert_eq!((hub.username.as_str(), hub.password.as_str()), ("hub", "secret:2"));
        assert_eq!(hub.server, DEFAULT_REGISTRY_KEY);
        assert_eq!(find_in(&text, "reg:5000").await.unwrap().unwrap().password, "p");
        assert_eq!(find_in(&text, "none").await.unwrap(), None);
        assert_eq!(find_in(&text, "other").await.unwrap(), None);
    }

    #[tokio::test]
    async fn damaged_files_are_named_without_their_content() {
        for text in ["{", r#"{"auths": {"r": {"auth": "%%%"}}}"#, r#"{"auths": {"r": {"auth": "c2VjcmV0"}}}"#] {
            let error = find_in(text, "r").await.unwrap_err();
            assert!(error.contains("config.json") && !error.contains("secret") && !error.contains("c2Vj"), "{error}");
        }
        let gone = from_file(Path::new("/nonexistent/c.json"), "r").await.unwrap_err();
        assert!(gone.contains("/nonexistent/c.json"), "{gone}");
    }

    #[tokio::test]
    async fn asks_a_program() {
        use std::os::unix::fs::PermissionsExt;
        let dir = tempfile::tempdir().unwrap();
        let ask = async |script: &str, registry: &str| {
            let path = dir.path().join(format!("helper-{}", script.len()));
            std::fs::write(&path, format!("#!/bin/sh\nread -r host\n{script}\n")).unwrap();
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
            loop {
                match ask_program(path.to_str().unwrap(), registry).await {
                    Err(e) if e.contains("Text file busy") => tokio::task::yield_now().await,
                    other => return other,
                }
            }
        };
        let login = ask(r#"echo "{\"Username\": \"u@$host\", \"Secret\": \"s\"}""#, "reg:1").await.unwrap().unwrap();
        assert_eq!((login.username.as_str(), login.password.as_str()), ("u@reg:1", "s"));
        let token = ask(r#"echo '{"Username": "<token>", "Secret": "s"}'"#, "reg:1").await.unwrap().unwrap();
        assert_eq!((token.identity_token.as_str(), token.password.as_str()), ("s", ""));
        assert_eq!(ask("echo credentials not found in native keychain; exit 1", "reg:1").await, Ok(None));
        assert!(ask("echo locked >&2; exit 2", "reg:1").await.unwrap_err().contains("locked"));
        assert!(from_helper("../x", "reg:1").await.unwrap_err().contains("docker-credential-"));
    }

    #[test]
    fn a_login_does_not_print_its_secret() {
        let login = Login { password: "hidden".to_owned(), ..Login::default() };
        assert!(!format!("{login:?}").contains("hidden"));
    }
}
