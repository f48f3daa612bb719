//! The evaluation broker: which evaluation is worked on next. Memory of the leader only, rebuilt from state.
//!
//! One evaluation per job is outstanding at a time. The others of a job wait; once the outstanding one is done the newest
//! of them goes on and the rest are superfluous.

use herdsman_model::{EvalId, Evaluation, JobType};
use herdsman_state::JobKey;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Deliveries of one evaluation before it is given up.
pub(crate) const DELIVERY_LIMIT: u32 = 3;
/// Wait before the second delivery, nanoseconds.
const FIRST_RETRY: i64 = 1_000_000_000;
/// Wait added with each further delivery, nanoseconds.
const LATER_RETRY: i64 = 20_000_000_000;

/// Place in the queue: highest priority, then oldest.
type ReadyKey = (Reverse<i64>, u64, EvalId);
/// Place among those of one job: highest priority, then newest.
type WaitingKey = (Reverse<i64>, Reverse<u64>, EvalId);

/// An evaluation somebody works on.
#[derive(Debug)]
struct Outstanding {
    token: u64,
    job: JobKey,
    /// When it is taken back.
    deadline: i64,
    /// A newer form of it arrived meanwhile.
    again: Option<Arc<Evaluation>>,
}

/// An evaluation handed out.
#[derive(Debug, Clone)]
pub(crate) struct Delivery {
    pub eval: Arc<Evaluation>,
    pub token: u64,
}

/// Which evaluation is worked on next.
#[derive(Debug, Default)]
pub(crate) struct Broker {
    evals: BTreeMap<EvalId, Arc<Evaluation>>,
    ready: BTreeSet<ReadyKey>,
    waiting: BTreeMap<JobKey, BTreeSet<WaitingKey>>,
    /// The evaluation of each job that is ready or outstanding.
    current: BTreeMap<JobKey, EvalId>,
    outstanding: BTreeMap<EvalId, Outstanding>,
    delayed: BTreeSet<(i64, EvalId)>,
    deliveries: BTreeMap<EvalId, u32>,
    next_token: u64,
    paused: bool,
}

fn key_of(eval: &Evaluation) -> JobKey {
    JobKey { namespace: eval.namespace.clone(), id: eval.job_id.clone() }
}

impl Broker {
    /// Whether anything is handed out.
    pub fn pause(&mut self, paused: bool) {
        self.paused = paused;
    }

    /// Takes an evaluation in. One that is outstanding is queued again once it is done.
    pub fn enqueue(&mut self, eval: Arc<Evaluation>, now: i64) {
        if eval.kind == JobType::Core {
            return;
        }
        if let Some(outstanding) = self.outstanding.get_mut(&eval.id) {
            outstanding.again = Some(eval);
            return;
        }
        if self.evals.contains_key(&eval.id) {
            self.remove(eval.id);
        }
        let due = eval.wait_until.unwrap_or(0).max(if eval.wait > 0 {
            eval.create_time.saturating_add(eval.wait)
        } else {
            0
        });
        self.evals.insert(eval.id, eval.clone());
        if due > now {
            self.delayed.insert((due, eval.id));
        } else {
            self.make_ready(&eval);
        }
    }

    fn make_ready(&mut self, eval: &Evaluation) {
        use std::collections::btree_map::Entry;
        match self.current.entry(key_of(eval)) {
            Entry::Occupied(busy) => {
                let place = (Reverse(eval.priority), Reverse(eval.modify_index), eval.id);
                self.waiting.entry(busy.key().clone()).or_default().insert(place);
            }
            Entry::Vacant(free) => {
                free.insert(eval.id);
                self.ready.insert((Reverse(eval.priority), eval.create_index, eval.id));
            }
        }
    }

    /// Forgets an evaluation that is over or gone; one that is outstanding is forgotten when it is done.
    pub fn remove(&mut self, id: EvalId) {
        if self.outstanding.contains_key(&id) {
            return;
        }
        let Some(eval) = self.evals.remove(&id) else { return };
        let job = key_of(&eval);
        self.deliveries.remove(&id);
        self.ready.remove(&(Reverse(eval.priority), eval.create_index, id));
        self.delayed.retain(|(_, other)| *other != id);
        if let Some(waiting) = self.waiting.get_mut(&job) {
            waiting.remove(&(Reverse(eval.priority), Reverse(eval.modify_index), id));
            if waiting.is_empty() {
                self.waiting.remove(&job);
            }
        }
        if self.current.get(&job) == Some(&id) {
            self.current.remove(&job);
            // Nothing was done: the next one of the job goes on, and none is superfluous.
            self.promote(&job);
        }
    }

