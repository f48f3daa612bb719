//! Archives: tar, tar.gz and zip into a directory, gz into a file.
//!
//! Links and devices are refused, names never lead up, only permission bits are kept, and count and size have limits.

use super::{Cancel, FetchError, Mode, Spot};
use crate::alloc::place::Folder;
use flate2::read::MultiGzDecoder;
use std::fs::File;
use std::io::{BufReader, Read, Write};
use std::path::{Component, Path};

/// Most entries of an archive.
pub const MAX_ENTRIES: usize = 4096;
/// Most bytes that come out of an archive.
pub const MAX_BYTES: u64 = 100_000_000_000;
/// Bytes copied at a time.
const CHUNK: usize = 64 * 1024;
/// Permissions where the archive has none.
const FILE_MODE: u32 = 0o644;

/// The kinds of archives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Tar,
    TarGz,
    Zip,
    Gz,
}

/// Endings of archives; none: known, but not unpacked.
const ENDINGS: &[(&str, Option<Kind>)] = &[
    (".tar.gz", Some(Kind::TarGz)),
    (".tgz", Some(Kind::TarGz)),
    (".tar", Some(Kind::Tar)),
    (".zip", Some(Kind::Zip)),
    (".tar.bz2", None),
    (".tbz2", None),
    (".tar.xz", None),
    (".txz", None),
    (".tar.zst", None),
    (".tzst", None),
    (".gz", Some(Kind::Gz)),
    (".bz2", None),
    (".xz", None),
    (".zst", None),
];

/// What a file is by the option `archive`, or by its name. None: not to be unpacked.
pub fn kind(option: Option<&str>, name: &str) -> Result<Option<Kind>, String> {
    let ending = match option {
        Some("false" | "0" | "f" | "F" | "FALSE" | "False") => return Ok(None),
        Some("true" | "1" | "t" | "T" | "TRUE" | "True" | "") | None => name.to_ascii_lowercase(),
        Some(word) => format!("x.{word}"),
    };
    match ENDINGS.iter().find(|(end, _)| ending.ends_with(end)) {
        Some((_, Some(kind))) => Ok(Some(*kind)),
        Some((end, None)) => Err(format!(
            "archives of kind {end} are not unpacked; use tar.gz or zip, or set options {{ archive = \"false\" }}"
        )),
        None => match option {
            Some(word) if !word.eq_ignore_ascii_case("true") && ending == format!("x.{word}") => {
                Err(format!("archive = {word:?} is no kind of archive; use tar, tar.gz, tgz, zip, gz or false"))
            }
            _ => Ok(None),
        },
    }
}

/// Unpacks.
pub fn unpack(kind: Kind, file: &File, target: &Spot, mode: Mode, cancel: &Cancel) -> Result<(), FetchError> {
    let mut sink = Sink { target, mode, cancel, entries: 0, bytes: 0, written: 0 };
    let reader = BufReader::new(file.try_clone()?);
    match kind {
        Kind::Tar => tar(reader, &mut sink)?,
        Kind::TarGz => tar(MultiGzDecoder::new(reader), &mut sink)?,
        Kind::Zip => zip(reader, &mut sink)?,
        Kind::Gz => gz(MultiGzDecoder::new(reader), &mut sink)?,
    }
    if mode == Mode::File && sink.written != 1 {
        return Err(FetchError::lasting("mode is file, but the archive holds no file"));
    }
    Ok(())
}

struct Sink<'a> {
    target: &'a Spot,
    mode: Mode,
    cancel: &'a Cancel,
    entries: usize,
    bytes: u64,
    written: usize,
}

