//! Settings of the driver: what stands in an agent's `plugin "docker"` block.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::time::Duration;

use serde_json::Value;

use super::client::Endpoint;
use crate::config::Config;
use crate::schema::{self, ConfigError, Key, Kind, key};

/// Where the engine listens when nothing else is said.
const DEFAULT_ENDPOINT: &str = "unix:///var/run/docker.sock";
/// Capabilities tasks may have unless configured otherwise; the engine's own
/// default without `net_raw`.
const DEFAULT_CAPS: &str = "audit_write chown dac_override fowner fsetid kill mknod net_bind_service \
     setfcap setgid setpcap setuid sys_chroot";
/// The shortest period without progress after which a pull may be given up.
const LEAST_PULL_ACTIVITY: Duration = Duration::from_secs(60);
/// The shortest age at which a container nobody knows may be removed.
const LEAST_CREATION_GRACE: Duration = Duration::from_secs(60);

const KEYS: &[Key] = &[
    key("endpoint", Kind::Str),
    key("auth", Kind::Blocks(&[key("config", Kind::Str), key("helper", Kind::Str)])),
    key("tls", Kind::Blocks(&[key("cert", Kind::Str), key("key", Kind::Str), key("ca", Kind::Str)])),
    key("extra_labels", Kind::StrList),
    key("logging", Kind::Blocks(&[key("type", Kind::Str), key("config", Kind::StrMap)])),
    key(
        "gc",
        Kind::Blocks(&[
            key("image", Kind::Bool),
            key("image_delay", Kind::Duration),
            key("container", Kind::Bool),
            key(
                "dangling_containers",
                Kind::Blocks(&[
                    key("enabled", Kind::Bool),
                    key("period", Kind::Duration),
                    key("creation_grace", Kind::Duration),
                    key("dry_run", Kind::Bool),
                ]),
            ),
        ]),
    ),
    key("volumes", Kind::Blocks(&[key("enabled", Kind::Bool), key("selinuxlabel", Kind::Str)])),
    key("allow_privileged", Kind::Bool),
    key("allow_caps", Kind::StrList),
    key("nvidia_runtime", Kind::Str),
    key("allow_runtimes", Kind::StrList),
    key("infra_image", Kind::Str),
    key("infra_image_pull_timeout", Kind::Duration),
    key("image_pull_timeout", Kind::Duration),
    key("container_exists_attempts", Kind::Num),
    key("oom_score_adj", Kind::Num),
    key("pull_activity_timeout", Kind::Duration),
    key("pids_limit", Kind::Num),
    key("disable_log_collection", Kind::Bool),
    key("windows_allow_insecure_container_admin", Kind::Bool),
    key(
        "allowed_modes",
        Kind::Blocks(&[
            key("pid", Kind::StrList),
            key("ipc", Kind::StrList),
            key("userns", Kind::StrList),
            key("uts", Kind::StrList),
        ]),
    ),
];

/// Settings that are taken and not acted on: for devices of NVIDIA, and for the
/// container that holds a group's network.
const WITHOUT_EFFECT: [&str; 3] = ["nvidia_runtime", "infra_image", "infra_image_pull_timeout"];

/// Removal of containers nobody knows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DanglingOptions {
    /// Whether it is done at all.
    pub enabled: bool,
    /// How often.
    pub period: Duration,
    /// How old a container must be.
    pub creation_grace: Duration,
    /// Only say what would be removed.
    pub dry_run: bool,
}

/// Settings of the driver.
#[derive(Debug, Clone, PartialEq)]
pub struct DockerOptions {
    /// Id of this node; part of every container's labels.
    pub node_id: String,
    /// The agent's data directory; part of every container's labels.
    pub data_dir: PathBuf,
    /// A directory of the driver's own, only for root.
    pub state_dir: PathBuf,
    /// `unix:///path` or `tcp://host:port`.
    pub endpoint: String,
    /// A `config.json` with registry logins.
    pub auth_config: Option<PathBuf>,
    /// `x` for a program `docker-credential-x` on the path.
    pub auth_helper: Option<String>,
    /// Patterns of extra labels.
    pub extra_labels: Vec<String>,
    /// Log driver of the engine.
    pub logging_type: String,
    /// Its settings.
    pub logging_config: BTreeMap<String, String>,
    /// Remove images this driver brought when no task uses them.
    pub gc_image: bool,
    /// How long after the last use.
    pub gc_image_delay: Duration,
    /// Remove ended containers.
    pub gc_container: bool,
    /// Removal of containers nobody knows.
    pub dangling: DanglingOptions,
    /// Tasks may mount host paths outside their allocation.
    pub volumes_enabled: bool,
    /// Label for mounts under SELinux, such as `z`.
    pub selinux_label: String,
    /// Tasks may be privileged and use the host's namespaces.
    pub allow_privileged: bool,
    /// Capabilities tasks may have, lower case without `cap_`; `all` for any.
    pub allow_caps: BTreeSet<String>,
    /// Runtimes tasks may name.
    pub allow_runtimes: BTreeSet<String>,
    /// How long a pull may take.
    pub image_pull_timeout: Duration,
    /// How long a pull may make no progress.
    pub pull_activity_timeout: Duration,
    /// How often creating a container is tried when its name is in use.
    pub container_exists_attempts: u32,
    /// Default of the task setting.
    pub oom_score_adj: i64,
    /// The most processes a task may have, 0 for no limit.
    pub pids_limit: i64,
    /// Leave output to the engine's log driver.
    pub disable_log_collection: bool,
    /// Namespace modes allowed without privilege: `pid`, `ipc`, `userns`, `uts`.
    pub allowed_modes: BTreeMap<String, BTreeSet<String>>,
}

