//! Whether what is derived agrees with the rows.

use crate::snapshot::{Pin, Snapshot};

impl Snapshot {
    /// Derives every index and count again from the rows and compares. Takes time in proportion to all rows.
    ///
    /// # Errors
    /// The name of what does not agree.
    pub fn check(&self) -> Result<(), &'static str> {
        let mut fresh = Snapshot { versions: self.versions.clone(), jobs: self.jobs.clone(), ..Snapshot::default() };
        for (key, pins) in &self.pins {
            for (version, pin) in pins {
                let empty = Pin { job: pin.job.clone(), allocs: 0 };
                fresh.pins.entry(key.clone()).or_default().insert(*version, empty);
            }
        }
        self.jobs.values().for_each(|job| fresh.link_job(job));
        self.allocs.values().for_each(|alloc| fresh.link_alloc(alloc));
        self.evals.values().for_each(|eval| fresh.link_eval(eval));
        self.deployments.values().for_each(|deployment| fresh.link_deployment(deployment));
        self.services.values().for_each(|service| fresh.link_service(service));
        self.policies.values().for_each(|row| fresh.link_policy(row));
        let pins_agree = self.pins.iter().flat_map(|(_, pins)| pins.values()).map(|pin| pin.allocs).eq(fresh
            .pins
            .iter()
            .flat_map(|(_, pins)| pins.values())
            .map(|pin| pin.allocs));
        let agreements = [
            (pins_agree, "pins"),
            (self.pins.values().flat_map(|pins| pins.values()).all(|pin| pin.allocs > 0), "pins without allocations"),
            (self.counts == fresh.counts, "counts"),
            (self.allocs_by_node == fresh.allocs_by_node, "allocations by node"),
            (self.allocs_by_job == fresh.allocs_by_job, "allocations by job"),
            (self.allocs_by_eval == fresh.allocs_by_eval, "allocations by evaluation"),
            (self.allocs_by_deployment == fresh.allocs_by_deployment, "allocations by deployment"),
            (self.evals_by_job == fresh.evals_by_job, "evaluations by job"),
            (self.blocked_by_job == fresh.blocked_by_job, "blocked evaluations by job"),
            (self.system_jobs == fresh.system_jobs, "system jobs"),
            (self.deployments_by_job == fresh.deployments_by_job, "deployments by job"),
            (self.children == fresh.children, "children"),
            (self.dispatch_tokens == fresh.dispatch_tokens, "dispatch tokens"),
            (self.services_by_name == fresh.services_by_name, "services by name"),
            (self.services_by_alloc == fresh.services_by_alloc, "services by allocation"),
            (self.services_by_job == fresh.services_by_job, "services by job"),
            (self.policies_by_job == fresh.policies_by_job, "scaling policies by job"),
            (self.jobs.iter().all(|(key, job)| self.derive_job_status(key, job) == job.status), "job status"),
        ];
        match agreements.into_iter().find(|(agrees, _)| !agrees) {
            Some((_, what)) => Err(what),
            None => Ok(()),
        }
    }
}