    /// Makes the newest waiting evaluation of a job ready.
    fn promote(&mut self, job: &JobKey) {
        let Some(waiting) = self.waiting.get_mut(job) else { return };
        let next = waiting.pop_first();
        if waiting.is_empty() {
            self.waiting.remove(job);
        }
        if let Some((_, _, id)) = next
            && let Some(eval) = self.evals.get(&id).cloned()
        {
            self.make_ready(&eval);
        }
    }

    /// The next evaluation to work on. It comes back after `nack_after` nanoseconds of silence.
    pub fn dequeue(&mut self, now: i64, nack_after: i64) -> Option<Delivery> {
        if self.paused {
            return None;
        }
        let (_, _, id) = self.ready.pop_first()?;
        let eval = self.evals.get(&id)?.clone();
        self.next_token += 1;
        let token = self.next_token;
        *self.deliveries.entry(id).or_insert(0) += 1;
        let outstanding =
            Outstanding { token, job: key_of(&eval), deadline: now.saturating_add(nack_after), again: None };
        self.outstanding.insert(id, outstanding);
        Some(Delivery { eval, token })
    }

    /// Whether this delivery still counts.
    pub fn is_current(&self, id: EvalId, token: u64) -> bool {
        self.outstanding.get(&id).is_some_and(|outstanding| outstanding.token == token)
    }

    /// The worker goes on with this delivery: its time begins anew.
    pub fn touch(&mut self, id: EvalId, token: u64, now: i64, nack_after: i64) {
        if let Some(outstanding) = self.outstanding.get_mut(&id)
            && outstanding.token == token
        {
            outstanding.deadline = now.saturating_add(nack_after);
        }
    }

    /// A delivery is done. Gives the evaluations that it made superfluous.
    pub fn ack(&mut self, id: EvalId, token: u64, now: i64) -> Vec<EvalId> {
        if !self.is_current(id, token) {
            return Vec::new();
        }
        let Some(done) = self.outstanding.remove(&id) else { return Vec::new() };
        self.evals.remove(&id);
        self.deliveries.remove(&id);
        if self.current.get(&done.job) == Some(&id) {
            self.current.remove(&done.job);
        }
        self.promote(&done.job);
        let older: Vec<EvalId> =
            self.waiting.remove(&done.job).into_iter().flatten().map(|(_, _, waiting)| waiting).collect();
        for superfluous in &older {
            self.evals.remove(superfluous);
            self.deliveries.remove(superfluous);
        }
        if let Some(again) = done.again {
            self.enqueue(again, now);
        }
        older
    }

    /// A delivery failed. Gives the evaluation when it was delivered too often.
    pub fn nack(&mut self, id: EvalId, token: u64, now: i64) -> Option<Arc<Evaluation>> {
        if !self.is_current(id, token) {
            return None;
        }
        let done = self.outstanding.remove(&id)?;
        let eval = done.again.or_else(|| self.evals.get(&id).cloned())?;
        self.evals.remove(&id);
        if self.current.get(&done.job) == Some(&id) {
            self.current.remove(&done.job);
        }
        let deliveries = self.deliveries.get(&id).copied().unwrap_or(0);
        if deliveries >= DELIVERY_LIMIT {
            self.deliveries.remove(&id);
            self.promote(&done.job);
            return Some(eval);
        }
        let wait = if deliveries <= 1 { FIRST_RETRY } else { i64::from(deliveries - 1).saturating_mul(LATER_RETRY) };
        self.evals.insert(id, eval);
        self.delayed.insert((now.saturating_add(wait), id));
        self.promote(&done.job);
        None
    }

    /// Makes ready what has waited long enough and takes back what was silent too long; gives what was delivered too
    /// often.
    pub fn advance(&mut self, now: i64) -> Vec<Arc<Evaluation>> {
        while let Some((due, id)) = self.delayed.first().copied() {
            if due > now {
                break;
            }
            self.delayed.remove(&(due, id));
            if let Some(eval) = self.evals.get(&id).cloned() {
                self.make_ready(&eval);
            }
        }
        let silent: Vec<(EvalId, u64)> = self
            .outstanding
            .iter()
            .filter(|(_, outstanding)| outstanding.deadline <= now)
            .map(|(id, outstanding)| (*id, outstanding.token))
            .collect();
        silent.into_iter().filter_map(|(id, token)| self.nack(id, token, now)).collect()
    }