impl DockerOptions {
    /// The defaults.
    pub fn new(node_id: impl Into<String>, data_dir: PathBuf, state_dir: PathBuf) -> DockerOptions {
        // Eight times what the peer keeps: this is where output waits while no
        // agent runs, and while copying it into the task's logs falls behind.
        let logging_config = [("max-file", "2"), ("max-size", "16m")];
        DockerOptions {
            node_id: node_id.into(),
            data_dir,
            state_dir,
            endpoint: std::env::var("DOCKER_HOST").unwrap_or_else(|_| DEFAULT_ENDPOINT.to_owned()),
            auth_config: None,
            auth_helper: None,
            extra_labels: Vec::new(),
            logging_type: "json-file".to_owned(),
            logging_config: logging_config.map(|(k, v)| (k.to_owned(), v.to_owned())).into(),
            gc_image: true,
            gc_image_delay: Duration::from_secs(180),
            gc_container: true,
            dangling: DanglingOptions {
                enabled: true,
                period: Duration::from_secs(300),
                creation_grace: Duration::from_secs(300),
                dry_run: false,
            },
            volumes_enabled: false,
            selinux_label: String::new(),
            allow_privileged: false,
            allow_caps: DEFAULT_CAPS.split_ascii_whitespace().map(str::to_owned).collect(),
            allow_runtimes: ["runc", "nvidia"].map(str::to_owned).into(),
            image_pull_timeout: Duration::from_secs(300),
            pull_activity_timeout: Duration::from_secs(120),
            container_exists_attempts: 5,
            oom_score_adj: 0,
            pids_limit: 0,
            disable_log_collection: false,
            allowed_modes: BTreeMap::new(),
        }
    }

    /// Takes over what a `plugin "docker"` block's `config` says.
    ///
    /// # Errors
    /// Every unknown key, wrong type and setting that cannot be kept.
    pub fn with_config(mut self, value: &Value) -> Result<DockerOptions, ConfigError> {
        schema::check(KEYS, value)?;
        let config = Config::new(value);
        let problems = refused_settings(config);
        if !problems.is_empty() {
            return Err(ConfigError { problems });
        }
        for key in WITHOUT_EFFECT.iter().filter(|k| config.get(k).is_some()) {
            tracing::warn!(key, "this setting of the docker plugin has no effect yet");
        }
        set_text(&mut self.endpoint, config, "endpoint");
        Endpoint::parse(&self.endpoint).map_err(ConfigError::one)?;
        for auth in config.blocks("auth") {
            self.auth_config = auth.text("config").filter(|t| !t.is_empty()).map(PathBuf::from);
            self.auth_helper = auth.text("helper").filter(|t| !t.is_empty());
        }
        for logging in config.blocks("logging") {
            if let Some(kind) = logging.text("type") {
                self.logging_config = BTreeMap::new();
                self.logging_type = kind;
            }
            if logging.get("config").is_some() {
                self.logging_config = logging.map("config");
            }
        }
        for gc in config.blocks("gc") {
            self.set_gc(gc)?;
        }
        for volumes in config.blocks("volumes") {
            set_flag(&mut self.volumes_enabled, volumes, "enabled");
            set_text(&mut self.selinux_label, volumes, "selinuxlabel");
        }
        self.set_limits(config)?;
        Ok(self)
    }

    fn set_gc(&mut self, gc: Config<'_>) -> Result<(), ConfigError> {
        set_flag(&mut self.gc_image, gc, "image");
        set_span(&mut self.gc_image_delay, gc, "image_delay");
        set_flag(&mut self.gc_container, gc, "container");
        for dangling in gc.blocks("dangling_containers") {
            set_flag(&mut self.dangling.enabled, dangling, "enabled");
            set_span(&mut self.dangling.period, dangling, "period");
            set_span(&mut self.dangling.creation_grace, dangling, "creation_grace");
            set_flag(&mut self.dangling.dry_run, dangling, "dry_run");
        }
        if self.dangling.period.is_zero() {
            return Err(ConfigError::one("gc.dangling_containers.period must be longer than 0"));
        }
        at_least("gc.dangling_containers.creation_grace", self.dangling.creation_grace, LEAST_CREATION_GRACE)
    }

