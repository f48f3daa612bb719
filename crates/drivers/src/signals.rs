//! Names of signals.
//!
//! The peer turns every name it does not know into `SIGINT` and answers 200
//! (goldens `signals.tsv`); scripts may rely on the 200. [`number`] is the
//! strict reading, for whoever can refuse; [`number_or_interrupt`] the lenient
//! one, for the API.

/// Names and numbers on Linux, those the peer knows.
const KNOWN: [(&str, i32); 30] = [
    ("SIGABRT", 6),
    ("SIGALRM", 14),
    ("SIGBUS", 7),
    ("SIGCONT", 18),
    ("SIGFPE", 8),
    ("SIGHUP", 1),
    ("SIGILL", 4),
    ("SIGINT", 2),
    ("SIGIO", 29),
    ("SIGIOT", 6),
    ("SIGKILL", 9),
    ("SIGNULL", 0),
    ("SIGPIPE", 13),
    ("SIGPROF", 27),
    ("SIGQUIT", 3),
    ("SIGSEGV", 11),
    ("SIGSTOP", 19),
    ("SIGSYS", 31),
    ("SIGTERM", 15),
    ("SIGTRAP", 5),
    ("SIGTSTP", 20),
    ("SIGTTIN", 21),
    ("SIGTTOU", 22),
    ("SIGUSR1", 10),
    ("SIGUSR2", 12),
    ("SIGWINCH", 28),
    ("SIGXCPU", 24),
    ("SIGXFSZ", 25),
    ("SIGCHLD", 17),
    ("SIGURG", 23),
];
/// How many of [`KNOWN`] the peer knows; the rest are read strictly only.
const PEER: usize = 28;

/// The number of a signal.
///
/// # Errors
/// A text that names the unknown signal and the form expected.
pub fn number(name: &str) -> Result<i32, String> {
    let found = KNOWN.iter().find(|(known, _)| *known == name).map(|(_, number)| *number);
    found.ok_or_else(|| format!("unknown signal {name:?}; expected a name such as \"SIGTERM\""))
}

/// The number of a signal as the peer reads it: unknown names are `SIGINT`.
pub fn number_or_interrupt(name: &str) -> i32 {
    KNOWN.iter().take(PEER).find(|(known, _)| *known == name).map_or(2, |(_, number)| *number)
}
