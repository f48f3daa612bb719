//! Launches periodic jobs (`compat/scheduler.md` section 14).

use super::{next_batch, sleep_until};
use crate::feed::Batch;
use crate::server::Server;
use herdsman_expr::cron::{Cron, Zone};
use herdsman_model::values::SECOND;
use herdsman_model::{Job, JobStatus};
use herdsman_state::{Body, JobKey, LaunchPeriodic, Row};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use tokio::sync::broadcast;

/// Jobs by when they are launched next.
#[derive(Debug, Default)]
struct Timetable {
    next: BTreeMap<JobKey, i64>,
    by_time: BTreeSet<(i64, JobKey)>,
}

impl Timetable {
    fn set(&mut self, key: JobKey, at: Option<i64>) {
        if let Some(before) = self.next.remove(&key) {
            self.by_time.remove(&(before, key.clone()));
        }
        if let Some(at) = at {
            self.by_time.insert((at, key.clone()));
            self.next.insert(key, at);
        }
    }
}

/// The next launch of a job after a time, nanoseconds; none when there is none or its schedule cannot be read.
pub(crate) fn next_launch(job: &Job, after: i64) -> Option<i64> {
    let periodic = job.periodic.as_ref()?;
    let zone = if periodic.time_zone.is_empty() { Zone::utc() } else { Zone::named(&periodic.time_zone).ok()? };
    let one = (!periodic.spec.is_empty()).then_some(&periodic.spec);
    let seconds = after.div_euclid(SECOND);
    let next = one
        .into_iter()
        .chain(periodic.specs.iter())
        .filter_map(|spec| Cron::parse(spec).ok())
        .filter_map(|cron| cron.next_in(seconds, &zone))
        .min()?;
    next.checked_mul(SECOND)
}

/// The child of a periodic job that is launched at a time.
pub(crate) fn child_of(job: &Job, launch: i64) -> Job {
    let mut child = job.clone();
    child.id = format!("{}/periodic-{}", job.id, launch.div_euclid(SECOND));
    child.name.clone_from(&child.id);
    child.parent_id.clone_from(&job.id);
    child.periodic = None;
    child.status = JobStatus::Pending;
    child.status_description.clear();
    child.stable = false;
    child.version_tag = None;
    for place in child.task_groups.iter_mut().filter(|group| group.scaling.is_some()) {
        // A policy of its own, not its parent's.
        if let Some(scaling) = &mut Arc::make_mut(place).scaling {
            scaling.id.clear();
        }
    }
    child
}

pub(crate) async fn run(server: Server, mut changes: broadcast::Receiver<Arc<Batch>>) {
    let mut table = Timetable::default();
    rebuild(&server, &mut table);
    loop {
        let now = server.now();
        while let Some((at, key)) = table.by_time.first().cloned() {
            if at > now {
                break;
            }
            let job = server.snapshot().job_by_key(&key).cloned();
            let again = job.as_ref().and_then(|job| next_launch(job, at.max(now)));
            table.set(key, again);
            if let Some(job) = job.filter(|job| job.is_periodic_active()) {
                launch(&server, &job, at).await;
            }
        }
        let due = table.by_time.first().map(|(at, _)| *at);
        tokio::select! {
            biased;
            batch = next_batch(&mut changes) => match batch {
                Some(batch) => note(&server, &batch, &mut table),
                None => rebuild(&server, &mut table),
            },
            () = sleep_until(&server, due) => {}
        }
    }
}

/// Every launch that was missed while nobody led is made up once, if overlap is allowed or nothing of the job runs.
fn rebuild(server: &Server, table: &mut Timetable) {
    *table = Timetable::default();
    let snapshot = server.snapshot();
    for job in snapshot.jobs().filter(|job| job.is_periodic_active()) {
        let key = JobKey::of(job);
        let last = snapshot.periodic_launch(&key).map_or(job.submit_time, |launch| launch.launch);
        let missed = next_launch(job, last).is_some_and(|at| at <= server.now());
        let prohibited = job.periodic.as_ref().is_some_and(|periodic| periodic.prohibit_overlap);
        let busy = prohibited && snapshot.job_children(&key).any(|child| snapshot.job_is_live(&JobKey::of(child)));
        let at = if missed && !busy { Some(server.now()) } else { next_launch(job, server.now()) };
        table.set(key, at);
    }
}

fn note(server: &Server, batch: &Batch, table: &mut Timetable) {
    for change in &batch.changes {
        match (&change.before, &change.after) {
            (_, Some(Row::Job(job))) if job.is_periodic_active() => {
                table.set(JobKey::of(job), next_launch(job, server.now()));
            }
            (_, Some(Row::Job(job))) | (Some(Row::Job(job)), None) if job.is_periodic() => {
                table.set(JobKey::of(job), None);
            }
            _ => {}
        }
    }
}

async fn launch(server: &Server, job: &Job, at: i64) {
    let command = LaunchPeriodic {
        namespace: job.namespace.clone(),
        job_id: job.id.clone(),
        launch: at,
        child: child_of(job, at),
        prohibit_overlap: job.periodic.as_ref().is_some_and(|periodic| periodic.prohibit_overlap),
        seed: server.seed(),
    };
    match server.propose(Body::LaunchPeriodic(Box::new(command))).await {
        Ok(done) if !done.reply.updated => {
            tracing::debug!(job = %job.id, "a launch was skipped because an earlier one still runs");
        }
        Ok(_) => {}
        Err(error) => tracing::warn!(job = %job.id, %error, "a periodic job could not be launched"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use herdsman_model::{List, PeriodicConfig};

    fn job(spec: &str, zone: &str) -> Job {
        let periodic = PeriodicConfig {
            enabled: true,
            specs: List(vec![spec.to_owned()]),
            time_zone: zone.to_owned(),
            ..PeriodicConfig::default()
        };
        Job { id: "n".into(), periodic: Some(periodic), ..Job::default() }
    }

    #[test]
    fn nomad_5410_no_tight_loop_over_daylight_saving_changes() {
        let job = job("0 2 * * *", "America/New_York");
        // Ten days round each change of 2024, in seconds.
        for start in [1_709_600_000i64, 1_730_100_000] {
            let (mut at, mut launches) = (start * SECOND, Vec::new());
            while at < (start + 10 * 86_400) * SECOND {
                let next = next_launch(&job, at).unwrap();
                assert!(next > at, "a launch never repeats");
                launches.push(next);
                at = next;
            }
            assert!((9..=11).contains(&launches.len()), "{} launches in ten days", launches.len());
        }
    }

    #[test]
    fn a_child_is_no_periodic_job_itself() {
        let child = child_of(&job("* * * * *", ""), 1_700_000_000 * SECOND);
        assert_eq!(child.id, "n/periodic-1700000000");
        assert_eq!(child.parent_id, "n");
        assert!(child.periodic.is_none());
    }
}
