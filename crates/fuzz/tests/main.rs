//! A short run of every target with a fixed seed, and the tools of the long one.

use herdsman_fuzz::targets::TARGETS;
use herdsman_fuzz::{Run, shrink};

/// Texts per target: a few seconds in all.
const TEXTS: usize = 300;

#[test]
fn no_reader_panics() {
    for target in TARGETS {
        let mut run = Run::new(target, 7, Vec::new());
        for _ in 0..TEXTS {
            let text = run.next_text();
            assert!(run.read(&text), "{} panics for {text:?}", target.name);
        }
    }
}

#[test]
fn every_seed_text_is_read() {
    for target in TARGETS {
        for seed in target.seeds {
            assert!(Run::new(target, 0, Vec::new()).read(seed), "{}", target.name);
        }
    }
}

#[test]
fn the_same_seed_gives_the_same_texts() {
    let texts = |seed| {
        let mut run = Run::new(&TARGETS[0], seed, Vec::new());
        (0..50).map(|_| run.next_text()).collect::<Vec<_>>()
    };
    assert_eq!(texts(3), texts(3));
    assert_ne!(texts(3), texts(4));
}

#[test]
fn a_finding_is_made_small() {
    let long = format!("{}a(b{}", "x".repeat(500), "y)".repeat(200));
    assert_eq!(shrink(&long, &mut |t| t.contains("a(b")), "a(b");
}
