//! Certificates of a cluster: an authority of its own, and the certificate by which clients and
//! workers know the dispatcher (`gt cert`).

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, date_time_ymd,
};
use std::fs::{self, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// File of the authority's certificate, which clients and workers have.
pub const AUTHORITY: &str = "ca.pem";
/// File of the authority's key, which signs further certificates and which no process of a cluster
/// reads.
pub const AUTHORITY_KEY: &str = "ca-key.pem";
/// File of the dispatcher's certificate.
pub const SERVER: &str = "server.pem";
/// File of the dispatcher's key.
pub const SERVER_KEY: &str = "server-key.pem";

/// Days for which an authority is valid: a cluster's hardware lasts as long.
const AUTHORITY_DAYS: u32 = 3650;
/// Time before now from which certificates are valid: clocks differ.
const CLOCK_DIFFERENCE: Duration = Duration::from_hours(1);
const DAY: Duration = Duration::from_hours(24);

/// Reason why certificates are not made.
#[derive(Debug, thiserror::Error)]
pub enum CertificateError {
    /// A file cannot be read or written.
    #[error("{}: {source}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// Its fault.
        source: io::Error,
    },
    /// A name of the dispatcher's host is none, or a file holds no key.
    #[error("{what}: {source}")]
    Content {
        /// The name or file.
        what: String,
        /// Its fault.
        source: rcgen::Error,
    },
    /// One of the authority's two files is missing.
    #[error(
        "{} holds {there} but not {missing}: give another folder, or remove {there} for a new authority, which every client and worker then needs",
        folder.display()
    )]
    HalfAuthority {
        /// The folder.
        folder: PathBuf,
        /// The file that is there.
        there: &'static str,
        /// The file that is missing.
        missing: &'static str,
    },
}

/// Writes a certificate for a dispatcher on a host of these names and addresses, and its key, into
/// a folder; the authority that signs it is made where the folder has none. Returns true if it was.
///
/// # Errors
/// [`CertificateError`].
pub fn write_certificates(
    folder: &Path,
    hosts: &[String],
    days: u32,
) -> Result<bool, CertificateError> {
    let failed = |source| CertificateError::File { path: folder.to_owned(), source };
    fs::DirBuilder::new().recursive(true).mode(0o700).create(folder).map_err(failed)?;
    let (is_new, key) = match authority_key(folder)? {
        Some(key) => (false, key),
        None => (true, new_authority(folder)?),
    };
    let unsigned = |source| CertificateError::Content { what: "the authority".into(), source };
    let mut params = CertificateParams::new(hosts)
        .map_err(|source| CertificateError::Content { what: hosts.join(", "), source })?;
    set_validity(&mut params, days);
    params.distinguished_name.push(DnType::CommonName, "GT dispatcher");
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.use_authority_key_identifier_extension = true;
    let server_key = KeyPair::generate().map_err(unsigned)?;
    let issuer = Issuer::new(authority_params(), key);
    let certificate = params.signed_by(&server_key, &issuer).map_err(unsigned)?;
    write(&folder.join(SERVER_KEY), &server_key.serialize_pem(), 0o600)?;
    write(&folder.join(SERVER), &certificate.pem(), 0o644)?;
    Ok(is_new)
}

/// The key of the folder's authority; `None` if the folder has none.
fn authority_key(folder: &Path) -> Result<Option<KeyPair>, CertificateError> {
    let path = folder.join(AUTHORITY_KEY);
    let has_certificate = folder.join(AUTHORITY).exists();
    let half = |there, missing| CertificateError::HalfAuthority {
        folder: folder.to_owned(),
        there,
        missing,
    };
    let text = match fs::read_to_string(&path) {
        Err(error) if error.kind() == ErrorKind::NotFound && !has_certificate => {
            return Ok(None);
        }
        Err(error) if error.kind() == ErrorKind::NotFound => {
            return Err(half(AUTHORITY, AUTHORITY_KEY));
        }
        Err(source) => return Err(CertificateError::File { path, source }),
        Ok(_) if !has_certificate => return Err(half(AUTHORITY_KEY, AUTHORITY)),
        Ok(text) => text,
    };
    let what = path.display().to_string();
    KeyPair::from_pem(&text).map(Some).map_err(|source| CertificateError::Content { what, source })
}

fn new_authority(folder: &Path) -> Result<KeyPair, CertificateError> {
    let failed = |source| CertificateError::Content { what: "the authority".into(), source };
    let key = KeyPair::generate().map_err(failed)?;
    let certificate = authority_params().self_signed(&key).map_err(failed)?;
    write(&folder.join(AUTHORITY_KEY), &key.serialize_pem(), 0o600)?;
    write(&folder.join(AUTHORITY), &certificate.pem(), 0o644)?;
    Ok(key)
}

/// Contents of the authority's certificate besides its key. Its name is the same for all, so that a
/// later certificate is signed with the key alone.
fn authority_params() -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, "GT cluster authority");
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    set_validity(&mut params, AUTHORITY_DAYS);
    params
}

fn set_validity(params: &mut CertificateParams, days: u32) {
    // A clock before 1970 counts as 1970.
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let epoch = date_time_ymd(1970, 1, 1);
    params.not_before = epoch + now.saturating_sub(CLOCK_DIFFERENCE);
    params.not_after = params.not_before + DAY * days;
}

/// Writes a file as a whole or not at all.
fn write(path: &Path, text: &str, mode: u32) -> Result<(), CertificateError> {
    let written = || {
        let next = path.with_extension("next");
        // A file that was left by a killed process has its own mode.
        let _ = fs::remove_file(&next);
        let mut file = OpenOptions::new().write(true).create_new(true).mode(mode).open(&next)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        fs::rename(&next, path)
    };
    written().map_err(|source| CertificateError::File { path: path.to_owned(), source })
}

#[cfg(test)]
mod tests {
    use super::{AUTHORITY, AUTHORITY_KEY, SERVER, SERVER_KEY, write_certificates};
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn keys_are_private_and_a_second_call_keeps_the_authority() {
        let folder = std::env::temp_dir().join(format!("gt-cert-{}", std::process::id()));
        let hosts = ["localhost".to_owned(), "127.0.0.1".to_owned()];
        assert!(write_certificates(&folder, &hosts, 1).expect("the folder is new"));
        let read = |name| fs::read_to_string(folder.join(name)).expect("it was written");
        let (authority, server) = (read(AUTHORITY), read(SERVER));
        for name in [AUTHORITY_KEY, SERVER_KEY] {
            let mode = fs::metadata(folder.join(name)).expect("it is there").permissions().mode();
            assert_eq!(mode & 0o777, 0o600, "{name}");
        }
        assert!(!write_certificates(&folder, &hosts, 1).expect("the authority is there"));
        assert_eq!(read(AUTHORITY), authority);
        assert_ne!(read(SERVER), server);
        fs::remove_file(folder.join(AUTHORITY_KEY)).expect("it is there");
        let error = write_certificates(&folder, &hosts, 1).expect_err("half is missing");
        assert!(error.to_string().contains("holds ca.pem but not ca-key.pem"), "{error}");
        fs::remove_dir_all(&folder).expect("it is there");
    }

    #[test]
    fn a_name_that_is_none_is_named() {
        let folder = std::env::temp_dir().join(format!("gt-cert-name-{}", std::process::id()));
        let error = write_certificates(&folder, &["grün".to_owned()], 1).expect_err("not ASCII");
        assert!(error.to_string().starts_with("grün: "), "{error}");
        fs::remove_dir_all(&folder).expect("it is there");
    }
}
