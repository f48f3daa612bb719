//! Artifacts and templates of tasks that run.

use crate::folder::Folder;
use crate::server::{Server, words};
use crate::setup::{job, node, sh};
use herdsman_model::*;
use herdsman_world::World;
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::sync::{Arc, Mutex};

/// A request as it came: path with query, and header lines.
type Asked = (String, Vec<String>);
type Answer = Box<dyn Fn(&Asked, usize) -> (u16, Vec<String>, Vec<u8>) + Send + Sync>;

/// A web server that notes what it is asked.
struct Web {
    addr: String,
    asked: Arc<Mutex<Vec<Asked>>>,
}

impl Web {
    /// `answer` gets the request and how often its path was asked before.
    fn start(answer: Answer) -> Web {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let addr = listener.local_addr().unwrap().to_string();
        let asked: Arc<Mutex<Vec<Asked>>> = Arc::default();
        let (answer, noted) = (Arc::new(answer), Arc::clone(&asked));
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (answer, noted) = (Arc::clone(&answer), Arc::clone(&noted));
                std::thread::spawn(move || serve(stream, &answer, &noted));
            }
        });
        Web { addr, asked }
    }

    fn files(files: BTreeMap<String, Vec<u8>>) -> Web {
        Web::start(Box::new(move |(path, _), _| match files.get(path.split('?').next().unwrap()) {
            Some(body) => (200, vec![], body.clone()),
            None => (404, vec![], b"not here".to_vec()),
        }))
    }

    fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.addr)
    }

    fn count(&self, path: &str) -> usize {
        self.asked.lock().unwrap().iter().filter(|(asked, _)| asked.split('?').next() == Some(path)).count()
    }
}

fn serve(mut stream: TcpStream, answer: &Answer, noted: &Mutex<Vec<Asked>>) {
    let mut lines = BufReader::new(stream.try_clone().unwrap()).lines().map_while(Result::ok);
    let Some(first) = lines.next() else { return };
    let path = first.split(' ').nth(1).unwrap_or_default().to_string();
    let headers = lines.take_while(|line| !line.is_empty()).collect();
    let asked = (path, headers);
    let before = {
        let mut noted = noted.lock().unwrap();
        noted.push(asked.clone());
        noted.iter().filter(|(path, _)| *path == asked.0).count() - 1
    };
    let (status, headers, body) = answer(&asked, before);
    let mut head = format!("HTTP/1.1 {status} X\r\nContent-Length: {}\r\nConnection: close\r\n", body.len());
    for header in headers {
        head.push_str(&header);
        head.push_str("\r\n");
    }
    // Whoever asked may have gone.
    let _ = stream.write_all(head.as_bytes());
    let _ = stream.write_all(b"\r\n");
    let _ = stream.write_all(&body);
}

fn artifact(source: String, destination: &str, mode: &str) -> Artifact {
    Artifact {
        getter_source: source,
        relative_dest: destination.into(),
        getter_mode: mode.into(),
        ..Artifact::default()
    }
}

fn with_options(mut artifact: Artifact, options: &[(&str, &str)]) -> Artifact {
    artifact.getter_options = options.iter().map(|(k, v)| (k.to_string(), v.to_string())).collect();
    artifact
}

fn template(data: &str, destination: &str, envvars: bool) -> Template {
    Template { embedded_tmpl: data.into(), dest_path: destination.into(), envvars, ..Template::default() }
}

fn tar_gz(name: &str, body: &[u8]) -> Vec<u8> {
    let mut builder = tar::Builder::new(flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast()));
    let mut header = tar::Header::new_gnu();
    header.set_size(body.len() as u64);
    header.set_mode(0o755);
    header.set_cksum();
    builder.append_data(&mut header, name, body).unwrap();
    builder.into_inner().unwrap().finish().unwrap()
}