impl Sink<'_> {
    /// Counts an entry and gives the names of its path.
    fn entry(&mut self, path: &Path) -> Result<Vec<String>, FetchError> {
        self.cancel.check()?;
        self.entries = self.entries.saturating_add(1);
        if self.entries > MAX_ENTRIES {
            return Err(FetchError::lasting(format!("the archive has more than {MAX_ENTRIES} entries")));
        }
        let mut names = Vec::new();
        for component in path.components() {
            match component {
                Component::CurDir => {}
                Component::Normal(name) => match name.to_str() {
                    Some(name) => names.push(name.to_string()),
                    None => return Err(FetchError::lasting(format!("entry {path:?} has no UTF-8 name"))),
                },
                _ => return Err(FetchError::lasting(format!("entry {path:?} leads out of the destination"))),
            }
        }
        Ok(names)
    }

    fn folder(&self, names: &[String]) -> Result<Folder, FetchError> {
        let root = self.target.folder()?;
        Ok(names.iter().try_fold(root, |folder, name| folder.sub(name))?)
    }

    fn directory(&mut self, names: &[String]) -> Result<(), FetchError> {
        if self.mode != Mode::File {
            self.folder(names)?;
        }
        Ok(())
    }

    fn file(&mut self, names: &[String], data: &mut dyn Read, mode: u32) -> Result<(), FetchError> {
        let (folder, name) = match (self.mode, names.split_last()) {
            (Mode::File, _) if self.written > 0 => {
                return Err(FetchError::lasting("mode is file, but the archive holds more than one"));
            }
            (Mode::File, _) => self.target.parent()?,
            (_, Some((name, before))) => (self.folder(before)?, name.clone()),
            (_, None) => return Err(FetchError::lasting("an entry of the archive has no name")),
        };
        let mut fresh = folder.fresh()?;
        self.copy(data, &mut fresh.file)?;
        fresh.keep(&folder, &name, mode, (None, None))?;
        self.written = self.written.saturating_add(1);
        Ok(())
    }

    fn copy(&mut self, data: &mut dyn Read, file: &mut File) -> Result<(), FetchError> {
        let mut chunk = vec![0; CHUNK];
        loop {
            self.cancel.check()?;
            let count =
                data.read(&mut chunk).map_err(|e| FetchError::passing(format!("the archive is damaged: {e}")))?;
            if count == 0 {
                return Ok(());
            }
            self.bytes = self.bytes.saturating_add(u64::try_from(count).unwrap_or(u64::MAX));
            if self.bytes > MAX_BYTES {
                return Err(FetchError::lasting(format!("the archive holds more than {MAX_BYTES} bytes")));
            }
            file.write_all(chunk.get(..count).unwrap_or_default())?;
        }
    }
}

fn tar(reader: impl Read, sink: &mut Sink) -> Result<(), FetchError> {
    let damaged = |e: std::io::Error| FetchError::passing(format!("the archive is damaged: {e}"));
    let mut archive = tar::Archive::new(reader);
    for entry in archive.entries().map_err(damaged)? {
        let mut entry = entry.map_err(damaged)?;
        let path = entry.path().map_err(damaged)?.into_owned();
        let names = sink.entry(&path)?;
        let kind = entry.header().entry_type();
        let mode = entry.header().mode().unwrap_or(FILE_MODE);
        if kind.is_dir() {
            sink.directory(&names)?;
        } else if kind.is_file() {
            sink.file(&names, &mut entry, mode)?;
        } else if kind.is_pax_global_extensions() {
            // Says something about the archive, and is no file.
        } else {
            return Err(refused(&path));
        }
    }
    Ok(())
}

fn refused(path: &Path) -> FetchError {
    FetchError::lasting(format!("entry {path:?} is a link or a device: copying of symlinks has been disabled"))
}

fn zip(reader: BufReader<File>, sink: &mut Sink) -> Result<(), FetchError> {
    const TYPE: u32 = 0o170_000;
    const REGULAR: u32 = 0o100_000;
    const DIRECTORY: u32 = 0o040_000;
    let damaged = |e: zip::result::ZipError| FetchError::passing(format!("the archive is damaged: {e}"));
    let mut archive = zip::ZipArchive::new(reader).map_err(damaged)?;
    if archive.len() > MAX_ENTRIES {
        return Err(FetchError::lasting(format!("the archive has more than {MAX_ENTRIES} entries")));
    }
    for index in 0..archive.len() {
        let mut entry = archive.by_index(index).map_err(damaged)?;
        let path = Path::new(entry.name()).to_path_buf();
        let names = sink.entry(&path)?;
        let mode = entry.unix_mode();
        match mode.map(|mode| mode & TYPE) {
            None | Some(0 | REGULAR | DIRECTORY) => {}
            Some(_) => return Err(refused(&path)),
        }
        if entry.is_dir() {
            sink.directory(&names)?;
        } else {
            sink.file(&names, &mut entry, mode.filter(|mode| mode & 0o777 != 0).unwrap_or(FILE_MODE))?;
        }
    }
    Ok(())
}

/// One packed file. Its name is the destination's.
fn gz(mut reader: impl Read, sink: &mut Sink) -> Result<(), FetchError> {
    if sink.mode != Mode::File {
        return Err(FetchError::lasting(
            "a .gz holds one file: use mode = \"file\", or options { archive = \"false\" }",
        ));
    }
    sink.file(&[], &mut reader, FILE_MODE)
}

#[cfg(test)]
mod tests {
    use super::super::locate;
    use super::*;
    use crate::alloc::dir::AllocDir;
    use herdsman_model::AllocId;
    use std::os::unix::fs::PermissionsExt;

    fn built() -> (tempfile::TempDir, AllocDir) {
        let temp = tempfile::tempdir().unwrap();
        let dir = AllocDir::new(temp.path(), AllocId([7; 16]));
        dir.build().unwrap();
        dir.build_task("web", 0).unwrap();
        (temp, dir)
    }