    fn set_limits(&mut self, config: Config<'_>) -> Result<(), ConfigError> {
        if config.get("extra_labels").is_some() {
            self.extra_labels = config.list("extra_labels");
        }
        set_flag(&mut self.allow_privileged, config, "allow_privileged");
        if config.get("allow_caps").is_some() {
            self.allow_caps = config.list("allow_caps").iter().map(|c| normal_cap(c)).collect();
        }
        if config.get("allow_runtimes").is_some() {
            self.allow_runtimes = config.list("allow_runtimes").into_iter().collect();
        }
        set_span(&mut self.image_pull_timeout, config, "image_pull_timeout");
        set_span(&mut self.pull_activity_timeout, config, "pull_activity_timeout");
        at_least("pull_activity_timeout", self.pull_activity_timeout, LEAST_PULL_ACTIVITY)?;
        if let Some(attempts) = config.number("container_exists_attempts") {
            self.container_exists_attempts = u32::try_from(attempts.max(1)).unwrap_or(u32::MAX);
        }
        self.oom_score_adj = config.number("oom_score_adj").unwrap_or(self.oom_score_adj);
        if self.oom_score_adj < 0 {
            return Err(ConfigError::one("oom_score_adj must be 0 or larger"));
        }
        self.pids_limit = config.number("pids_limit").unwrap_or(self.pids_limit);
        if self.pids_limit < 0 {
            return Err(ConfigError::one("pids_limit must be 0 or larger"));
        }
        set_flag(&mut self.disable_log_collection, config, "disable_log_collection");
        for modes in config.blocks("allowed_modes") {
            for kind in ["pid", "ipc", "userns", "uts"] {
                self.allowed_modes.insert(kind.to_owned(), modes.list(kind).into_iter().collect());
            }
        }
        Ok(())
    }
}

/// Settings that cannot be kept here.
fn refused_settings(config: Config<'_>) -> Vec<String> {
    let mut problems = Vec::new();
    for tls in config.blocks("tls") {
        if ["cert", "key", "ca"].iter().any(|k| !tls.text_or_empty(k).is_empty()) {
            problems.push(
                "tls: an engine behind TLS is not supported; use its unix socket (endpoint = \"unix:///…\")".to_owned(),
            );
        }
    }
    if config.flag("windows_allow_insecure_container_admin") == Some(true) {
        problems.push("windows_allow_insecure_container_admin: only Linux containers are supported".to_owned());
    }
    problems
}

fn at_least(name: &str, value: Duration, least: Duration) -> Result<(), ConfigError> {
    if value >= least {
        return Ok(());
    }
    Err(ConfigError::one(format!("{name} is less than the minimum of {least:?}")))
}

fn set_text(to: &mut String, config: Config<'_>, key: &str) {
    if let Some(text) = config.text(key).filter(|t| !t.is_empty()) {
        *to = text;
    }
}

fn set_flag(to: &mut bool, config: Config<'_>, key: &str) {
    *to = config.flag(key).unwrap_or(*to);
}

fn set_span(to: &mut Duration, config: Config<'_>, key: &str) {
    *to = config.span(key).unwrap_or(*to);
}

/// A capability in lower case without `cap_`.
pub(crate) fn normal_cap(name: &str) -> String {
    let lower = name.trim().to_ascii_lowercase();
    lower.strip_prefix("cap_").map_or(lower.clone(), str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn options() -> DockerOptions {
        DockerOptions::new("n", "/d".into(), "/s".into())
    }

    #[test]
    fn reads_a_plugin_block() {
        let config = json!({
            "endpoint": "unix:///x.sock",
            "auth": [{"config": "/etc/c.json", "helper": "pass"}],
            "gc": {"image": false, "image_delay": "1h", "dangling_containers": [{"period": "7m", "dry_run": "true"}]},
            "volumes": [{"enabled": true}],
            "allow_caps": ["CAP_NET_RAW", "chown"],
            "allowed_modes": {"pid": ["host"]},
            "pids_limit": 100,
        });
        let got = options().with_config(&config).unwrap();
        assert_eq!(got.endpoint, "unix:///x.sock");
        assert_eq!((got.auth_config, got.auth_helper), (Some("/etc/c.json".into()), Some("pass".to_owned())));
        assert!(!got.gc_image && got.gc_container && got.dangling.dry_run && got.volumes_enabled);
        assert_eq!((got.gc_image_delay.as_secs(), got.dangling.period.as_secs()), (3600, 420));
        assert_eq!(got.allow_caps, ["net_raw", "chown"].map(str::to_owned).into());
        assert!(got.allowed_modes["pid"].contains("host") && got.allowed_modes["ipc"].is_empty());
        assert_eq!(got.pids_limit, 100);
    }

    #[test]
    fn names_what_it_cannot_take() {
        for (config, word) in [
            (json!({"endpont": "x"}), "Did you mean \"endpoint\""),
            (json!({"endpoint": "ftp://x"}), "unix:///"),
            (json!({"tls": {"cert": "/c"}}), "tls"),
            (json!({"pull_activity_timeout": "5s"}), "pull_activity_timeout"),
            (json!({"gc": {"dangling_containers": {"creation_grace": "1s"}}}), "creation_grace"),
            (json!({"pids_limit": -1}), "pids_limit"),
            (json!({"windows_allow_insecure_container_admin": true}), "windows"),
        ] {
            let error = options().with_config(&config).expect_err("refused").to_string();
            assert!(error.contains(word), "{config}: {error}");
        }
    }
}
