//! Rejects database files on network file systems.
//!
//! SQLite's write-ahead log needs shared memory and working locks between all processes that open
//! the file. Network file systems provide neither across hosts, and the damage shows only later.

use std::path::Path;

use longshore_core::Error;

const NETWORK: [(i64, &str); 12] = [
    (0x6969, "NFS"),
    (0x517B, "SMB"),
    (0xFF53_4D42, "CIFS"),
    (0xFE53_4D42, "SMB2"),
    (0x0102_1997, "9P"),
    (0x6573_5546, "FUSE"),
    (0x0BD0_0BD0, "Lustre"),
    (0x4750_4653, "GPFS"),
    (0x00C3_6400, "Ceph"),
    (0x5346_414F, "AFS"),
    (0x1983_0326, "BeeGFS"),
    (0x0116_1970, "GFS2"),
];

/// Whether a store may be in this folder: it exists, and is not on a network file system.
pub fn is_local(folder: &Path) -> bool {
    rustix::fs::statfs(folder).is_ok_and(|facts| network_name(facts.f_type).is_none())
}

/// Rejects a path on a network file system.
pub(crate) fn check(path: &Path) -> Result<(), Error> {
    let folder = match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    let facts = rustix::fs::statfs(folder).map_err(|error| Error::Unavailable {
        message: format!("the folder {} cannot be used", folder.display()),
        source: Some(Box::new(std::io::Error::from(error))),
    })?;
    match network_name(facts.f_type) {
        None => Ok(()),
        Some(name) => Err(Error::Unsupported(format!(
            "{} is on {name}, a network file system, where SQLite's locks do not work",
            path.display()
        ))),
    }
}

fn network_name(magic: i64) -> Option<&'static str> {
    // Some platforms sign-extend 32-bit magics.
    let magic = magic & 0xFFFF_FFFF;
    NETWORK.iter().find(|(candidate, _)| *candidate == magic).map(|(_, name)| *name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn network_file_systems_are_recognised_and_local_ones_are_not() {
        assert_eq!(network_name(0x6969), Some("NFS"));
        assert_eq!(network_name(-11_317_950), Some("CIFS"), "sign-extended");
        for local in [0xEF53, 0x5846_5342, 0x9123_683E, 0x0102_1994, 0x794C_7630] {
            assert_eq!(network_name(local), None);
        }
    }
}
