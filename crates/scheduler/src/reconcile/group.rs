//! One group: which of its allocations stay, which go, and which are missing.

use super::deploy::deploys;
use super::names::Names;
use super::{
    Cause, Class, GroupDeployment, Reconciler, Update, Wanted, classify, last_unknown, lost_stop, mark,
    reschedule_allowed, stop,
};
use crate::reconcile::classify::replaces;
use crate::reconcile::reschedule::{fail_time, next_delay};
use crate::texts;
use herdsman_model::values::SECOND;
use herdsman_model::{
    AllocId, AllocStop, Allocation, ClientStatus, DesiredStatus, DesiredUpdates, Job, Nanos, TaskGroup, Trigger,
};
use std::collections::BTreeSet;
use std::sync::Arc;

/// Reschedules due within so short a time are done at once.
const RESCHEDULE_WINDOW: Nanos = SECOND;
/// Reschedules due within so short a time of each other share one evaluation.
const FOLLOW_UP_WINDOW: Nanos = 5 * SECOND;
/// Shortest time that a node out of sight is given to stop its tasks.
const MIN_KILL_TIMEOUT: Nanos = 5 * SECOND;

pub(crate) type Allocs = Vec<Arc<Allocation>>;

/// The live allocations of a group by what has happened to them.
#[derive(Default)]
pub(crate) struct Sets {
    pub(crate) untainted: Allocs,
    pub(crate) migrate: Allocs,
    pub(crate) lost: Allocs,
    pub(crate) disconnecting: Allocs,
    pub(crate) reconnecting: Allocs,
    pub(crate) reschedule_now: Allocs,
    /// Out of sight and to be replaced now; they count as present too.
    pub(crate) replace_now: Allocs,
    /// Out of sight, since now or before.
    pub(crate) unknown: BTreeSet<AllocId>,
}

/// Whether and when an allocation is placed anew.
enum When {
    Never,
    Now,
    At(Nanos),
}

/// How far an allocation is in service: 0 not at all, 4 proven.
fn service_rank(alloc: &Allocation) -> u8 {
    match (alloc.work_over(), alloc.healthy(), alloc.client_status) {
        (true, ..) => 0,
        (false, Some(false), _) => 1,
        (false, Some(true), _) => 4,
        (false, None, ClientStatus::Running) => 3,
        (false, None, _) => 2,
    }
}

pub(crate) fn count(n: usize) -> u64 {
    u64::try_from(n).unwrap_or(u64::MAX)
}

fn remove(from: &mut Allocs, ids: &BTreeSet<AllocId>) {
    from.retain(|a| !ids.contains(&a.id));
}

