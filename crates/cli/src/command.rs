//! The shape of a command. The table of all commands is data: parsing, help, completion and documents derive from it.

use crate::flags::{Flag, Parsed};
use crate::terminal::{Colour, Terminal};
use futures::future::BoxFuture;
use herdsman_client::{Client, ClientError};
use std::sync::Arc;

/// One command.
#[derive(Clone, Copy)]
pub struct Command {
    /// The words that name it, such as `job run`.
    pub name: &'static str,
    /// Other words for it, such as `run`.
    pub aliases: &'static [&'static str],
    /// The words it takes, such as `<path>`.
    pub arguments: &'static str,
    /// One line for lists of commands.
    pub synopsis: &'static str,
    /// What it does, for its own help.
    pub about: &'static str,
    /// Whether it talks to an agent and takes the general flags.
    pub general: bool,
    pub flags: &'static [Flag],
    pub run: Run,
}

/// What a command does; the number is the exit status.
pub type Run = for<'a> fn(&'a mut Call<'a>) -> BoxFuture<'a, Result<u8, Failure>>;

/// A call of a command.
pub struct Call<'a> {
    pub command: &'static Command,
    pub flags: Parsed,
    pub terminal: &'a mut Terminal,
    pub environment: &'a Environment,
}

/// What a command reads of its surroundings, as a parameter so that tests can set it.
#[derive(Clone)]
pub struct Environment {
    variables: std::collections::BTreeMap<String, String>,
    /// Where the clock stands; none: it is the system's.
    fixed: Option<i64>,
    input: Option<Arc<[u8]>>,
}

impl Default for Environment {
    fn default() -> Environment {
        Environment::of([])
    }
}

fn system_clock() -> i64 {
    match std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH) {
        Ok(since) => i64::try_from(since.as_nanos()).unwrap_or(i64::MAX),
        Err(_) => 0,
    }
}

impl Environment {
    /// The variables of this process.
    pub fn of_process() -> Environment {
        Environment::of(std::env::vars_os().filter_map(|(n, v)| Some((n.into_string().ok()?, v.into_string().ok()?))))
    }

    /// These variables and no others.
    pub fn of(variables: impl IntoIterator<Item = (String, String)>) -> Environment {
        Environment { variables: variables.into_iter().collect(), fixed: None, input: None }
    }

    /// The same with a clock that stands at this many nanoseconds since 1970.
    #[must_use]
    pub fn at_time(mut self, nanoseconds: i64) -> Environment {
        self.fixed = Some(nanoseconds);
        self
    }

    /// The same with this as standard input.
    #[must_use]
    pub fn with_input(mut self, input: &[u8]) -> Environment {
        self.input = Some(input.into());
        self
    }

    /// Nanoseconds since 1970.
    pub fn now(&self) -> i64 {
        self.fixed.unwrap_or_else(system_clock)
    }

    /// Standard input as given, when it was given.
    pub fn given_input(&self) -> Option<&Arc<[u8]>> {
        self.input.as_ref()
    }

    /// The value of a variable; empty is absent.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.variables.get(name).map(String::as_str).filter(|v| !v.is_empty())
    }

    /// The variables whose names begin with a prefix, without the prefix.
    pub fn with_prefix<'a>(&'a self, prefix: &'a str) -> impl Iterator<Item = (&'a str, &'a str)> {
        self.variables.iter().filter_map(move |(n, v)| n.strip_prefix(prefix).map(|n| (n, v.as_str())))
    }
}

/// Why a command failed: what is printed on standard error, and the exit status.
#[derive(Debug)]
pub struct Failure {
    pub message: String,
    pub exit: u8,
}

impl Failure {
    /// Exit status 1.
    pub fn new(message: impl Into<String>) -> Failure {
        Failure { message: message.into(), exit: 1 }
    }

    /// Another exit status.
    pub fn with_exit(exit: u8, message: impl Into<String>) -> Failure {
        Failure { message: message.into(), exit }
    }

    /// What was attempted, and why the agent did not do it.
    pub fn of(attempt: &str, error: &ClientError) -> Failure {
        Failure::new(format!("{attempt}: {error}"))
    }
}

/// Adds what was attempted to an error of the client.
pub trait Attempt<T> {
    /// The value, or a failure that begins with what was attempted.
    ///
    /// # Errors
    /// The client's.
    fn attempt(self, what: &str) -> Result<T, Failure>;
}

impl<T> Attempt<T> for Result<T, ClientError> {
    fn attempt(self, what: &str) -> Result<T, Failure> {
        self.map_err(|e| Failure::of(what, &e))
    }
}

