//! The shape of a command. The table of all commands is data: parsing, help, completion and documents derive from it.

use crate::flags::{Flag, Parsed};
use crate::terminal::Terminal;
use futures::future::BoxFuture;
use herdsman_client::{Client, ClientError};

/// One command.
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
#[derive(Clone, Default)]
pub struct Environment {
    variables: std::collections::BTreeMap<String, String>,
}

impl Environment {
    /// The variables of this process.
    pub fn of_process() -> Environment {
        Environment { variables: std::env::vars().collect() }
    }

    /// These variables and no others.
    pub fn of(variables: impl IntoIterator<Item = (String, String)>) -> Environment {
        Environment { variables: variables.into_iter().collect() }
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
