//! Connections that are made secure, with the certificates that the host trusts.

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};
use std::io;
use std::sync::{Arc, OnceLock};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

static TRUSTING: OnceLock<Arc<RootCertStore>> = OnceLock::new();

/// Makes a connection secure; `insecure` takes every certificate.
///
/// # Errors
/// The name is none (of kind `InvalidInput`), or the other side is not trusted or does not answer.
pub async fn connect<S>(stream: S, name: &str, insecure: bool) -> io::Result<TlsStream<S>>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let invalid = |e| io::Error::new(io::ErrorKind::InvalidInput, format!("host {name:?}: {e}"));
    let name = ServerName::try_from(name.to_string()).map_err(invalid)?;
    let config = config(insecure).map_err(|e| io::Error::other(format!("TLS: {e}")))?;
    TlsConnector::from(Arc::new(config)).connect(name, stream).await
}

fn config(insecure: bool) -> Result<ClientConfig, rustls::Error> {
    let provider = Arc::new(ring::default_provider());
    let builder = ClientConfig::builder_with_provider(Arc::clone(&provider)).with_safe_default_protocol_versions()?;
    Ok(if insecure {
        builder.dangerous().with_custom_certificate_verifier(Arc::new(Unchecked(provider))).with_no_client_auth()
    } else {
        let roots = Arc::clone(TRUSTING.get_or_init(|| Arc::new(roots())));
        builder.with_root_certificates(roots).with_no_client_auth()
    })
}

/// The certificates that the host trusts; those that cannot be read are left out.
fn roots() -> RootCertStore {
    let mut store = RootCertStore::empty();
    let found = rustls_native_certs::load_native_certs();
    for error in &found.errors {
        tracing::warn!(%error, "a certificate of the host cannot be read");
    }
    store.add_parsable_certificates(found.certs);
    store
}

/// Takes every certificate, as `insecure` asks; signatures of the handshake still count.
#[derive(Debug)]
struct Unchecked(Arc<CryptoProvider>);

impl ServerCertVerifier for Unchecked {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, cert, dss, &self.0.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, cert, dss, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