    /// When [`Broker::advance`] has something to do next.
    pub fn next_due(&self) -> Option<i64> {
        let delayed = self.delayed.first().map(|(due, _)| *due);
        let silent = self.outstanding.values().map(|outstanding| outstanding.deadline).min();
        match (delayed, silent) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        }
    }

    /// How many can be handed out now.
    pub fn ready_count(&self) -> usize {
        if self.paused { 0 } else { self.ready.len() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use herdsman_model::Name;

    fn eval(n: u8, job: &str, priority: i64, index: u64) -> Arc<Evaluation> {
        Arc::new(Evaluation {
            id: EvalId([n; 16]),
            namespace: Name::from("default"),
            job_id: Name::from(job),
            priority,
            create_index: index,
            modify_index: index,
            ..Evaluation::default()
        })
    }

    const NACK: i64 = 60_000_000_000;

    #[test]
    fn the_highest_priority_goes_first_then_the_oldest() {
        let mut broker = Broker::default();
        for (n, priority) in [(1, 50), (2, 80), (3, 50)] {
            broker.enqueue(eval(n, &format!("job{n}"), priority, u64::from(n)), 0);
        }
        let order: Vec<u8> = std::iter::from_fn(|| broker.dequeue(0, NACK)).map(|d| d.eval.id.0[0]).collect();
        assert_eq!(order, [2, 1, 3]);
    }

    #[test]
    fn one_outstanding_per_job_and_the_newest_of_the_rest_goes_on() {
        let mut broker = Broker::default();
        for n in 1..=4 {
            broker.enqueue(eval(n, "web", 50, u64::from(n)), 0);
        }
        let first = broker.dequeue(0, NACK).unwrap();
        assert_eq!(first.eval.id.0[0], 1);
        assert!(broker.dequeue(0, NACK).is_none());
        let superfluous = broker.ack(first.eval.id, first.token, 0);
        assert_eq!(superfluous, [EvalId([3; 16]), EvalId([2; 16])]);
        assert_eq!(broker.dequeue(0, NACK).unwrap().eval.id.0[0], 4);
    }

    #[test]
    fn a_silent_worker_loses_its_evaluation_and_the_third_time_it_is_given_up() {
        let mut broker = Broker::default();
        broker.enqueue(eval(1, "web", 50, 1), 0);
        let mut now = 0;
        for delivery in 1..=DELIVERY_LIMIT {
            let handed = broker.dequeue(now, NACK).unwrap();
            now += NACK;
            let given_up = broker.advance(now);
            assert_eq!(given_up.len(), usize::from(delivery == DELIVERY_LIMIT));
            assert!(broker.ack(handed.eval.id, handed.token, now).is_empty(), "a late answer does not count");
            if delivery < DELIVERY_LIMIT {
                assert!(broker.dequeue(now, NACK).is_none(), "it waits before it is tried again");
                now = broker.next_due().unwrap();
                broker.advance(now);
            }
        }
        assert!(broker.dequeue(now, NACK).is_none());
        assert_eq!(broker.next_due(), None);
    }

    #[test]
    fn what_is_to_wait_waits() {
        let mut broker = Broker::default();
        let mut later = Evaluation::clone(&eval(1, "web", 50, 1));
        later.wait_until = Some(100);
        broker.enqueue(Arc::new(later), 0);
        assert!(broker.dequeue(0, NACK).is_none());
        assert_eq!(broker.next_due(), Some(100));
        broker.advance(100);
        assert_eq!(broker.dequeue(100, NACK).unwrap().eval.id.0[0], 1);
    }

    #[test]
    fn a_removed_evaluation_lets_the_next_of_its_job_go_on() {
        let mut broker = Broker::default();
        broker.enqueue(eval(1, "web", 50, 1), 0);
        broker.enqueue(eval(2, "web", 50, 2), 0);
        broker.remove(EvalId([1; 16]));
        assert_eq!(broker.dequeue(0, NACK).unwrap().eval.id.0[0], 2);
    }
}