impl Call<'_> {
    /// A client for the agent that flags and environment name. Source: wire-notes section 12.
    ///
    /// # Errors
    /// The address cannot be understood.
    pub fn client(&self) -> Result<Client, Failure> {
        let pick = |flag: &str, variable: &str| {
            self.flags.text(flag).or_else(|| self.environment.get(variable)).unwrap_or_default().to_string()
        };
        let address = match pick("address", "NOMAD_ADDR") {
            text if text.is_empty() => herdsman_client::DEFAULT_ADDRESS.to_string(),
            text => text,
        };
        let options = herdsman_client::Options {
            region: pick("region", "NOMAD_REGION"),
            namespace: pick("namespace", "NOMAD_NAMESPACE"),
            token: pick("token", "NOMAD_TOKEN"),
            http_auth: self.environment.get("NOMAD_HTTP_AUTH").unwrap_or_default().to_string(),
        };
        Client::new(&address, options).map_err(|e| Failure::new(format!("Error initializing client: {e}")))
    }

    /// The one word that a command takes.
    ///
    /// # Errors
    /// There is none, or more than one.
    pub fn one_word(&self) -> Result<&str, Failure> {
        match self.flags.words.as_slice() {
            [word] => Ok(word),
            _ => Err(self.usage(&format!("This command takes one argument: {}", self.command.arguments))),
        }
    }

    /// A failure that says how the command is used.
    pub fn usage(&self, message: &str) -> Failure {
        Failure::new(format!(
            "{message}\nFor additional help try '{} {} -help'",
            self.terminal.program(),
            self.command.name
        ))
    }
}

/// The flags of every command that talks to an agent. Source: `compat/cli.tsv`, row (common).
pub const GENERAL_FLAGS: &[Flag] = &[
    Flag::text(
        "address",
        "<addr>",
        "The address of the agent: http://host:port or unix://path. Overrides NOMAD_ADDR; default http://127.0.0.1:4646.",
    ),
    Flag::text("region", "<region>", "The region that is asked. Overrides NOMAD_REGION; default: the agent's own."),
    Flag::text(
        "namespace",
        "<namespace>",
        "The namespace that is asked; '*' means all where a command can show several. Overrides NOMAD_NAMESPACE; default \"default\".",
    ),
    Flag::switch("no-color", "No colours. NOMAD_CLI_NO_COLOR does the same; wins over -force-color."),
    Flag::switch("force-color", "Colours also where no terminal is seen. NOMAD_CLI_FORCE_COLOR does the same."),
    Flag::text(
        "ca-cert",
        "<path>",
        "A PEM file of the authority that signed the agent's certificate. Overrides NOMAD_CACERT.",
    ),
    Flag::text("ca-path", "<path>", "A folder of such files. Overrides NOMAD_CAPATH."),
    Flag::text("client-cert", "<path>", "A PEM file of our certificate. Overrides NOMAD_CLIENT_CERT."),
    Flag::text("client-key", "<path>", "A PEM file of our key. Overrides NOMAD_CLIENT_KEY."),
    Flag::text(
        "tls-server-name",
        "<name>",
        "The name that the agent's certificate must carry. Overrides NOMAD_TLS_SERVER_NAME.",
    ),
    Flag::switch("tls-skip-verify", "Do not check the agent's certificate. NOMAD_SKIP_VERIFY does the same."),
    Flag::switch("insecure", "The same as -tls-skip-verify."),
    Flag::text("token", "<secret>", "The secret of an access token. Overrides NOMAD_TOKEN."),
];

/// `-verbose`.
pub const VERBOSE: Flag = Flag::switch("verbose", "Full ids, absolute times and more detail.");
/// `-json`.
pub const JSON: Flag = Flag::switch("json", "The answer as JSON.");
/// `-t`.
pub const TEMPLATE: Flag = Flag::text("t", "<template>", "The answer through a Go template.");
/// `-detach`.
pub const DETACH: Flag = Flag::switch("detach", "Do not watch what the evaluation does; its id is printed.");
/// `-filter`.
pub const FILTER: Flag = Flag::text("filter", "<expression>", "Only what this filter expression selects.");
/// `-per-page`.
pub const PER_PAGE: Flag = Flag::number("per-page", "How many results one page has.");
/// `-page-token`.
pub const PAGE_TOKEN: Flag =
    Flag::text("page-token", "<token>", "Where the page begins, as printed by the page before.");
/// `-ui`.
pub const UI: Flag = Flag::switch("ui", "Open the matching page in the browser.");