    fn archive(add: impl FnOnce(&mut tar::Builder<Vec<u8>>)) -> File {
        let mut builder = tar::Builder::new(Vec::new());
        add(&mut builder);
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&builder.into_inner().unwrap()).unwrap();
        std::io::Seek::rewind(&mut file).unwrap();
        file
    }

    fn header(name: &str, kind: tar::EntryType, mode: u32, size: u64) -> tar::Header {
        let mut header = tar::Header::new_gnu();
        // Straight into the field: the builder itself refuses names that lead out.
        header.as_gnu_mut().unwrap().name[..name.len()].copy_from_slice(name.as_bytes());
        header.set_entry_type(kind);
        header.set_mode(mode);
        header.set_size(size);
        header.set_cksum();
        header
    }

    fn run(dir: &AllocDir, file: &File, mode: Mode) -> Result<(), FetchError> {
        let target = locate(dir, "web", if mode == Mode::File { "local/f" } else { "local/" }).unwrap();
        unpack(Kind::Tar, file, &target, mode, &Cancel::default())
    }

    #[test]
    fn archives_keep_permission_bits_only() {
        let (_temp, dir) = built();
        let file = archive(|b| {
            b.append(&header("d/", tar::EntryType::Directory, 0o755, 0), std::io::empty()).unwrap();
            b.append(&header("d/run", tar::EntryType::Regular, 0o4755, 3), &b"abc"[..]).unwrap();
        });
        run(&dir, &file, Mode::Any).unwrap();
        let path = dir.root.join("web/local/d/run");
        assert_eq!(std::fs::read(&path).unwrap(), b"abc");
        assert_eq!(std::fs::metadata(path).unwrap().permissions().mode() & 0o7777, 0o755);
    }

    #[test]
    fn nothing_leads_out() {
        let (temp, dir) = built();
        let kinds = [tar::EntryType::Symlink, tar::EntryType::Link, tar::EntryType::Char, tar::EntryType::Fifo];
        let mut bad: Vec<_> = kinds.iter().map(|kind| header("x", *kind, 0o644, 0)).collect();
        bad.push(header("../x", tar::EntryType::Regular, 0o644, 0));
        bad.push(header("a/../../x", tar::EntryType::Regular, 0o644, 0));
        bad.push(header("/x", tar::EntryType::Regular, 0o644, 0));
        for header in bad {
            let file = archive(|b| b.append(&header, std::io::empty()).unwrap());
            let error = run(&dir, &file, Mode::Any).unwrap_err();
            assert!(!error.recoverable, "{error:?}");
        }
        std::os::unix::fs::symlink(temp.path(), dir.root.join("web/local/out")).unwrap();
        let file =
            archive(|b| b.append(&header("out/x", tar::EntryType::Regular, 0o644, 0), std::io::empty()).unwrap());
        assert!(run(&dir, &file, Mode::Any).is_err());
        assert!(!temp.path().join("x").exists());
    }

    #[test]
    fn entries_have_a_limit_and_file_mode_takes_one() {
        let (_temp, dir) = built();
        let many = archive(|b| {
            for n in 0..=MAX_ENTRIES {
                b.append(&header(&format!("d{n}/"), tar::EntryType::Directory, 0o755, 0), std::io::empty()).unwrap();
            }
        });
        assert!(run(&dir, &many, Mode::Any).unwrap_err().why.contains("more than 4096 entries"));
        let one = |count: usize| {
            archive(|b| {
                for n in 0..count {
                    b.append(&header(&format!("x{n}"), tar::EntryType::Regular, 0o644, 1), &b"y"[..]).unwrap();
                }
            })
        };
        assert!(run(&dir, &one(2), Mode::File).is_err());
        assert!(run(&dir, &one(0), Mode::File).is_err());
        run(&dir, &one(1), Mode::File).unwrap();
        assert_eq!(std::fs::read(dir.root.join("web/local/f")).unwrap(), b"y");
    }

    #[test]
    fn kinds_come_from_names_and_the_option() {
        assert_eq!(kind(None, "a.TGZ"), Ok(Some(Kind::TarGz)));
        assert_eq!(kind(None, "a.tar"), Ok(Some(Kind::Tar)), "nomad#11481");
        assert_eq!(kind(None, "a.bin"), Ok(None));
        assert_eq!(kind(Some("false"), "a.zip"), Ok(None));
        assert_eq!(kind(Some("zip"), "download"), Ok(Some(Kind::Zip)));
        assert!(kind(None, "a.tar.xz").is_err());
        assert!(kind(Some("rar"), "a").is_err());
    }
}
