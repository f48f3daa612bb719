//! Users and groups of the host.

use std::process::Stdio;

/// A user a task can run as.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct User {
    pub uid: u32,
    pub gid: u32,
    /// Supplementary groups, the primary one among them.
    pub groups: Vec<u32>,
}

/// Groups a user may be in here; the kernel allows 65536.
const MAX_GROUPS: usize = 65_536;

/// Finds a user by name or number: in `/etc/passwd` first, then wherever the
/// system's own lookup finds it (directory services).
pub(crate) async fn find(name: &str) -> Result<User, String> {
    let passwd = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
    let line = match passwd.lines().find(|l| is_user(l, name)) {
        Some(line) => Some(line.to_owned()),
        None => getent("passwd", name).await,
    };
    let Some((uid, gid, name)) = line.as_deref().and_then(ids) else {
        return Err(format!("failed to identify user {name:?}: user: unknown user {name}"));
    };
    let text = std::fs::read_to_string("/etc/group").unwrap_or_default();
    let mut groups = vec![gid];
    for line in text.lines() {
        let mut fields = line.split(':');
        let (Some(group), Some(members)) = (fields.nth(2).and_then(|g| g.parse().ok()), fields.next()) else {
            continue;
        };
        if members.split(',').any(|m| m == name) && !groups.contains(&group) && groups.len() < MAX_GROUPS {
            groups.push(group);
        }
    }
    Ok(User { uid, gid, groups })
}

/// User and group number of a user of the host.
///
/// # Errors
/// The host knows no such user.
pub async fn user_ids(name: &str) -> Result<(u32, u32), String> {
    find(name).await.map(|user| (user.uid, user.gid))
}

fn is_user(line: &str, name: &str) -> bool {
    let mut fields = line.split(':');
    fields.next() == Some(name) || (name.bytes().all(|b| b.is_ascii_digit()) && fields.nth(1) == Some(name))
}

/// Number, group and name of a passwd line.
fn ids(line: &str) -> Option<(u32, u32, String)> {
    let fields: Vec<&str> = line.trim().split(':').collect();
    Some((fields.get(2)?.parse().ok()?, fields.get(3)?.parse().ok()?, (*fields.first()?).to_owned()))
}

async fn getent(database: &str, name: &str) -> Option<String> {
    if name.is_empty() || name.starts_with('-') {
        return None;
    }
    let mut command = tokio::process::Command::new("getent");
    command.arg(database).arg(name).stdin(Stdio::null()).stderr(Stdio::null()).kill_on_drop(true);
    let output = tokio::time::timeout(std::time::Duration::from_secs(10), command.output()).await.ok()?.ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).lines().next().map(str::to_owned))?
}

/// Ranges such as `0,100-200`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct IdRanges(Vec<(u32, u32)>);

impl IdRanges {
    pub fn parse(text: &str) -> Result<IdRanges, String> {
        let mut out = Vec::new();
        for part in text.split(',').map(str::trim).filter(|p| !p.is_empty()) {
            let (low, high) = part.split_once('-').unwrap_or((part, part));
            match (low.trim().parse(), high.trim().parse()) {
                (Ok(low), Ok(high)) if low <= high => out.push((low, high)),
                _ => return Err(format!("invalid range {part:?}; expected numbers such as \"0,100-200\"")),
            }
        }
        Ok(IdRanges(out))
    }
    pub fn contains(&self, id: u32) -> bool {
        self.0.iter().any(|(low, high)| (*low..=*high).contains(&id))
    }
}

/// Matches a name against a pattern with `*` and `?`.
pub(crate) fn glob(pattern: &str, text: &str) -> bool {
    let (pattern, text): (Vec<char>, Vec<char>) = (pattern.chars().collect(), text.chars().collect());
    let (mut p, mut t, mut star) = (0, 0, None);
    while t < text.len() {
        match pattern.get(p) {
            Some('*') => {
                star = Some((p, t));
                p += 1;
            }
            Some(c) if *c == '?' || text.get(t) == Some(c) => {
                p += 1;
                t += 1;
            }
            _ => match star {
                // Let the last star take one more character.
                Some((at, from)) => {
                    star = Some((at, from + 1));
                    p = at + 1;
                    t = from + 1;
                }
                None => return false,
            },
        }
    }
    pattern.iter().skip(p).all(|c| *c == '*')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_and_globs() {
        let ranges = IdRanges::parse("0, 100-200").unwrap();
        assert!(ranges.contains(0) && ranges.contains(150) && !ranges.contains(201) && !ranges.contains(1));
        assert!(IdRanges::parse("5-1").is_err() && IdRanges::parse("x").is_err());
        assert!(glob("AWS_*", "AWS_KEY") && glob("*KEY", "AWS_KEY") && glob("A?S*Y", "AWS_KEY") && glob("*", ""));
        assert!(!glob("AWS_*", "XAWS_KEY") && !glob("AWS", "AWS_KEY") && !glob("?", ""));
    }

    #[tokio::test]
    async fn users_by_name_and_number() {
        let root = find("root").await.unwrap();
        assert_eq!((root.uid, root.gid), (0, 0));
        assert_eq!(find("0").await.unwrap().uid, 0);
        let error = find("nosuchuser").await.unwrap_err();
        assert_eq!(error, "failed to identify user \"nosuchuser\": user: unknown user nosuchuser");
    }
}
