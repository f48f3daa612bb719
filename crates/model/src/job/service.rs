//! Services and their checks.

use crate::job::Identity;
use crate::values::{List, Map, Nanos};
use serde::{Deserialize, Serialize};

/// A service registered while its task or group runs.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct Service {
    pub name: String,
    pub task_name: String,
    pub port_label: String,
    pub address_mode: String,
    pub address: String,
    pub enable_tag_override: bool,
    pub tags: List<String>,
    pub canary_tags: List<String>,
    pub checks: List<Check>,
    pub connect: Option<serde_json::Value>,
    pub meta: Map<String>,
    pub canary_meta: Map<String>,
    pub tagged_addresses: Map<String>,
    pub namespace: String,
    pub on_update: String,
    pub provider: String,
    pub cluster: String,
    #[serde(rename = "Kind")]
    pub connect_kind: String,
    pub identity: Option<Identity>,
    pub weights: Option<Weights>,
}

/// Weights of a Consul service.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct Weights {
    pub passing: i64,
    pub warning: i64,
}

/// A health check of a service.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct Check {
    pub name: String,
    #[serde(rename = "Type")]
    pub kind: String,
    pub command: String,
    pub args: List<String>,
    pub path: String,
    pub protocol: String,
    pub port_label: String,
    pub expose: bool,
    pub address_mode: String,
    pub interval: Nanos,
    pub timeout: Nanos,
    pub initial_status: String,
    pub notes: String,
    #[serde(rename = "TLSServerName")]
    pub tls_server_name: String,
    #[serde(rename = "TLSSkipVerify")]
    pub tls_skip_verify: bool,
    pub method: String,
    pub header: Map<Vec<String>>,
    pub check_restart: Option<CheckRestart>,
    #[serde(rename = "GRPCService")]
    pub grpc_service: String,
    #[serde(rename = "GRPCUseTLS")]
    pub grpc_use_tls: bool,
    pub task_name: String,
    pub success_before_passing: i64,
    pub failures_before_critical: i64,
    pub failures_before_warning: i64,
    pub body: String,
    pub on_update: String,
}

/// Restarts the task when a check stays unhealthy.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct CheckRestart {
    pub limit: i64,
    pub grace: Nanos,
    pub ignore_warnings: bool,
}