impl Reconciler<'_> {
    /// Reconciles one group; returns whether it is complete as far as its deployment is concerned.
    pub(crate) fn group(&mut self, job: &Arc<Job>, group: &Arc<TaskGroup>, allocs: Allocs) -> bool {
        let mut counts = DesiredUpdates::default();
        let wanted_count = u64::try_from(group.count).unwrap_or(0);
        if wanted_count == 0 {
            self.stop_all(&group.name, &allocs);
            self.results.desired.entry(group.name.clone()).or_default();
            return true;
        }
        let mut part = self.deployment.group(group);
        let had_version = allocs.iter().any(|a| a.job_version == job.version && a.job_create_index == job.create_index);
        let holding = self.holds(group, &allocs);
        let mut rest = allocs;
        if self.input.batch {
            // What an older version has done is done; the new version does it anew.
            let outdated = |a: &Arc<Allocation>| {
                a.work_over() && (a.job_version < job.version || a.job_create_index < job.create_index)
            };
            let left = rest.iter().filter(|a| outdated(a) && !a.server_terminal()).count();
            rest.retain(|a| !outdated(a));
            counts.ignore = counts.ignore.saturating_add(count(left));
        }
        let canaries = self.canaries(group, &mut rest, &mut counts);
        let mut sets = self.sort(group, rest, &mut counts);
        self.reconnect(job, group, &mut sets, &mut counts);
        self.reschedules(group, &mut sets, &mut counts);
        self.disconnects(group, &mut sets, &mut counts);
        // While a lost allocation may still be stopping, nothing new begins.
        let holding = self.lost_later(group, &sets) || holding;
        if holding {
            sets.untainted.append(&mut sets.reschedule_now);
        }
        let mut names = Names::of(&job.id, &group.name, wanted_count, sets.present());
        let surplus = self.surplus(group, &part, &canaries, &mut sets, &mut names);
        counts.stop = counts.stop.saturating_add(count(surplus));
        let (mut destructive, in_place) = self.updates(group, &part, &canaries, &sets, &mut counts);
        let in_place_count = in_place.len();
        // Not proven yet by the deployment before, they are out of service for this one too.
        let unproven = in_place.iter().filter(|a| a.deployment_id.is_some() && a.healthy() != Some(true)).count();
        self.results.in_place.extend(in_place);
        let wants_canaries = self.wants_canaries(group, &part, &canaries, &destructive);
        if wants_canaries {
            self.place_canaries(group, &mut part, &canaries, &destructive, &mut names, &mut counts, holding);
        }
        let was_canarying = part.canarying() || wants_canaries;
        let mut limit = self.limit(group, &sets, destructive.len(), was_canarying);
        if self.deployment.current.is_none() && deploys(group) && !self.input.batch && !destructive.is_empty() {
            limit = limit.saturating_sub(unproven);
        }
        let placed = if holding {
            limit = 0;
            self.lost_without_place(&sets);
            0
        } else {
            self.placements(group, &sets, &canaries, &mut names, was_canarying, &mut limit, &mut counts)
        };
        let pending = placed + destructive.len() + sets.migrate.len() + sets.lost.len() + in_place_count;
        self.destructive(group, &mut destructive, limit, &mut counts);
        self.migrations(group, &sets, was_canarying, holding, &mut counts);
        let updating = !destructive.is_empty() || in_place_count > 0;
        self.deploy_group(job, group, &part, had_version, updating);
        self.results.desired.insert(group.name.clone(), counts);
        let held_back = sets.untainted.iter().any(|alloc| self.held_back(group, alloc));
        pending == 0 && !wants_canaries && sets.reschedule_now.is_empty() && !held_back
    }

    /// Whether an allocation failed that the deployment has yet to let be replaced. Ending the deployment before that would
    /// leave its place empty, because nothing looks at it again.
    fn held_back(&self, group: &TaskGroup, alloc: &Allocation) -> bool {
        let failed = alloc.work_failed() && alloc.next_allocation.is_none() && !alloc.server_terminal();
        failed
            && self.deploying(alloc)
            && !alloc.desired_transition.should_reschedule()
            && group.reschedule_policy.as_ref().is_some_and(|policy| reschedule_allowed(alloc, policy))
    }

    /// Stops canaries of old and failed deployments; returns those of the current one that go on.
    fn canaries(&mut self, group: &TaskGroup, rest: &mut Allocs, counts: &mut DesiredUpdates) -> Allocs {
        let deployment = &self.deployment;
        let unpromoted = |d: &Arc<herdsman_model::Deployment>| -> Vec<AllocId> {
            let part = d.task_groups.get(&group.name).filter(|g| !g.promoted);
            part.map(|g| g.placed_canaries.clone()).unwrap_or_default()
        };
        let mut unwanted: BTreeSet<AllocId> = deployment.old.iter().flat_map(unpromoted).collect();
        if deployment.failed {
            unwanted.extend(deployment.current.iter().flat_map(unpromoted));
        }
        let current = deployment.current.as_ref().and_then(|d| d.task_groups.get(&group.name));
        let wanted: BTreeSet<AllocId> =
            current.map(|g| g.placed_canaries.iter().copied().collect()).unwrap_or_default();
        let mut kept = Vec::new();
        let mut gone = BTreeSet::new();
        for alloc in rest.iter() {
            if unwanted.contains(&alloc.id) {
                gone.insert(alloc.id);
                if !alloc.server_terminal() {
                    counts.stop = counts.stop.saturating_add(1);
                }
            } else if wanted.contains(&alloc.id) && current.is_some_and(|g| !g.promoted) {
                match classify(alloc, group, self.input.nodes, self.input.now) {
                    Class::Migrate => {
                        self.results.stops.push((Arc::clone(alloc), stop(alloc.id, texts::MIGRATING)));
                        gone.insert(alloc.id);
                        counts.stop = counts.stop.saturating_add(1);
                    }
                    Class::Lost => {
                        self.results.stops.push((Arc::clone(alloc), lost_stop(alloc.id)));
                        gone.insert(alloc.id);
                        counts.stop = counts.stop.saturating_add(1);
                    }
                    Class::Untainted if !alloc.server_terminal() => kept.push(Arc::clone(alloc)),
                    _ => {}
                }
            }
        }
        for alloc in rest.iter().filter(|a| unwanted.contains(&a.id) && !a.server_terminal()) {
            let alloc = Arc::clone(alloc);
            self.stop_unneeded(&alloc);
        }
        remove(rest, &gone);
        kept
    }

    fn sort(&mut self, group: &TaskGroup, rest: Allocs, counts: &mut DesiredUpdates) -> Sets {
        let mut sets = Sets::default();
        for alloc in rest {
            match classify(&alloc, group, self.input.nodes, self.input.now) {
                Class::Untainted => sets.untainted.push(alloc),
                Class::Migrate => sets.migrate.push(alloc),
                Class::Lost => sets.lost.push(alloc),
                Class::Disconnecting => sets.disconnecting.push(alloc),
                Class::Reconnecting => sets.reconnecting.push(alloc),
                // What the servers stopped long since is not counted among what this evaluation leaves alone.
                Class::Ignore if alloc.server_terminal() => {}
                Class::Ignore => counts.ignore = counts.ignore.saturating_add(1),
            }
        }
        sets
    }

    /// Whether the group's allocation takes part in a deployment that is being worked on.
    fn deploying(&self, alloc: &Allocation) -> bool {
        self.deployment.active().is_some_and(|d| alloc.deployment_id == Some(d.id))
    }

    fn when(&self, group: &TaskGroup, alloc: &Allocation) -> When {
        let transition = &alloc.desired_transition;
        if transition.should_force_reschedule() && alloc.work_failed() {
            return When::Now;
        }
        let stopped_to_reschedule = transition.should_migrate() && transition.should_reschedule();
        if !alloc.work_failed() && !stopped_to_reschedule {
            return When::Never;
        }
        if self.deploying(alloc) && !transition.should_reschedule() {
            return When::Never;
        }
        let Some(policy) = group.reschedule_policy.as_ref().filter(|p| reschedule_allowed(alloc, p)) else {
            return When::Never;
        };
        if stopped_to_reschedule && !alloc.work_over() {
            return When::Now;
        }
        let at = fail_time(alloc).saturating_add(next_delay(alloc, policy));
        let asked_for = alloc.follow_up_eval == Some(self.input.eval.id);
        if asked_for || at.saturating_sub(self.input.now) <= RESCHEDULE_WINDOW { When::Now } else { When::At(at) }
    }

    /// Splits off what is placed anew now, and arranges for what is placed anew later.
    fn reschedules(&mut self, group: &TaskGroup, sets: &mut Sets, counts: &mut DesiredUpdates) {
        let mut later = Vec::new();
        let mut stay = Vec::new();
        for alloc in std::mem::take(&mut sets.untainted) {
            // One that has been replaced already, or whose work is well done, is present or gone, never placed anew.
            let over = alloc.work_over();
            if alloc.server_terminal() {
                stay.push(alloc);
                continue;
            }
            if over && alloc.next_allocation.is_some() {
                counts.ignore = counts.ignore.saturating_add(1);
                continue;
            }
            if over && !alloc.work_failed() && !self.input.batch {
                counts.ignore = counts.ignore.saturating_add(1);
                continue;
            }
            match self.when(group, &alloc) {
                When::Never => stay.push(alloc),
                When::Now => sets.reschedule_now.push(alloc),
                When::At(at) => {
                    if alloc.follow_up_eval.is_none() {
                        later.push((at, Arc::clone(&alloc)));
                    }
                    counts.reschedule_later = counts.reschedule_later.saturating_add(1);
                    stay.push(alloc);
                }
            }
        }
        sets.untainted = stay;
        let mut moving = Vec::new();
        for alloc in std::mem::take(&mut sets.migrate) {
            match self.when(group, &alloc) {
                When::Now => sets.reschedule_now.push(alloc),
                When::Never | When::At(_) => moving.push(alloc),
            }
        }
        sets.migrate = moving;
        counts.reschedule_now = count(sets.reschedule_now.len());
        self.later(later);
    }

    /// One evaluation for all reschedules due within a few seconds of each other.
    fn later(&mut self, mut later: Vec<(Nanos, Arc<Allocation>)>) {
        later.sort_by_key(|(at, alloc)| (*at, alloc.id));
        let mut window: Option<(Nanos, herdsman_model::EvalId)> = None;
        for (at, alloc) in later {
            let id = match window {
                Some((start, id)) if at.saturating_sub(start) <= FOLLOW_UP_WINDOW => id,
                _ => {
                    let first = window.is_none();
                    let trigger = if first { Trigger::AllocReschedule } else { Trigger::AllocFailure };
                    let id = self.follow_up(trigger, at, texts::DELAYED_RESCHEDULE);
                    window = Some((at, id));
                    id
                }
            };
            let stop = AllocStop { follow_up_eval: Some(id), ..mark(&alloc) };
            self.results.stops.push((alloc, stop));
        }
    }

    /// Marks what went out of sight as unknown, and sees to replacements of what is out of sight.
    fn disconnects(&mut self, group: &TaskGroup, sets: &mut Sets, counts: &mut DesiredUpdates) {
        let lost_after = group.lost_after();
        let gone = std::mem::take(&mut sets.disconnecting);
        counts.disconnect = count(gone.len());
        let timeout = (!gone.is_empty() && lost_after > 0).then(|| {
            let at = self.input.now.saturating_add(lost_after);
            self.follow_up(Trigger::MaxDisconnectTimeout, at, texts::DISCONNECT_TIMEOUT)
        });
        let new: BTreeSet<AllocId> = gone.iter().map(|a| a.id).collect();
        for alloc in &gone {
            let stop = AllocStop {
                desired_status: DesiredStatus::Run,
                desired_description: texts::UNKNOWN.to_owned(),
                client_status: Some(ClientStatus::Unknown),
                follow_up_eval: timeout,
                ..mark(alloc)
            };
            self.results.stops.push((Arc::clone(alloc), stop));
        }
        sets.untainted.extend(gone);
        let unknown = sets.untainted.iter().filter(|a| new.contains(&a.id) || a.client_status == ClientStatus::Unknown);
        sets.unknown = unknown.map(|a| a.id).collect();
        if !replaces(group) {
            return;
        }
        let Some(policy) = &group.reschedule_policy else { return };
        let mut first_later: Option<Nanos> = None;
        for alloc in &sets.untainted {
            let just_gone = new.contains(&alloc.id);
            let unknown = just_gone || (alloc.client_status == ClientStatus::Unknown && !alloc.work_over());
            if !unknown || self.is_replaced(alloc) || !reschedule_allowed(alloc, policy) {
                continue;
            }
            let since = if just_gone { self.input.now } else { last_unknown(alloc).unwrap_or(self.input.now) };
            let at = since.saturating_add(next_delay(alloc, policy));
            if at.saturating_sub(self.input.now) <= RESCHEDULE_WINDOW {
                sets.replace_now.push(Arc::clone(alloc));
                counts.reschedule_now = counts.reschedule_now.saturating_add(1);
            } else if just_gone {
                counts.reschedule_later = counts.reschedule_later.saturating_add(1);
                first_later = Some(first_later.map_or(at, |t| t.max(at)));
            }
        }
        if let Some(at) = first_later {
            self.follow_up(Trigger::AllocReschedule, at, texts::DELAYED_RESCHEDULE);
        }
    }

    /// Some allocation that is not stopped has taken its place.
    pub(crate) fn is_replaced(&self, alloc: &Allocation) -> bool {
        self.input.allocs.iter().any(|a| a.previous_allocation == Some(alloc.id) && !a.server_terminal())
    }

    /// How long after its loss an allocation is sure to have stopped, by the group's own wish.
    pub(super) fn stop_delay(group: &TaskGroup) -> Option<Nanos> {
        let asked =
            group.disconnect.as_ref().and_then(|d| d.stop_on_client_after).or(group.stop_after_client_disconnect)?;
        let kill = group.tasks.iter().map(|t| t.kill_timeout).max().unwrap_or(0).max(MIN_KILL_TIMEOUT);
        Some(asked.saturating_add(kill))
    }

    /// Some allocation lost before may still be stopping on its node. Another look is asked for unless one is to come.
    fn holds(&mut self, group: &TaskGroup, allocs: &[Arc<Allocation>]) -> bool {
        let Some(delay) = Self::stop_delay(group) else { return false };
        let until = |alloc: &Allocation| {
            let lost = alloc.state_changes.iter().rev().find(|c| c.value == ClientStatus::Lost);
            lost.map_or(alloc.modify_time, |c| c.time).saturating_add(delay)
        };
        let now = self.input.now;
        let stopping = allocs.iter().filter(|a| a.client_status == ClientStatus::Lost && until(a) > now);
        let stopping: Allocs = stopping.cloned().collect();
        let Some(last) = stopping.iter().max_by_key(|a| until(a)) else { return false };
        if stopping.iter().all(|a| a.follow_up_eval.is_none()) {
            let id = self.follow_up(Trigger::AllocReschedule, until(last), texts::DELAYED_RESCHEDULE);
            let stop = AllocStop { follow_up_eval: Some(id), ..mark(last) };
            self.results.stops.push((Arc::clone(last), stop));
        }
        true
    }

    /// Lost allocations that may still be stopping: asks for another look when they are sure to have stopped.
    fn lost_later(&mut self, group: &TaskGroup, sets: &Sets) -> bool {
        let Some(delay) = Self::stop_delay(group) else { return false };
        let fresh: Allocs = sets.lost.iter().filter(|a| !a.client_terminal()).cloned().collect();
        if fresh.is_empty() {
            return false;
        }
        let at = self.input.now.saturating_add(delay);
        let id = self.follow_up(Trigger::AllocReschedule, at, texts::DELAYED_RESCHEDULE);
        for alloc in fresh {
            let stop = AllocStop { follow_up_eval: Some(id), ..lost_stop(alloc.id) };
            self.results.stops.push((alloc, stop));
        }
        true
    }

    /// Lost allocations that nothing takes the place of yet are stopped all the same.
    fn lost_without_place(&mut self, sets: &Sets) {
        let noted: BTreeSet<AllocId> = self.results.stops.iter().map(|(a, _)| a.id).collect();
        for alloc in sets.lost.iter().filter(|a| !noted.contains(&a.id)) {
            self.results.stops.push((Arc::clone(alloc), lost_stop(alloc.id)));
        }
    }

    /// Stops what is more than is wanted; returns how many.
    fn surplus(
        &mut self,
        group: &TaskGroup,
        part: &GroupDeployment,
        canaries: &Allocs,
        sets: &mut Sets,
        names: &mut Names,
    ) -> usize {
        let canary_ids: BTreeSet<AllocId> = canaries.iter().map(|a| a.id).collect();
        let canarying = part.canarying();
        // While they are tried, canaries come on top of what is wanted.
        let unknown = sets.unknown.clone();
        let counts = |a: &Arc<Allocation>| !(unknown.contains(&a.id) || canarying && canary_ids.contains(&a.id));
        let present = sets.untainted.iter().filter(|a| counts(a)).count() + sets.migrate.len();
        let wanted = usize::try_from(group.count).unwrap_or(0);
        let mut surplus = present.saturating_sub(wanted);
        if surplus == 0 {
            return 0;
        }
        let mut doomed: Allocs = Vec::new();
        if !canarying && part.state.promoted {
            let placed: BTreeSet<AllocId> = part.state.placed_canaries.iter().copied().collect();
            let promoted: BTreeSet<&str> =
                sets.untainted.iter().filter(|a| placed.contains(&a.id)).map(|a| a.name.as_str()).collect();
            let replaced = |a: &&Arc<Allocation>| !placed.contains(&a.id) && promoted.contains(a.name.as_str());
            doomed.extend(sets.untainted.iter().filter(replaced).filter(|a| counts(a)).take(surplus).cloned());
            surplus -= doomed.len();
        }
        let by_index = |allocs: &Allocs| {
            let mut sorted: Allocs = allocs.clone();
            sorted.sort_by_key(|a| (std::cmp::Reverse(a.index()), a.id));
            sorted
        };
        for alloc in by_index(&sets.migrate).into_iter().take(surplus) {
            surplus -= 1;
            doomed.push(alloc);
        }
        let taken: BTreeSet<AllocId> = doomed.iter().map(|a| a.id).collect();
        let mut rest = by_index(&sets.untainted);
        rest.retain(|a| counts(a) && !taken.contains(&a.id));
        // Of two of one name, the one of the older version goes.
        rest.sort_by_key(|a| (std::cmp::Reverse(a.index()), a.job_version));
        doomed.extend(rest.into_iter().take(surplus));
        let ids: BTreeSet<AllocId> = doomed.iter().map(|a| a.id).collect();
        remove(&mut sets.untainted, &ids);
        remove(&mut sets.migrate, &ids);
        let stopped = doomed.len();
        for alloc in doomed {
            names.release(&alloc);
            self.stop_unneeded(&alloc);
        }
        stopped
    }

    /// Sorts what stays into what is replaced and what is updated in place.
    fn updates(
        &mut self,
        group: &Arc<TaskGroup>,
        part: &GroupDeployment,
        canaries: &Allocs,
        sets: &Sets,
        counts: &mut DesiredUpdates,
    ) -> (Allocs, Allocs) {
        let canary_ids: BTreeSet<AllocId> = canaries.iter().map(|a| a.id).collect();
        let (mut destructive, mut in_place) = (Vec::new(), Vec::new());
        for alloc in &sets.untainted {
            if part.canarying() && canary_ids.contains(&alloc.id) {
                counts.ignore = counts.ignore.saturating_add(1);
                continue;
            }
            // Nothing can be asked of what is out of sight or already stopped.
            if sets.unknown.contains(&alloc.id) || alloc.server_terminal() {
                counts.ignore = counts.ignore.saturating_add(1);
                continue;
            }
            match self.updater.update(alloc, group) {
                Update::None => counts.ignore = counts.ignore.saturating_add(1),
                Update::InPlace => in_place.push(Arc::clone(alloc)),
                Update::Destructive => destructive.push(Arc::clone(alloc)),
            }
        }
        counts.in_place_update = count(in_place.len());
        // What does not work, or not yet, is replaced first, so that what works stays the longest.
        destructive.sort_by_key(|a| (service_rank(a), a.index(), a.id));
        (destructive, in_place)
    }

    fn wants_canaries(
        &self,
        group: &TaskGroup,
        part: &GroupDeployment,
        canaries: &Allocs,
        destructive: &Allocs,
    ) -> bool {
        let wanted = group.update.as_ref().map_or(0, |u| u.canary);
        !self.input.batch
            && deploys(group)
            && wanted > 0
            && (!destructive.is_empty() || part.canarying())
            && canaries.len() < usize::try_from(wanted).unwrap_or(usize::MAX)
            && !part.state.promoted
    }

    #[allow(clippy::too_many_arguments)]
    fn place_canaries(
        &mut self,
        group: &Arc<TaskGroup>,
        part: &mut GroupDeployment,
        canaries: &Allocs,
        destructive: &Allocs,
        names: &mut Names,
        counts: &mut DesiredUpdates,
        holding: bool,
    ) {
        let wanted = group.update.as_ref().map_or(0, |u| u.canary);
        part.state.desired_canaries = wanted;
        if self.deployment.paused || self.deployment.failed || holding {
            return;
        }
        let missing = count(usize::try_from(wanted).unwrap_or(0).saturating_sub(canaries.len()));
        counts.canary = missing;
        for name in names.next_canaries(missing, canaries, destructive) {
            self.results.wanted.push(Wanted {
                name,
                group: Arc::clone(group),
                cause: Cause::Canary,
                previous: None,
                stop_previous: None,
                canary: true,
                downgrade: false,
            });
        }
    }

    /// How many allocations may be out of service for the update at once.
    fn limit(&self, group: &TaskGroup, sets: &Sets, destructive: usize, canarying: bool) -> usize {
        let max_parallel = group.update.as_ref().map_or(0, |u| u.max_parallel);
        let deploys = !self.input.batch && max_parallel > 0;
        if !deploys || destructive + sets.migrate.len() == 0 {
            return usize::try_from(group.count).unwrap_or(0);
        }
        if self.deployment.paused || self.deployment.failed || canarying {
            return 0;
        }
        let mut limit = usize::try_from(max_parallel).unwrap_or(0);
        let Some(current) = &self.deployment.current else { return limit };
        for alloc in sets.untainted.iter().filter(|a| a.deployment_id == Some(current.id)) {
            match alloc.healthy() {
                Some(true) => {}
                Some(false) => return 0,
                None => limit = limit.saturating_sub(1),
            }
        }
        limit
    }

    /// Asks for what is missing; returns how many.
    #[allow(clippy::too_many_arguments)]
    fn placements(
        &mut self,
        group: &Arc<TaskGroup>,
        sets: &Sets,
        canaries: &Allocs,
        names: &mut Names,
        canarying: bool,
        limit: &mut usize,
        counts: &mut DesiredUpdates,
    ) -> usize {
        let ready = !self.deployment.paused && !self.deployment.failed && !canarying;
        let canary_ids: BTreeSet<AllocId> = canaries.iter().map(|a| a.id).collect();
        let wanted = usize::try_from(group.count).unwrap_or(0);
        let on_top = |a: &&Arc<Allocation>| !(canarying && canary_ids.contains(&a.id));
        let mut present = sets.untainted.iter().filter(on_top).count() + sets.migrate.len();
        let mut asked = Vec::new();
        for alloc in &sets.reschedule_now {
            let canary = canarying && canary_ids.contains(&alloc.id);
            if !canary {
                // More present than wanted can only be after the count went down: nothing takes its place.
                if present >= wanted {
                    self.stop_unneeded(alloc);
                    counts.stop = counts.stop.saturating_add(1);
                    continue;
                }
                present += 1;
            }
            let failed_here =
                self.deployment.failed && self.deployment.current.as_ref().map(|d| d.id) == alloc.deployment_id;
            if failed_here && alloc.deployment_id.is_some() {
                continue;
            }
            let stop_previous = AllocStop { client_status: None, ..stop(alloc.id, texts::WAS_RESCHEDULED) };
            asked.push(self.replacement(group, alloc, Cause::Reschedule, Some(stop_previous), canary));
        }
        // What is out of sight is made up for as far as what is in sight falls short of the count.
        let in_sight = sets.untainted.iter().filter(on_top).filter(|a| !sets.unknown.contains(&a.id)).count();
        let short = wanted.saturating_sub(in_sight + sets.migrate.len());
        for alloc in sets.replace_now.iter().take(short) {
            asked.push(self.replacement(group, alloc, Cause::Disconnect, None, false));
        }
        for alloc in &sets.lost {
            self.results.stops.push((Arc::clone(alloc), lost_stop(alloc.id)));
            if present < wanted {
                present += 1;
                asked.push(self.replacement(group, alloc, Cause::Lost, None, false));
            }
        }
        if ready {
            for name in names.next(count(wanted.saturating_sub(present))) {
                asked.push(Wanted {
                    name,
                    group: Arc::clone(group),
                    cause: Cause::Missing,
                    previous: None,
                    stop_previous: None,
                    canary: false,
                    downgrade: false,
                });
            }
            *limit = limit.saturating_sub(asked.len());
        } else {
            for hole in self.holes(group).into_iter().filter(|a| names.take(a)).take(wanted.saturating_sub(present)) {
                asked.push(self.replacement(group, &hole, Cause::Lost, None, false));
            }
        }
        for one in &mut asked {
            one.downgrade = canarying && !one.canary;
        }
        let placed = asked.len();
        counts.place = counts.place.saturating_add(count(placed));
        self.results.wanted.extend(asked);
        placed
    }

    /// Allocations that had to go when there was no room for another: their places are filled even while the deployment
    /// lets nothing new begin.
    fn holes(&self, group: &TaskGroup) -> Allocs {
        let is_hole = |a: &&Arc<Allocation>| {
            let driven_out = a.client_status == ClientStatus::Lost || a.desired_transition.should_migrate();
            *a.task_group == *group.name
                && a.server_terminal()
                && driven_out
                && a.next_allocation.is_none()
                && !a.is_canary()
                && !self.is_replaced(a)
        };
        let mut holes: Allocs = self.input.allocs.iter().filter(is_hole).cloned().collect();
        holes.sort_by_key(|a| (std::cmp::Reverse(a.modify_index), a.id));
        holes
    }

    fn replacement(
        &self,
        group: &Arc<TaskGroup>,
        alloc: &Arc<Allocation>,
        cause: Cause,
        stop_previous: Option<AllocStop>,
        canary: bool,
    ) -> Wanted {
        Wanted {
            name: alloc.name.clone(),
            group: Arc::clone(group),
            cause,
            previous: Some(Arc::clone(alloc)),
            stop_previous,
            canary,
            downgrade: false,
        }
    }

    /// Replaces as many outdated allocations as the limit lets go at once.
    fn destructive(
        &mut self,
        group: &Arc<TaskGroup>,
        outdated: &mut Allocs,
        limit: usize,
        counts: &mut DesiredUpdates,
    ) {
        let now = outdated.len().min(limit);
        counts.destructive_update = count(now);
        counts.ignore = counts.ignore.saturating_add(count(outdated.len() - now));
        for alloc in outdated.iter().take(now) {
            let wanted = self.replacement(group, alloc, Cause::Update, Some(stop(alloc.id, texts::UPDATING)), false);
            self.results.wanted.push(wanted);
        }
    }

    /// Moves what must leave its node.
    fn migrations(
        &mut self,
        group: &Arc<TaskGroup>,
        sets: &Sets,
        canarying: bool,
        holding: bool,
        counts: &mut DesiredUpdates,
    ) {
        counts.migrate = count(sets.migrate.len());
        for alloc in &sets.migrate {
            self.results.stops.push((Arc::clone(alloc), stop(alloc.id, texts::MIGRATING)));
            let stays_away = alloc.desired_transition.migrate_disable_placement == Some(true)
                || alloc.desired_transition.should_reschedule();
            if holding || self.input.batch && stays_away {
                continue;
            }
            let mut wanted = self.replacement(group, alloc, Cause::Migrate, None, alloc.is_canary() && canarying);
            wanted.downgrade = canarying && !wanted.canary;
            self.results.wanted.push(wanted);
        }
    }
}

impl Sets {
    /// Every allocation whose name is in use.
    fn present(&self) -> impl Iterator<Item = &Arc<Allocation>> {
        let present = self.untainted.iter().chain(&self.migrate).chain(&self.reschedule_now);
        present.chain(&self.lost)
    }
}