impl Call<'_> {
    /// How times are shown here.
    pub fn times(&self) -> crate::format::Times {
        crate::format::Times::of(self.environment)
    }

    /// Whether full ids are wanted.
    pub fn verbose(&self) -> bool {
        self.flags.on("verbose")
    }

    /// The number of a flag, none when it is not given.
    pub fn number(&self, flag: &str) -> Option<i64> {
        self.flags.number(flag)
    }

    /// A query with the paging flags of this call.
    pub fn paged(&self) -> herdsman_client::Query {
        herdsman_client::Query {
            filter: self.flags.text("filter").unwrap_or_default().to_string(),
            per_page: self.number("per-page").and_then(|n| u32::try_from(n).ok()).unwrap_or(0),
            next_token: self.flags.text("page-token").unwrap_or_default().to_string(),
            ..herdsman_client::Query::none()
        }
    }

    /// All of standard input.
    ///
    /// # Errors
    /// It cannot be read, or is too large.
    pub async fn input(&self) -> Result<Vec<u8>, Failure> {
        if let Some(given) = self.environment.given_input() {
            return Ok(given.to_vec());
        }
        let read = tokio::task::spawn_blocking(|| {
            use std::io::Read;
            let mut all = Vec::new();
            std::io::stdin().take(MAX_INPUT_BYTES + 1).read_to_end(&mut all).map(|_| all)
        });
        let all = match read.await {
            Ok(Ok(all)) => all,
            Ok(Err(error)) => return Err(Failure::new(format!("Error reading standard input: {error}"))),
            Err(error) => return Err(Failure::new(format!("Error reading standard input: {error}"))),
        };
        if all.len() as u64 > MAX_INPUT_BYTES {
            return Err(Failure::new(format!("Standard input is larger than {MAX_INPUT_BYTES} bytes")));
        }
        Ok(all)
    }

    /// The text of a file, or of standard input for `-`.
    ///
    /// # Errors
    /// It cannot be read, is too large or is no text.
    pub async fn file_or_input(&self, path: &str) -> Result<String, Failure> {
        let bytes = if path == "-" {
            self.input().await?
        } else {
            read_file(path).map_err(|e| Failure::new(format!("Failed to read {path:?}: {e}")))?
        };
        String::from_utf8(bytes).map_err(|_| Failure::new(format!("{path:?} is not text in UTF-8")))
    }

    /// Asks before something is done; anything but yes is no.
    ///
    /// # Errors
    /// There is no answer to read.
    pub async fn confirm(&mut self, question: &str) -> Result<bool, Failure> {
        self.terminal.raw(format!("{question} [y/N] ").as_bytes());
        let line = match self.environment.given_input() {
            Some(given) => String::from_utf8_lossy(given).lines().next().unwrap_or_default().to_string(),
            None => tokio::task::spawn_blocking(|| {
                let mut line = String::new();
                std::io::stdin().read_line(&mut line).map(|_| line)
            })
            .await
            .map_err(|e| Failure::new(format!("Failed to parse answer: {e}")))?
            .map_err(|e| Failure::new(format!("Failed to parse answer: {e}")))?,
        };
        match line.trim().to_lowercase().as_str() {
            "" if line.is_empty() => Err(Failure::new("Failed to parse answer: EOF")),
            "y" | "yes" => Ok(true),
            _ => Ok(false),
        }
    }

    /// Prints an answer in the form that `-json` or `-t` asks for; false when neither does.
    ///
    /// # Errors
    /// Both are given, or the template fails.
    pub fn formatted(&mut self, value: &serde_json::Value) -> Result<bool, Failure> {
        let template = self.flags.text("t").map(str::to_string);
        match (self.flags.on("json"), template) {
            (true, Some(_)) => Err(Failure::new("Both json and template formatting are not allowed")),
            (true, None) => {
                self.terminal.line(crate::view::pretty(value));
                Ok(true)
            }
            (false, Some(template)) => {
                self.templated(&template, value)?;
                Ok(true)
            }
            (false, None) => Ok(false),
        }
    }

    /// Prints an answer through a Go template.
    ///
    /// # Errors
    /// The template fails.
    pub fn templated(&mut self, template: &str, value: &serde_json::Value) -> Result<(), Failure> {
        let text = crate::template::render(template, value)
            .map_err(|e| Failure::new(format!("Error formatting the data: {e}")))?;
        self.terminal.line(text);
        Ok(())
    }

    /// Prints a part of an answer below its title.
    pub fn section(&mut self, title: &str, text: &str) {
        let title = self.terminal.paint(Colour::Bold, title);
        self.terminal.line(format!("\n{title}\n{text}"));
    }

    /// Whether `-json` or `-t` is given.
    pub fn wants_data(&self) -> bool {
        self.flags.on("json") || self.flags.text("t").is_some()
    }
}

/// The largest standard input and file that is read whole, bytes.
pub const MAX_INPUT_BYTES: u64 = 64 * 1024 * 1024;

/// The bytes of a file, if it is not too large.
///
/// # Errors
/// It cannot be read.
pub fn read_file(path: impl AsRef<std::path::Path>) -> std::io::Result<Vec<u8>> {
    use std::io::Read;
    let mut all = Vec::new();
    std::fs::File::open(path)?.take(MAX_INPUT_BYTES + 1).read_to_end(&mut all)?;
    if all.len() as u64 > MAX_INPUT_BYTES {
        return Err(std::io::Error::other(format!("larger than {MAX_INPUT_BYTES} bytes")));
    }
    Ok(all)
}
