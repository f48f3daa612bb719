//! Mutated texts through every reader: none may panic, and none may take long.
//!
//! [`targets::TARGETS`] are the readers with what they start from; [`mutate`] makes new texts of old ones; [`Run`] goes
//! through them and keeps what led to an answer not seen before. The same seed gives the same texts.
//!
//! Architecture invariant: nothing here reads a clock or a file; the program around it does.

pub mod mutate;
pub mod targets;

use mutate::Random;
use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use targets::Target;

/// Most texts a run starts from and keeps.
const MAX_CORPUS: usize = 2_000;

/// Most texts tried to make a finding smaller.
const MAX_SHRINK_TRIES: usize = 4_000;

/// Characters of an answer that make it another one.
const MAX_ANSWER: usize = 60;

/// A run of one target.
pub struct Run {
    target: &'static Target,
    random: Random,
    corpus: Vec<String>,
    answers: BTreeSet<String>,
}

impl Run {
    /// A run with this seed. `texts` are further texts to start from.
    pub fn new(target: &'static Target, seed: u64, texts: Vec<String>) -> Run {
        let mut corpus: Vec<String> = target.seeds.iter().map(|s| (*s).to_string()).collect();
        corpus.extend(texts);
        corpus.truncate(MAX_CORPUS);
        Run { target, random: Random::new(seed), corpus, answers: BTreeSet::new() }
    }

    /// The next text.
    pub fn next_text(&mut self) -> String {
        mutate::text(&mut self.random, &self.corpus, self.target.tokens)
    }

    /// Reads a text; whether that went without a panic. A text with a new kind of answer is mutated further.
    pub fn read(&mut self, text: &str) -> bool {
        let Some(answer) = answer(self.target, text) else { return false };
        let kind = kind_of(&answer);
        if self.corpus.len() < MAX_CORPUS && self.answers.insert(kind) {
            self.corpus.push(text.to_string());
        }
        true
    }
}

/// What the reader says, or nothing if it panicked.
fn answer(target: &Target, text: &str) -> Option<String> {
    catch_unwind(AssertUnwindSafe(|| (target.read)(text))).ok()
}

/// The words of an answer without what differs from text to text.
fn kind_of(answer: &str) -> String {
    answer.chars().filter(|c| !c.is_ascii_digit()).take(MAX_ANSWER).collect()
}

/// Whether the reader panics for this text.
pub fn panics(target: &Target, text: &str) -> bool {
    answer(target, text).is_none()
}

/// The shortest text found for which `still` holds, made by leaving out parts.
pub fn shrink(text: &str, still: &mut dyn FnMut(&str) -> bool) -> String {
    let mut best: Vec<char> = text.chars().collect();
    let mut size = (best.len() / 2).max(1);
    let mut tries = 0;
    loop {
        let mut shorter = false;
        let mut at = 0;
        while at < best.len() && tries < MAX_SHRINK_TRIES {
            tries += 1;
            let end = (at + size).min(best.len());
            let rest: String = best.iter().take(at).chain(best.iter().skip(end)).collect();
            if still(&rest) {
                best.drain(at..end);
                shorter = true;
            } else {
                at = end;
            }
        }
        if tries >= MAX_SHRINK_TRIES || (size == 1 && !shorter) {
            return best.into_iter().collect();
        }
        size = (size / 2).max(1);
    }
}
