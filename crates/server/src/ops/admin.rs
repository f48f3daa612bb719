//! What operators configure: scheduler, namespaces, node pools, services.

use crate::error::ServerError;
use crate::server::Server;
use herdsman_state::{
    Body, DeleteNamed, NODE_IDENTITY_TTL, Namespace, NodePool, SchedulerConfig, ServiceUpdates, SetSchedulerConfig,
    UpsertNamespaces, UpsertNodePools,
};

/// The longest name of a namespace or node pool.
const MAX_NAME: usize = 128;
/// The longest description.
const MAX_DESCRIPTION: usize = 256;

/// Whether a name is letters, digits, dashes and these extra characters, of a bounded length.
fn valid_name(name: &str, extra: &[char]) -> bool {
    (1..=MAX_NAME).contains(&name.len())
        && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '-' || extra.contains(&c))
}

fn multi(problems: &[String]) -> String {
    herdsman_model::validate::multi(problems.iter().map(String::as_str))
}

impl Server {
    /// Sets how the schedulers decide. Gives the index, and whether it was set: not when `cas` is not the stored modify
    /// index.
    ///
    /// # Errors
    /// 400 for an unknown algorithm.
    pub async fn set_scheduler_config(
        &self,
        mut config: SchedulerConfig,
        cas: Option<u64>,
    ) -> Result<(u64, bool), ServerError> {
        match config.scheduler_algorithm.as_str() {
            "binpack" | "spread" => {}
            "" => config.scheduler_algorithm = self.snapshot().scheduler_config().scheduler_algorithm.clone(),
            other => return Err(ServerError::new(400, format!("invalid scheduler algorithm: {other}"))),
        }
        let applied = self.propose(Body::SchedulerConfig(SetSchedulerConfig { config, cas })).await?;
        Ok((applied.index, applied.reply.updated))
    }

    /// Creates or changes a namespace. Gives the index.
    ///
    /// # Errors
    /// 500 with every fault.
    pub async fn upsert_namespace(&self, namespace: Namespace) -> Result<u64, ServerError> {
        let mut problems = Vec::new();
        if !valid_name(&namespace.name, &[]) {
            problems.push(format!("invalid name \"{}\". Must match regex ^[a-zA-Z0-9-]{{1,128}}$", namespace.name));
        }
        if namespace.description.chars().count() > MAX_DESCRIPTION {
            problems.push(format!("description longer than {MAX_DESCRIPTION}"));
        }
        if namespace.node_pool_configuration.is_some() {
            problems.push("invalid node pool configuration: Node Pools Governance is unlicensed.".to_owned());
        }
        if !problems.is_empty() {
            let text = format!("Invalid namespace \"{}\": {}", namespace.name, multi(&problems));
            return Err(ServerError::refused(text));
        }
        let command = UpsertNamespaces { namespaces: vec![namespace] };
        Ok(self.propose(Body::UpsertNamespaces(command)).await?.index)
    }

    /// Removes a namespace without jobs. Gives the index.
    ///
    /// # Errors
    /// 500 when there is none, it is the default, or it has jobs that are not dead.
    pub async fn delete_namespace(&self, name: &str) -> Result<u64, ServerError> {
        let command = DeleteNamed { names: vec![name.to_owned()], region: self.config().region.clone() };
        Ok(self.propose(Body::DeleteNamespaces(command)).await?.index)
    }

    /// Creates or changes a node pool. Gives the index.
    ///
    /// # Errors
    /// 400 with every fault, or when it is built in.
    pub async fn upsert_node_pool(&self, mut pool: NodePool) -> Result<u64, ServerError> {
        let mut problems = Vec::new();
        if !valid_name(&pool.name, &['_']) {
            problems.push(format!("invalid name \"{}\", must match regex ^[a-zA-Z0-9-_]{{1,128}}$", pool.name));
        }
        if pool.description.chars().count() > MAX_DESCRIPTION {
            problems.push(format!("description longer than {MAX_DESCRIPTION}"));
        }
        if let Some(config) = &pool.scheduler_configuration
            && !matches!(config.scheduler_algorithm.as_str(), "" | "binpack" | "spread")
        {
            problems.push(format!("invalid scheduler algorithm: {}", config.scheduler_algorithm));
        }
        if !problems.is_empty() {
            let text = format!("invalid node pool \"{}\": {}", pool.name, multi(&problems));
            return Err(ServerError::new(400, text));
        }
        if pool.node_identity_ttl == 0 {
            pool.node_identity_ttl = NODE_IDENTITY_TTL;
        }
        Ok(self.propose(Body::UpsertNodePools(UpsertNodePools { pools: vec![pool] })).await?.index)
    }

    /// Removes a node pool without nodes and jobs. Gives the index.
    ///
    /// # Errors
    /// 500 when there is none, or it is in use.
    pub async fn delete_node_pool(&self, name: &str) -> Result<u64, ServerError> {
        let command = DeleteNamed { names: vec![name.to_owned()], region: self.config().region.clone() };
        Ok(self.propose(Body::DeleteNodePools(command)).await?.index)
    }

    /// Removes a registration of a service. Gives the index.
    ///
    /// # Errors
    /// 500 when there is none of this id in the namespace.
    pub async fn delete_service(&self, namespace: &str, id: &str) -> Result<u64, ServerError> {
        let command = ServiceUpdates {
            deregister: vec![id.to_owned()],
            within: Some(namespace.to_owned()),
            ..ServiceUpdates::default()
        };
        Ok(self.propose(Body::Services(command)).await?.index)
    }
}
