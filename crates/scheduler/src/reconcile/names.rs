//! The indexes in the names of a group's allocations.

use herdsman_model::{Allocation, alloc_name};
use std::collections::BTreeSet;
use std::sync::Arc;

/// Which indexes of a group's names are in use.
pub(crate) struct Names {
    job_id: String,
    group: String,
    count: u64,
    used: BTreeSet<u64>,
}

impl Names {
    pub(crate) fn of<'a>(
        job_id: &str,
        group: &str,
        count: u64,
        in_use: impl IntoIterator<Item = &'a Arc<Allocation>>,
    ) -> Names {
        let used = in_use.into_iter().filter_map(|a| a.index()).collect();
        Names { job_id: job_id.to_owned(), group: group.to_owned(), count, used }
    }

    pub(crate) fn release(&mut self, alloc: &Allocation) {
        if let Some(index) = alloc.index() {
            self.used.remove(&index);
        }
    }

    /// Takes the name of an allocation, if it is one of the group's and free.
    pub(crate) fn take(&mut self, alloc: &Allocation) -> bool {
        alloc.index().is_some_and(|index| index < self.count && self.used.insert(index))
    }

    fn name(&self, index: u64) -> String {
        alloc_name(&self.job_id, &self.group, index)
    }

    /// So many names for new allocations: the lowest free ones, then from 0 again.
    pub(crate) fn next(&mut self, wanted: u64) -> Vec<String> {
        let free: Vec<u64> = (0..self.count).filter(|i| !self.used.contains(i)).collect();
        let again = (0..self.count.max(1)).cycle();
        let wanted = usize::try_from(wanted).unwrap_or(usize::MAX);
        let indexes: Vec<u64> = free.into_iter().chain(again).take(wanted).collect();
        self.used.extend(indexes.iter().copied());
        indexes.into_iter().map(|i| self.name(i)).collect()
    }

    /// So many names for canaries: those of the allocations they are to replace, then free ones, then new ones.
    pub(crate) fn next_canaries(
        &mut self,
        wanted: u64,
        canaries: &[Arc<Allocation>],
        destructive: &[Arc<Allocation>],
    ) -> Vec<String> {
        let wanted = usize::try_from(wanted).unwrap_or(usize::MAX);
        let taken: BTreeSet<u64> = canaries.iter().filter_map(|a| a.index()).collect();
        let mut indexes: Vec<u64> = Vec::new();
        let replaced: BTreeSet<u64> = destructive.iter().filter_map(|a| a.index()).collect();
        let own = replaced.into_iter().filter(|i| *i < self.count && !taken.contains(i));
        indexes.extend(own.take(wanted));
        let free = (0..self.count).filter(|i| !self.used.contains(i) && !taken.contains(i));
        let free: Vec<u64> = free.filter(|i| !indexes.contains(i)).collect();
        indexes.extend(free.into_iter().take(wanted.saturating_sub(indexes.len())));
        let beyond = (self.count..).filter(|i| !taken.contains(i));
        let missing = wanted.saturating_sub(indexes.len());
        indexes.extend(beyond.take(missing));
        self.used.extend(indexes.iter().copied());
        indexes.into_iter().map(|i| self.name(i)).collect()
    }
}