fn tar(name: &str, body: &[u8]) -> Vec<u8> {
    let mut packed = tar_gz(name, body);
    let mut plain = Vec::new();
    std::io::Read::read_to_end(&mut flate2::read::GzDecoder::new(&packed[..]), &mut plain).unwrap();
    packed.clear();
    plain
}

fn zip(name: &str, body: &[u8]) -> Vec<u8> {
    let mut writer = zip::ZipWriter::new(std::io::Cursor::new(Vec::new()));
    writer.start_file(name, zip::write::SimpleFileOptions::default()).unwrap();
    writer.write_all(body).unwrap();
    writer.finish().unwrap().into_inner()
}

fn read(dir: &Path, id: AllocId, path: &str) -> String {
    let path = dir.join(format!("alloc/{id}/{path}"));
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

#[tokio::test(flavor = "multi_thread")]
async fn artifacts_of_every_form_are_there_before_the_task() {
    let dir = Folder::new();
    let web = Web::start(Box::new(|(path, headers), _| {
        let ok = |body: Vec<u8>| (200, vec![], body);
        match path.as_str() {
            "/plain.txt" => ok(b"plain".to_vec()),
            "/run.tar.gz" => ok(tar_gz("bin/run", b"#!/bin/sh\necho ran\n")),
            "/z.zip" => ok(zip("in/zipped", b"zipped")),
            "/kept.zip" => ok(zip("x", b"y")),
            "/moved" => (302, vec!["Location: plain.txt".into()], vec![]),
            "/asked?a=1&b=red" => ok(b"query".to_vec()),
            "/private" if headers.iter().any(|h| h.eq_ignore_ascii_case("x-token: t")) => ok(b"private".to_vec()),
            "/sums" => {
                ok(b"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa  other\nac7938d40cfc2307e2bf325d28e7884e *plain.txt\n".to_vec())
            }
            _ => (404, vec![], vec![]),
        }
    }));
    let server = Server::start(&World::real().unwrap()).await;
    let node = node(dir.path(), &server.addr).await;
    let script = "cat local/plain.txt local/as.txt local/z/in/zipped local/q local/p && local/bin/run && test -s local/kept.zip && test ! -x local/plain.txt";
    let mut main = sh("main", None, &format!("cd $NOMAD_TASK_DIR/.. && {{ {script}; }} > local/out"));
    main.meta = [("color".to_string(), "red".to_string())].into_iter().collect();
    let mut private = artifact(web.url("/private"), "local/p", "file");
    private.getter_headers = [("X-Token".to_string(), "t".to_string())].into_iter().collect();
    main.artifacts = vec![
        with_options(
            artifact(web.url("/plain.txt"), "local/", "any"),
            &[("checksum", &format!("file:{}", web.url("/sums")))],
        ),
        artifact(web.url("/moved"), "local/as.txt", "file"),
        artifact(web.url("/run.tar.gz"), "", "any"),
        artifact(web.url("/z.zip"), "local/z", "dir"),
        with_options(artifact(web.url("/kept.zip"), "local/", "any"), &[("archive", "false")]),
        with_options(artifact(web.url("/asked?a=1"), "local/q", "file"), &[("b", "${NOMAD_META_color}")]),
        private,
    ]
    .into();
    let id = server.place(&job("artifacts", JobType::Batch, vec![main]));
    let end = server.until_status(id, ClientStatus::Complete).await;
    assert_eq!(read(dir.path(), id, "main/local/out"), "plainplainzippedqueryprivateran\n");
    assert_eq!(words(&end, "main"), ["Received", "TaskSetup", "DownloadingArtifacts", "Started", "Terminated"]);
    node.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nomad_11481_and_27626_plain_archives_are_unpacked_and_files_keep_their_name() {
    let dir = Folder::new();
    let web = Web::files(
        [("/a.tar".to_string(), tar("inside", b"packed")), ("/script".to_string(), b"echo hi".to_vec())].into(),
    );
    let server = Server::start(&World::real().unwrap()).await;
    let node = node(dir.path(), &server.addr).await;
    let mut main = sh("main", None, "exit 0");
    main.artifacts = vec![
        artifact(web.url("/a.tar"), "local/", "any"),
        with_options(artifact(web.url("/a.tar"), "local/kept", "any"), &[("archive", "false")]),
        artifact(web.url("/script"), "local/x.sh", "file"),
    ]
    .into();
    let id = server.place(&job("archives", JobType::Batch, vec![main]));
    server.until_status(id, ClientStatus::Complete).await;
    assert_eq!(read(dir.path(), id, "main/local/inside"), "packed");
    assert!(read(dir.path(), id, "main/local/kept/a.tar").contains("packed"));
    assert_eq!(read(dir.path(), id, "main/local/x.sh"), "echo hi");
    node.shutdown().await;
}

/// After a reboot the secrets of a task are no mount any more; they are one again before the task starts.
#[tokio::test(flavor = "multi_thread")]
async fn nomad_28345_secrets_are_in_memory_again_after_a_reboot() {
    let dir = Folder::new();
    let server = Server::start(&World::real().unwrap()).await;
    let first = node(dir.path(), &server.addr).await;
    let mut main = sh("main", None, "stat -f -c %T secrets >> $NOMAD_ALLOC_DIR/data/kinds; exec sleep 300");
    main.restart_policy.attempts = 2;
    let id = server.place(&job("kept", JobType::Service, vec![main]));
    server.until_status(id, ClientStatus::Running).await;
    let kinds = || std::fs::read_to_string(dir.path().join(format!("alloc/{id}/alloc/data/kinds"))).unwrap_or_default();
    server.until("the first run", |_| (kinds().lines().count() == 1).then_some(())).await;
    first.shutdown().await;
    let secrets = dir.path().join(format!("alloc/{id}/main/secrets"));
    rustix::mount::unmount(&secrets, rustix::mount::UnmountFlags::DETACH).unwrap();
    let second = node(dir.path(), &server.addr).await;
    // Other work tells when its session is open.
    let other = server.place(&job("other", JobType::Batch, vec![sh("main", None, "exit 0")]));
    server.until_status(other, ClientStatus::Complete).await;
    let again = herdsman_proto::NodeRequest::Restart { alloc_id: id, task: "main".into(), all_tasks: false };
    assert_eq!(server.ask(again).await.1, Ok(()));
    server.until("the second run", |_| (kinds().lines().count() == 2).then_some(())).await;
    assert_eq!(kinds(), "tmpfs\ntmpfs\n");
    let mode = std::os::unix::fs::PermissionsExt::mode(&std::fs::metadata(&secrets).unwrap().permissions());
    assert_eq!(mode & 0o7777, 0o777);
    server.stop(id);
    server.until_status(id, ClientStatus::Complete).await;
    second.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn artifacts_that_cannot_be_had_fail_by_the_restart_policy() {
    let dir = Folder::new();
    let web = Web::files([("/f".to_string(), b"x".to_vec())].into());
    let server = Server::start(&World::real().unwrap()).await;
    let node = node(dir.path(), &server.addr).await;
    let failing = |artifact: Artifact| {
        let mut main = sh("main", None, "exit 0");
        main.restart_policy.attempts = 1;
        main.artifacts = vec![artifact].into();
        main
    };
    let zero = format!("md5:{}", "0".repeat(32));
    let cases = [
        ("missing", artifact(web.url("/none"), "local/", "any"), "bad response code: 404", 1),
        (
            "sum",
            with_options(artifact(web.url("/f"), "local/f", "file"), &[("checksum", &zero)]),
            "Checksums did not match for",
            1,
        ),
        ("escape", artifact(web.url("/f"), "../../../f", "file"), "escapes the directories", 0),
        ("kind", artifact("file:///etc/passwd".into(), "local/", "any"), "\"file\" are not fetched", 0),
        ("dir", artifact(web.url("/f"), "local/", "dir"), "is no archive", 0),
    ];
    for (name, artifact, why, restarts) in cases {
        let id = server.place(&job(name, JobType::Batch, vec![failing(artifact)]));
        let end = server.until_status(id, ClientStatus::Failed).await;
        let state = &end.task_states["main"];
        let told = state.events.iter().find_map(|e| match &e.fact {
            TaskFact::FailedArtifactDownload { error } => Some(error.clone()),
            _ => None,
        });
        let told = told.unwrap_or_else(|| panic!("{name}: {:?}", state.events));
        assert!(told.starts_with("failed to download artifact \"") && told.contains(why), "{name}: {told}");
        assert_eq!((state.restarts, state.failed), (restarts, true), "{name}");
        assert!(!dir.path().join(format!("alloc/{id}/main/local/f")).exists(), "{name}");
    }
    node.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn artifacts_and_templates_are_made_once_also_over_an_agent_restart() {
    let dir = Folder::new();
    let web = Web::start(Box::new(
        |_, before| if before == 0 { (503, vec![], vec![]) } else { (200, vec![], b"x".to_vec()) },
    ));
    let server = Server::start(&World::real().unwrap()).await;
    let first = node(dir.path(), &server.addr).await;
    let script = "echo $FROM_TEMPLATE $(cat local/t) >> local/runs; n=$(wc -l < local/runs)
        if [ $n -ge 2 ]; then exit 0; fi; while [ ! -e local/go ]; do sleep 0.05; done; exit 1";
    let mut main = sh("main", None, &format!("cd $NOMAD_TASK_DIR/..; {script}"));
    main.restart_policy.attempts = 5;
    main.artifacts = vec![artifact(web.url("/f"), "local/f", "file")].into();
    main.templates = vec![
        template("FROM_TEMPLATE={{ timestamp \"05.000000000\" }}", "secrets/env", true),
        template("{{ timestamp \"05.000000000\" }}", "local/t", false),
    ]
    .into();
    let id = server.place(&job("once", JobType::Batch, vec![main]));
    let runs = || std::fs::read_to_string(dir.path().join(format!("alloc/{id}/main/local/runs"))).unwrap_or_default();
    server.until("the first run", |_| (runs().lines().count() == 1).then_some(())).await;
    first.shutdown().await;
    let second = node(dir.path(), &server.addr).await;
    std::fs::write(dir.path().join(format!("alloc/{id}/main/local/go")), "").unwrap();
    server.until_status(id, ClientStatus::Complete).await;
    assert_eq!(web.count("/f"), 2, "one attempt that failed, one that did not, and no more");
    let text = runs();
    let lines: Vec<_> = text.lines().collect();
    assert_eq!(lines.len(), 2, "{text}");
    assert_eq!(lines[0], lines[1], "rendered once");
    assert_eq!(lines[0].split(' ').count(), 2, "{text}");
    second.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn templates_are_rendered_again_where_the_restart_policy_says_so() {
    let dir = Folder::new();
    let server = Server::start(&World::real().unwrap()).await;
    let node = node(dir.path(), &server.addr).await;
    let script = "cat local/t >> local/runs; echo >> local/runs; test $(wc -l < local/runs) -ge 2";
    let mut main = sh("main", None, &format!("cd $NOMAD_TASK_DIR/..; {script}"));
    main.restart_policy.attempts = 5;
    main.restart_policy.render_templates = true;
    main.templates = vec![template("{{ timestamp \"05.000000000\" }}", "local/t", false)].into();
    let id = server.place(&job("again", JobType::Batch, vec![main]));
    server.until_status(id, ClientStatus::Complete).await;
    let text = read(dir.path(), id, "main/local/runs");
    let lines: Vec<_> = text.lines().collect();
    assert_ne!(lines[0], lines[1], "{text}");
    node.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_template_that_fails_ends_the_task_for_good() {
    let dir = Folder::new();
    let server = Server::start(&World::real().unwrap()).await;
    let node = node(dir.path(), &server.addr).await;
    let mut main = sh("main", None, "exit 0");
    main.restart_policy.attempts = 3;
    main.templates = vec![template("{{ key \"a/b\" }}", "local/t", false)].into();
    let id = server.place(&job("broken", JobType::Batch, vec![main]));
    let end = server.until_status(id, ClientStatus::Failed).await;
    let state = &end.task_states["main"];
    assert_eq!(state.restarts, 0);
    let reason = state.events.iter().find_map(|e| match &e.fact {
        TaskFact::Killing { reason, fails_task: true, .. } => Some(reason.clone()),
        _ => None,
    });
    let reason = reason.unwrap_or_else(|| panic!("{:?}", state.events));
    assert!(
        reason.starts_with("Template failed: (dynamic): execute: ") && reason.contains("key: it needs Consul"),
        "{reason}"
    );
    node.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn artifacts_are_given_to_the_tasks_user_when_asked() {
    use std::os::unix::fs::PermissionsExt;
    if std::fs::metadata("/proc/self").is_ok_and(|me| std::os::unix::fs::MetadataExt::uid(&me) != 0) {
        return;
    }
    let dir = Folder::new();
    std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    let web = Web::files([("/f".to_string(), b"x".to_vec())].into());
    let server = Server::start(&World::real().unwrap()).await;
    let node = node(dir.path(), &server.addr).await;
    let mut main = sh("main", None, "cd $NOMAD_TASK_DIR; test -O own/f && test ! -O f");
    main.user = "nobody".into();
    let own = Artifact { chown: true, ..artifact(web.url("/f"), "local/own/", "any") };
    main.artifacts = vec![own, artifact(web.url("/f"), "local/", "any")].into();
    let id = server.place(&job("owned", JobType::Batch, vec![main]));
    let end =
        server.until("the end", |server| server.state(id).filter(|state| state.client_status.is_terminal())).await;
    assert_eq!(end.client_status, ClientStatus::Complete, "{:?}", end.task_states["main"].events);
    node.shutdown().await;
}

/// A web server behind a certificate that nobody trusts.
pub async fn secure() -> String {
    let certificate = include_bytes!("data/self-signed.cert.der").to_vec().into();
    let key = rustls::pki_types::PrivatePkcs8KeyDer::from(include_bytes!("data/self-signed.key.der").to_vec()).into();
    let config = rustls::ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate], key)
        .unwrap();
    let acceptor = tokio_rustls::TlsAcceptor::from(Arc::new(config));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addr = listener.local_addr().unwrap().to_string();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let acceptor = acceptor.clone();
            tokio::spawn(async move {
                // A client that does not trust the certificate goes away.
                let Ok(mut stream) = acceptor.accept(stream).await else { return };
                let mut head = [0; 4096];
                let _ = tokio::io::AsyncReadExt::read(&mut stream, &mut head).await;
                let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\nConnection: close\r\n\r\nsecure";
                let _ = tokio::io::AsyncWriteExt::write_all(&mut stream, answer).await;
                let _ = tokio::io::AsyncWriteExt::shutdown(&mut stream).await;
            });
        }
    });
    addr
}

#[tokio::test(flavor = "multi_thread")]
async fn https_wants_a_certificate_that_is_trusted_unless_told_otherwise() {
    let dir = Folder::new();
    let addr = secure().await;
    let server = Server::start(&World::real().unwrap()).await;
    let node = node(dir.path(), &server.addr).await;
    let task = |insecure| {
        let mut main = sh("main", None, "exit 0");
        let mut file = artifact(format!("https://{addr}/f"), "local/f", "file");
        file.getter_insecure = insecure;
        main.artifacts = vec![file].into();
        main
    };
    let id = server.place(&job("insecure", JobType::Batch, vec![task(true)]));
    server.until_status(id, ClientStatus::Complete).await;
    assert_eq!(read(dir.path(), id, "main/local/f"), "secure");
    let id = server.place(&job("secure", JobType::Batch, vec![task(false)]));
    let end = server.until_status(id, ClientStatus::Failed).await;
    let events = format!("{:?}", end.task_states["main"].events);
    assert!(events.contains("certificate"), "{events}");
    node.shutdown().await;
}

/// A bare repository as a plain web server gives it.
fn repository(at: &Path) -> BTreeMap<String, Vec<u8>> {
    let git = |dir: &Path, arguments: &[&str]| {
        let done = std::process::Command::new("git")
            .args(["-c", "user.name=n", "-c", "user.email=e@example.org", "-c", "init.defaultBranch=main"])
            .args(arguments)
            .current_dir(dir)
            .output()
            .expect("these tests need git");
        assert!(done.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&done.stderr));
    };
    let work = at.join("work");
    std::fs::create_dir_all(work.join("sub")).unwrap();
    git(&work, &["init", "-q"]);
    std::fs::write(work.join("sub/file"), "one").unwrap();
    std::os::unix::fs::symlink("file", work.join("sub/link")).unwrap();
    git(&work, &["add", "."]);
    git(&work, &["commit", "-q", "-m", "one"]);
    git(&work, &["tag", "v1"]);
    std::fs::write(work.join("sub/file"), "two").unwrap();
    std::os::unix::fs::symlink("../../../../etc/passwd", work.join("escape")).unwrap();
    git(&work, &["add", "."]);
    git(&work, &["commit", "-q", "-m", "two"]);
    git(at, &["clone", "-q", "--bare", "work", "r.git"]);
    git(&at.join("r.git"), &["update-server-info"]);
    let mut files = BTreeMap::new();
    collect(at, &at.join("r.git"), &mut files);
    files
}

fn collect(root: &Path, at: &Path, files: &mut BTreeMap<String, Vec<u8>>) {
    for entry in std::fs::read_dir(at).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            collect(root, &path, files);
        } else {
            let mut body = Vec::new();
            std::fs::File::open(&path).unwrap().read_to_end(&mut body).unwrap();
            files.insert(format!("/{}", path.strip_prefix(root).unwrap().display()), body);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn repositories_are_fetched_at_a_ref_and_in_part() {
    let dir = Folder::new();
    let repository_dir = tempfile::tempdir().unwrap();
    let web = Web::files(repository(repository_dir.path()));
    let server = Server::start(&World::real().unwrap()).await;
    let node = node(dir.path(), &server.addr).await;
    let mut main = sh("main", None, "cd $NOMAD_TASK_DIR; cat one/sub/link two/file > out");
    main.artifacts = vec![
        artifact(format!("git::{}?ref=v1", web.url("/r.git")), "local/one", "any"),
        artifact(format!("git::{}", web.url("/r.git//sub")), "local/two", "any"),
    ]
    .into();
    let id = server.place(&job("repository", JobType::Batch, vec![main]));
    server.until_status(id, ClientStatus::Complete).await;
    assert_eq!(read(dir.path(), id, "main/local/out"), "onetwo");
    let mut escaping = sh("main", None, "exit 0");
    escaping.artifacts = vec![artifact(format!("git::{}", web.url("/r.git")), "local/all", "any")].into();
    let id = server.place(&job("escaping", JobType::Batch, vec![escaping]));
    let end = server.until_status(id, ClientStatus::Failed).await;
    let events = format!("{:?}", end.task_states["main"].events);
    assert!(events.contains("leads out of the repository"), "{events}");
    let left = std::fs::read_dir(dir.path().join(format!("alloc/{id}"))).unwrap();
    let left: Vec<_> =
        left.map(|e| e.unwrap().file_name()).filter(|n| n.to_string_lossy().starts_with(".clone")).collect();
    assert!(left.is_empty(), "{left:?}");
    node.shutdown().await;
}
